"""The parts of an upload: what is clipped, protected or weighed on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from losac.trees import Array, Tree

WHOLE = "upload"
"""The name of the only part of an upload that is not a named tuple."""


def parts(upload: Tree) -> dict[str, Tree]:
    """Return the parts of an upload by name: the fields that hold arrays, or the whole.

    >>> import numpy as np
    >>> from losac.algorithms.losac import Pair
    >>> list(parts(Pair(np.zeros(2), np.zeros(2)))), list(parts({"w": np.zeros(2), "b": np.zeros(1)}))
    (['x', 'phi'], ['upload'])
    """
    if not hasattr(upload, "_fields"):
        return {WHOLE: upload}
    return {name: part for name, part in zip(upload._fields, upload) if jax.tree.leaves(part)}


def replaced(upload: Tree, changed: dict[str, Tree]) -> Tree:
    """Return an upload with some of its parts replaced."""
    return upload._replace(**changed) if hasattr(upload, "_fields") else changed.get(WHOLE, upload)


def as_rows(part: Tree) -> tuple[Array, Callable[[Array], Tree]]:
    """Return a part of many uploads as rows [n, d], and the function that makes a part of such rows again.

    Rows [n, 1] become one number for each upload, in the shapes that multiply its arrays.
    """
    leaves, structure = jax.tree.flatten(map_arrays(part))
    number = leaves[0].shape[0]
    dtype = jnp.result_type(*leaves)
    rows = jnp.concatenate([leaf.reshape(number, -1).astype(dtype) for leaf in leaves], axis=1)

    def back(rows: Array) -> Tree:
        found, begin = [], 0
        for leaf in leaves:
            size = leaf.size // number
            if rows.shape[1] == 1:
                found.append(rows.reshape(number, *[1] * (leaf.ndim - 1)).astype(leaf.dtype))
            else:
                found.append(rows[:, begin : begin + size].reshape(leaf.shape).astype(leaf.dtype))
            begin += size
        return jax.tree.unflatten(structure, found)

    return rows, back


def map_arrays(tree: Any) -> Any:
    """Return a tree with its leaves as JAX arrays."""
    return jax.tree.map(jnp.asarray, tree)
