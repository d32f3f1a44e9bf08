"""The checks that server and clients apply to everything they receive, before it changes their state."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from losac.federation.book import RefusedError
from losac.trees import Tree

MOST = 2.0**53
"""The largest count that is believed: beyond it, one more makes no difference to a float."""


def check_arrays(found: Tree, due: Tree) -> None:
    """Refuse arrays with unexpected names, shapes or dtypes, and numbers that are not finite."""
    structure: Any = jax.tree.structure(found)
    if structure != jax.tree.structure(due):
        raise RefusedError(f"it holds {structure} where {jax.tree.structure(due)} is expected")
    for (path, a), like in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(due)):
        name = jax.tree_util.keystr(path) or "the array"
        if np.shape(a) != np.shape(like):
            raise RefusedError(f"{name} has the shape {np.shape(a)} where {np.shape(like)} is expected")
        if np.asarray(a).dtype != like.dtype:
            raise RefusedError(f"{name} has the dtype {np.asarray(a).dtype} where {like.dtype} is expected")
        if np.issubdtype(like.dtype, np.floating) and not np.isfinite(a).all():
            raise RefusedError(f"{name} contains NaN or infinity")


def check_norm(upload: Tree, largest: float | None) -> float:
    """Return an upload's norm; refuse one that is too large, in any case where its square is not a number any more."""
    norm = norm_of(upload)
    if not np.isfinite(norm):
        raise RefusedError("what it decodes to contains NaN or infinity")
    squares = [np.sqrt(np.finfo(a.dtype).max) for a in _floating(upload)]
    most = min([*squares, np.inf if largest is None else largest])
    if norm > most:
        raise RefusedError(f"its norm is {norm:.3g}, and {most:.3g} is the most allowed")
    return norm


def check_cost(gradients: float) -> None:
    """Refuse a number of gradients that cannot be a count."""
    if not 0 <= gradients <= MOST:
        raise RefusedError(f"it reports {gradients} computed gradients")


def norm_of(tree: Tree) -> float:
    """Return the norm of a tree's floating-point arrays together."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum((np.asarray(a, np.float64) ** 2).sum() for a in _floating(tree))))


def _floating(tree: Tree) -> list[np.ndarray]:
    return [a for a in map(np.asarray, jax.tree.leaves(tree)) if np.issubdtype(a.dtype, np.floating)]
