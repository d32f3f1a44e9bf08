"""FedProx's synthetic(α, β) as a contest: its kinds by name, and the model that all rows together give.

Reference: T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith, *Federated optimization in heterogeneous
networks*, MLSys 2020, section 5.1 and the authors' code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from losac.data import FederatedData, load

CLIENTS, DIM, CLASSES = 30, 60, 10


def synthetic(kind: str, seed: int = 0) -> FederatedData:
    """Return the data of a kind: ``"iid"``, or α and β, such as ``"1,1"``.

    >>> synthetic("1,1").num_clients
    30
    """
    if kind == "iid":
        return load("synthetic", CLIENTS, seed=seed, iid=True)
    alpha, beta = map(float, kind.split(","))
    return load("synthetic", CLIENTS, seed=seed, alpha=alpha, beta=beta)


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
