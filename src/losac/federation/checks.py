"""What the server makes sure of before an upload may change anything."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from losac.federation.book import RefusedError
from losac.trees import Tree


def check_arrays(found: Tree, due: Tree) -> None:
    """Refuse arrays of other names, shapes or dtypes than those due, and numbers that are not finite."""
    structure: Any = jax.tree.structure(found)
    if structure != jax.tree.structure(due):
        raise RefusedError(f"it holds {structure} where {jax.tree.structure(due)} is due")
    for (path, a), like in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(due)):
        name = jax.tree_util.keystr(path) or "the array"
        if np.shape(a) != np.shape(like):
            raise RefusedError(f"{name} has the shape {np.shape(a)} where {np.shape(like)} is due")
        if np.asarray(a).dtype != like.dtype:
            raise RefusedError(f"{name} has the dtype {np.asarray(a).dtype} where {like.dtype} is due")
        if np.issubdtype(like.dtype, np.floating) and not np.isfinite(a).all():
            raise RefusedError(f"{name} contains NaN or infinity")


def check_norm(upload: Tree, largest: float | None) -> None:
    """Refuse an upload that is too large."""
    leaves = [np.asarray(a, np.float64) for a in jax.tree.leaves(upload) if np.issubdtype(a.dtype, np.floating)]
    norm = float(np.sqrt(sum((a * a).sum() for a in leaves)))
    if not np.isfinite(norm):
        raise RefusedError("what it decodes to contains NaN or infinity")
    if largest is not None and norm > largest:
        raise RefusedError(f"its norm is {norm:.3g}, and {largest:.3g} is the most allowed")
