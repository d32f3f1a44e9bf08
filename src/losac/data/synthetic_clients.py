"""Synthetic(α, β), the data on which FedProx was shown: clients with models, inputs and numbers of rows of their own.

Reference: T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, *Federated optimization in heterogeneous
networks*, MLSys 2020, section 5.1 and the authors' code.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac import _random
from losac._checks import NONNEGATIVE, check_count, check_flag, check_number
from losac._seeds import check_seed
from losac.data.federated import FederatedData

Array = NDArray[Any]
DIM, CLASSES, TRAINED = 60, 10, 0.9
LEAST_ROWS = 50


def fedprox_synthetic(
    clients: int = 30, *, alpha: float = 1.0, beta: float = 1.0, iid: bool = False, seed: int = 0
) -> FederatedData:
    r"""Clients with models, inputs and numbers of rows of their own: synthetic(α, β) of FedProx.

    Client i labels its rows by the largest entry of :math:`W_i^\top x + b_i`. With :math:`u_i \sim N(0, \alpha)` and
    :math:`B_i \sim N(0, \beta)`, where the second number is a standard deviation as in the authors' code,

    .. math:: W_i, b_i \sim N(u_i, 1), \qquad v_i \sim N(B_i, 1), \qquad x \sim N(v_i, \mathrm{diag}(j^{-1.2})).

    A client has 50 rows and more, by a lognormal law; nine of ten are to train, the others to test.

    Args:
        clients: number of clients.
        alpha: how far the clients' models are apart.
        beta: how far their inputs are apart.
        iid: all clients have one model, and inputs of mean 0.
        seed: fixes everything.

    >>> fedprox_synthetic(clients=5).x.shape[1]
    60
    """
    check_count("clients", clients)
    check_number("alpha", alpha, NONNEGATIVE)
    check_number("beta", beta, NONNEGATIVE)
    check_flag("iid", iid)
    rng = _random.shared_generator(check_seed(seed))
    sizes = rng.lognormal(4, 2, clients).astype(int) + LEAST_ROWS
    centres, shifts = rng.normal(0, alpha, clients), rng.normal(0, beta, clients)
    shared = rng.normal(size=(DIM + 1, CLASSES))
    spread = np.arange(1, DIM + 1) ** -0.6
    train: list[tuple[Array, Array]] = []
    test: list[tuple[Array, Array]] = []
    for size, centre, shift in zip(sizes, centres, shifts):
        weights, mean = rng.normal(centre, 1, (DIM + 1, CLASSES)), rng.normal(shift, 1, DIM)
        if iid:
            weights, mean = shared, np.zeros(DIM)
        x = mean + spread * rng.normal(size=(size, DIM))
        y = np.argmax(x @ weights[:-1] + weights[-1], axis=1)
        cut = int(TRAINED * size)
        for part, here in ((train, slice(cut)), (test, slice(cut, None))):
            part.append((x[here].astype(np.float32), y[here].astype(np.int32)))
    held_out = np.concatenate([x for x, _ in test]), np.concatenate([y for _, y in test])
    return FederatedData.from_clients(train, test=held_out, name="synthetic", num_classes=CLASSES)
