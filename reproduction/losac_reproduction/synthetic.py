"""Synthetic(α, β), the data on which FedProx was shown: clients with models, inputs and numbers of rows of their own.

Reference: T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, *Federated optimization in heterogeneous
networks*, MLSys 2020, section 5.1 and the authors' code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from losac.data import FederatedData
from losac_reproduction._random import synthetic_generator

CLIENTS, DIM, CLASSES = 30, 60, 10
TRAINED = 0.9
"""The share of a client's rows that it trains with; the others are for testing."""


def synthetic(kind: str, seed: int = 0) -> FederatedData:
    r"""Return the data of a kind: ``"iid"``, or α and β, such as ``"1,1"``.

    Client i labels its rows by the largest entry of :math:`W_i^\top x + b_i`. With :math:`u_i \sim N(0, \alpha)` and
    :math:`B_i \sim N(0, \beta)`, where the second number is a standard deviation as in the authors' code,

    .. math:: W_i, b_i \sim N(u_i, 1), \qquad v_i \sim N(B_i, 1), \qquad x \sim N(v_i, \mathrm{diag}(j^{-1.2})).

    All clients have the same W and b, and v = 0, in the kind ``"iid"``. A client has 50 rows and
    more, by a lognormal law.

    >>> data = synthetic("1,1")
    >>> data.num_clients, data.x.shape[1], data.num_classes
    (30, 60, 10)
    """
    rng = synthetic_generator(seed)
    sizes = rng.lognormal(4, 2, CLIENTS).astype(int) + 50
    alpha, beta = (0.0, 0.0) if kind == "iid" else map(float, kind.split(","))
    centres, shifts = rng.normal(0, alpha, CLIENTS), rng.normal(0, beta, CLIENTS)
    shared = rng.normal(size=(DIM + 1, CLASSES))
    spread = np.arange(1, DIM + 1) ** -0.6
    train, test = [], []
    for size, centre, shift in zip(sizes, centres, shifts):
        own = rng.normal(centre, 1, (DIM + 1, CLASSES))
        inputs = rng.normal(shift, 1, DIM)
        weights, mean = (shared, np.zeros(DIM)) if kind == "iid" else (own, inputs)
        x = mean + spread * rng.normal(size=(size, DIM))
        y = np.argmax(x @ weights[:-1] + weights[-1], axis=1)
        cut = int(TRAINED * size)
        for part, here in ((train, slice(cut)), (test, slice(cut, None))):
            part.append((x[here].astype(np.float32), y[here].astype(np.int32)))
    held_out = (np.concatenate([x for x, _ in test]), np.concatenate([y for _, y in test]))
    return FederatedData.from_clients(train, test=held_out, name="synthetic", num_classes=CLASSES)


def fitted(data: FederatedData) -> np.ndarray:
    """Return the weights, with the intercepts as the last row, of a softmax regression on all rows at once."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    x, hot = np.column_stack([data.x, np.ones(len(data))]), np.eye(CLASSES)[data.y]

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        scores = log_softmax(x @ w.reshape(-1, CLASSES), axis=1)
        return -float((scores * hot).sum()) / len(x), (x.T @ (np.exp(scores) - hot)).ravel() / len(x)

    found = minimize(loss, np.zeros(x.shape[1] * CLASSES), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.reshape(found.x, (-1, CLASSES))


def accuracy_of(weights: np.ndarray, test: Any) -> float:
    """Return the share of rows that weights label rightly."""
    x, y = test
    return float(np.mean(np.argmax(x @ weights[:-1] + weights[-1], axis=1) == y))
