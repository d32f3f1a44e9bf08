"""The arrays of a task as the program needs them: in the run's dtype, padded, in chunks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from losac.simulation.program.client import Resident
from losac.simulation.program.drawing import Rows
from losac.task import Task
from losac.trees import Tree, map_trees


def cast(a: Any, dtype: Any) -> np.ndarray:
    """Return an array in the run's dtype, whole numbers in 32 bits; refuse numbers that are too large for that."""
    a = np.asarray(a)
    if np.issubdtype(a.dtype, np.floating):
        with np.errstate(over="ignore"):
            narrow = a.astype(dtype)
        if narrow.dtype.itemsize < a.dtype.itemsize:
            _refuse(a, np.isfinite(a) & ~np.isfinite(narrow), f"{narrow.dtype}: scale the data, or use dtype='float64'")
        return narrow
    if not np.issubdtype(a.dtype, np.integer) or a.dtype.itemsize < 8:
        return a
    small = a.astype(np.int32)
    _refuse(a, small != a, "int32, the type of whole numbers here: recode them, or give them as floats")
    return small


def frozen_weights(task: Task, dtype: Any) -> Tree:
    """Return the task's frozen weights in the run's dtype; floating-point numbers of 16 bits and fewer stay so.

    Arrays that are on the device already are not copied.
    """

    def fit(a: Any) -> Any:
        floats = jax.numpy.issubdtype(a.dtype, np.floating)
        fits = a.dtype == dtype or a.dtype.itemsize <= 2 if floats else a.dtype.itemsize < 8
        return a if fits else cast(a, dtype)

    return () if task.frozen is None else map_trees(fit, task.frozen)


def _refuse(a: np.ndarray, lost: np.ndarray, kind: str) -> None:
    """Refuse numbers that a conversion would lose."""
    if lost.any():
        raise ValueError(f"{a[lost][0]} is too large for {kind}")


def pad(a: np.ndarray, rows: int) -> np.ndarray:
    """Extend by copies of the first row: no slice runs over the end, and padding needs no special case."""
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


def anybody(task: Task, rows: int, phases: int, dtype: Any) -> Resident:
    """Return the arrays of an example client with this many rows, for programs that only need shapes."""
    x, y = (pad(cast(a[:1], dtype), rows) for a in (task.data.x, task.data.y))
    one = np.ones(1, np.int32)
    steps = np.ones((phases, 1), np.int32)
    rows_of_one = Rows(x, y, 0 * one, rows * one)
    return Resident(rows_of_one, np.ones(1, dtype), steps, 0 * one, frozen_weights(task, dtype))
