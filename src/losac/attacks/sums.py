"""What a server sees that learns sums only, as secure aggregation leaves it: a group of clients as if it were one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.attacks.transcript import Exchange, Transcript, watch
from losac.task import Task
from losac.trees import map_trees


def watch_sum(task: Task, algorithm: Algorithm, group: Sequence[int], *, rounds: int, seed: int = 0) -> Transcript:
    """Run a federation in this process and return what its server sees of a group: in every round the sum.

    The mean of the group's uploads is read as one client's, which has the rows of all: the gradients of a client's rows
    add up, and everything else that a linear method sends is known to the server or common to all. With one local step
    the mean is exactly what such a client would send.

    Args:
      task, algorithm, seed: as for :func:`losac.simulate`; the clients have equally many rows and weights, and take
        their steps on all of these (one block), since the blocks of different clients are different ones.
      group: the clients of the sum.
      rounds: how many rounds.

    >>> import losac
    >>> data = losac.data.load("digits", clients=5).subset([0, 1, 2])
    >>> data = losac.attacks.cut(data, rows=4).clients
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> watch_sum(task, losac.algorithms.dsgd(1e-3), [0, 1], rounds=2).rows
    8
    """
    if any(phase.draw.blocks != 1 or phase.draw.batch_size is not None for phase in algorithm.phases()):
        raise ValueError(f"{algorithm.label} draws blocks or batches, different ones at each client: use all rows")
    if algorithm.transforms():
        raise ValueError(f"{algorithm.label} changes its uploads, which are read as they are made: use no transforms")
    seen = watch(task, algorithm, group, rounds=rounds, seed=seed)
    first = seen[0]
    if len({one.rows for one in seen}) > 1 or len(set(np.round(task.client_weights, 12))) > 1:
        raise ValueError("the clients of a sum must have equally many rows and equal weights")
    share = 1 / len(seen) if task.reduction == "sum" else 1.0
    exchanges = []
    for each in zip(*(one.exchanges for one in seen), strict=True):
        mean = map_trees(_mean, *(one.upload for one in each))
        exchanges.append(Exchange(each[0].task._replace(weight=each[0].task.weight * share), each[0].message, mean))
    return first._replace(rows=first.rows * len(seen), exchanges=tuple(exchanges))


def pooled(task: Task, group: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a group of clients, as if one client had them."""
    x, y = zip(*(task.data.client(i) for i in group))
    return np.concatenate([np.asarray(part) for part in x]), np.concatenate([np.asarray(part) for part in y])


def _mean(*uploads: Any) -> Any:
    return np.mean(np.stack(uploads), 0, dtype=np.float64).astype(uploads[0].dtype)
