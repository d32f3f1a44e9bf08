"""Converts a client's arrays: NumPy's outside, the client's own kind inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from losac.trees import Tree, map_trees
from losac.trees import as_numpy as as_numpy


def border(tree: Tree, dtype: np.dtype[Any]) -> Tree:
    """Return NumPy arrays, all floating-point numbers in the model's dtype."""

    def cross(a: Any) -> np.ndarray:
        array = as_numpy(a)
        return array.astype(dtype, copy=False) if np.issubdtype(array.dtype, np.floating) else array

    return map_trees(cross, tree)


def dtype_of(tree: Tree) -> np.dtype[Any]:
    """Return the dtype of a model or message: that of its widest floating-point leaf."""
    found = [a.dtype for a in map(np.asarray, jax.tree.leaves(tree)) if np.issubdtype(a.dtype, np.floating)]
    if not found:
        raise ValueError("there are no floating-point numbers among the parameters: a model needs some")
    return np.result_type(*found)


class Entries:
    """A client's table during a walk: only entries that its steps touch are converted."""

    def __init__(self, table: Tree, load: Callable[[Any], Any]) -> None:
        self.table, self.load = table, load
        self.touched: dict[int, Tree] = {}

    def __getitem__(self, j: int) -> Tree:
        """Return y_j."""
        return self.touched[j] if j in self.touched else map_trees(lambda a: self.load(a[j]), self.table)

    def __setitem__(self, j: int, y: Tree) -> None:
        """Replace y_j."""
        self.touched[j] = y

    def renewed(self) -> Tree:
        """Return the table after the walk, a copy."""
        table = map_trees(np.array, self.table)
        for j, y in self.touched.items():
            map_trees(lambda a, v, j=j: a.__setitem__(j, as_numpy(v)), table, y)
        return table
