"""Arrays on their way over a client's border: outside they are NumPy's, inside of the client's own kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from losac.trees import Tree, map_trees


def as_numpy(array: Any) -> Any:
    """Return an array of any kind as a NumPy one."""
    return array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)


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
    """A client's table while it works: only entries that its steps touch change their kind."""

    def __init__(self, table: Tree, load: Callable[[Any], Any]) -> None:
        self.table, self.load = table, load
        self.touched: dict[int, Tree] = {}

    def entry(self, j: int) -> Tree:
        """Return y_j."""
        return self.touched[j] if j in self.touched else map_trees(lambda a: self.load(a[j]), self.table)

    def renewed(self) -> Tree:
        """Return the table after the steps, a copy."""
        table = map_trees(np.array, self.table)
        for j, y in self.touched.items():
            put_entry(table, j, y)
        return table


def put_entry(table: Tree, j: int, y: Tree) -> None:
    """Put y_j in its place."""
    map_trees(lambda a, v: a.__setitem__(j, as_numpy(v)), table, y)
