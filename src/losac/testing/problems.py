"""Quadratics with a known optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac import data as datasets
from losac import models
from losac.data import FederatedData
from losac.task import Task, regression

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Quadratic:
    """Heterogeneous least squares f_i(w) = Σ_r ½ (a_r·w − b_r)², each client with its own optimum."""

    data: FederatedData
    task: Task
    optimum: Array
    curvature: float
    """The largest curvature of any block gradient."""

    @property
    def hessians(self) -> list[Array]:
        """The second derivatives of every f_i."""
        return [x.T @ x for x, _ in map(self.data.client, range(self.data.num_clients))]

    @property
    def optima(self) -> list[Array]:
        """The optimum of every f_i."""
        clients = map(self.data.client, range(self.data.num_clients))
        return [np.linalg.solve(x.T @ x, x.T @ y) for x, y in clients]

    def distance(self, params: Any) -> float:
        """Return the largest distance of an entry from the optimum."""
        return float(np.abs(np.asarray(params) - self.optimum).max())


def quadratic(
    clients: int = 10, samples: int | list[int] = 16, dim: int = 4, seed: int = 1, **options: Any
) -> Quadratic:
    """Return a quadratic; options as for :class:`losac.Task`."""
    data = datasets.quadratic(clients=clients, samples=samples, dim=dim, seed=seed)
    task = regression(models.linear(dim), data, **options)
    curvature = max(np.linalg.norm(x, 2) ** 2 for x, _ in map(data.client, range(clients)))
    return Quadratic(data, task, np.asarray(data.info["optimum"]), float(curvature))
