"""The arrays of a task as the program wants them: in the run's dtype, padded, in chunks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from losac.simulation.client import Resident
from losac.simulation.drawing import Rows
from losac.task import Task


def cast(a: Any, dtype: Any) -> np.ndarray:
    """Return an array in the run's dtype, whole numbers in 32 bits."""
    a = np.asarray(a)
    if np.issubdtype(a.dtype, np.floating):
        return a.astype(dtype)
    return a.astype(np.int32) if np.issubdtype(a.dtype, np.integer) and a.dtype.itemsize == 8 else a


def pad(a: np.ndarray, rows: int) -> np.ndarray:
    """Extend by copies of the first row, so that a slice never runs over the end and padding is never special."""
    return np.concatenate([a, np.broadcast_to(a[:1], (rows - len(a), *a.shape[1:]))])


def whole(number: int, unit: int) -> int:
    """Return the least multiple of a unit that is not below a number.

    >>> whole(7, 3), whole(6, 3)
    (9, 6)
    """
    return -(-number // unit) * unit


def chunk_rows(x: np.ndarray) -> int:
    """Return how many rows are evaluated at a time: about a million numbers."""
    features = max(1, int(np.prod(x.shape[1:])))
    return min(int(np.clip(2**20 // features, 64, 2**12)), -(-len(x) // 2))


def parameter_count(task: Task) -> int:
    """Return d, the number of parameters."""
    shapes = jax.eval_shape(lambda: task.init_params(jax.random.key(0)))
    return sum(int(leaf.size) for leaf in jax.tree.leaves(shapes))


def anybody(task: Task, rows: int, phases: int, dtype: Any) -> Resident:
    """Return the arrays of one client with so many rows that stands for any, for programs that look at no numbers."""
    x, y = (pad(cast(a[:1], dtype), rows) for a in (task.data.x, task.data.y))
    one = np.ones(1, np.int32)
    return Resident(Rows(x, y, 0 * one, rows * one), np.ones(1, dtype), np.ones((phases, 1), np.int32), 0 * one)
