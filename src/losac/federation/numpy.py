"""Clients with a loss and a gradient written in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.federation.eager import EagerWorker
from losac.trees import Tree

Function = Callable[[Tree, Any, Any], Any]
"""Parameters, inputs and targets of some rows → a mean over these."""


def numpy_worker(
    algorithm: Algorithm,
    loss_gradient: Function,
    x: Any,
    y: Any,
    *,
    loss: Function | None = None,
    metrics: Mapping[str, Function] | None = None,
    **options: Any,
) -> EagerWorker:
    """Return a client that computes in NumPy.

    Args:
      algorithm: the federation's.
      loss_gradient: ``loss_gradient(params, x, y)``: the gradient of the mean loss over a batch, a tree like params.
      x, y: the client's inputs and targets, row by row.
      loss: ``loss(params, x, y)``: the mean loss; only needed to evaluate.
      metrics: name → ``metric(params, x, y)``, means over the batch.
      options: ``params``, ``regularizer``, ``reduction`` and ``local_steps`` of
        :class:`~losac.federation.eager.EagerOptions`.

    >>> import losac, numpy
    >>> x, y = numpy.eye(3), numpy.array([1.0, 2.0, 3.0])
    >>> client = numpy_worker(losac.algorithms.fedavg(0.1), lambda w, x, y: x.T @ (x @ w - y) / len(x), x, y)
    >>> client.rows
    3
    """
    x, y = np.asarray(x), np.asarray(y)
    same_length(x, y)
    means = {} if loss is None else {"loss": loss, **(metrics or {})}

    def gradient(params: Tree, rows: np.ndarray) -> Tree:
        return loss_gradient(params, x[rows], y[rows])

    def value(params: Tree, rows: np.ndarray) -> dict[str, Any]:
        return {name: mean(params, x[rows], y[rows]) for name, mean in means.items()}

    return EagerWorker(algorithm, gradient, len(x), value=value if means else None, **options)


def same_length(x: Any, y: Any) -> None:
    """Refuse inputs and targets of different numbers of rows."""
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} rows but y has {len(y)}: give one target for each row")
