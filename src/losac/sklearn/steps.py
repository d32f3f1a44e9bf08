"""Step sizes from the curvature of the problem: the largest of three candidates that does not overshoot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from losac.algorithms.contract import Algorithm
from losac.algorithms.losac import Losac
from losac.history import DivergedError, History
from losac.task import Task
from losac.tuning.steps import LENGTH, curvature

SHORTER = (1.0, 1 / 3, 1 / 12)
"""The steps to try, in units of the longest. For LoSAC the last one is gradient descent's 1/L."""
OVERSHOT = 0.01
"""If a run gives back more than this share of the decrease of its loss by the end, its steps were too long."""


def lengths(task: Task, method: Algorithm, clients_per_round: int | None, seed: int, linear: bool) -> Iterator[float]:
    """Yield step sizes to try, the longest first.

    LoSAC moves by its delayed mean gradient: 12/(TL), as in :func:`losac.tuning.suggest`, with L the curvature of the
    mean loss. The others move by their clients' gradients: 1/L, with L the largest curvature of a client. For linear
    models L at the start has a closed form; for networks it is measured in ten rounds.
    """
    if isinstance(method, Losac):
        bound = mean_curvature(task) if linear else measured(task, clients_per_round, seed)
        longest = LENGTH / ((method.local_steps or 1) * bound)
    else:
        longest = 1 / (client_curvature(task) if linear else measured(task, clients_per_round, seed))
    yield from (longest * share for share in SHORTER)


def measured(task: Task, clients_per_round: int | None, seed: int) -> float:
    """Return the curvature that the clients measure; 1 if it is zero."""
    found = curvature(task, clients_per_round=clients_per_round, seed=seed)
    return found if np.isfinite(found) and found > 0 else 1.0


def mean_curvature(task: Task) -> float:
    """Return the largest curvature of a linear model's mean loss at the start."""
    return _largest(task.data.x) * _bend(task)


def client_curvature(task: Task) -> float:
    """Return the largest curvature of a client's loss in a linear model, including the client's weight."""
    data = task.data
    own = [_largest(data.client(i)[0]) for i in range(data.num_clients)]
    return float(np.max(np.asarray(own) * data.num_clients * task.client_weights)) * _bend(task)


def overshot(history: History) -> bool:
    """Whether a run ended well above its lowest loss."""
    values = history.metric("objective" if "objective" in history.metrics else "loss")
    lowest = np.nanmin(values)
    return not values[-1] - lowest <= OVERSHOT * (values[0] - lowest)


def first_good(runs: Iterator[tuple[float, History | DivergedError]]) -> tuple[float, History]:
    """Return the first run that did not overshoot, else the last; raise an error if even that one diverged."""
    tried = next(runs)
    while isinstance(tried[1], DivergedError) or overshot(tried[1]):
        shorter = next(runs, None)
        if shorter is None:
            break
        tried = shorter
    step_size, run = tried
    if isinstance(run, DivergedError):
        raise run
    return step_size, run


def _largest(x: NDArray[np.floating]) -> float:
    """Return the largest eigenvalue of the second moments of (x, 1)."""
    rows = np.column_stack([np.asarray(x, np.float64), np.ones(len(x))])
    return float(np.linalg.norm(rows, 2) ** 2 / len(rows))


def _bend(task: Task) -> float:
    """Return the largest second derivative of the loss at zero outputs: 1 for least squares, ¼, or 1/C for softmax."""
    classes = task.data.num_classes
    return 1.0 if classes is None else 0.25 if classes == 2 else 1.0 / classes
