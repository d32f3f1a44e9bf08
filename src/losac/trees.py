"""Arithmetic on pytrees, by operators only: the leaves may be JAX, NumPy or PyTorch arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree, Shaped

Tree = Any
"""A pytree of arrays."""

Array = Any
"""A JAX array, or a NumPy one on its way to the device."""

Scalar = Any
"""A Python number, or an array without dimensions, which may be traced."""

OfClients = PyTree[Shaped[Array, "clients ..."]]
"""A pytree of arrays with one row for each of the N clients."""

OfBlocks = PyTree[Shaped[Array, "blocks ..."]]
"""A pytree of arrays with one row for each of a client's M blocks: its table, or () if it has none."""

map_trees = jax.tree.map


def add(a: Tree, b: Tree) -> Tree:
    """Return a + b."""
    return map_trees(lambda u, v: u + v, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """Return a − b."""
    return map_trees(lambda u, v: u - v, a, b)


def scale(s: Scalar, a: Tree) -> Tree:
    """Return s · a."""
    return map_trees(lambda u: s * u, a)


def axpy(s: Scalar, a: Tree, b: Tree) -> Tree:
    """Return s · a + b."""
    return map_trees(lambda u, v: s * u + v, a, b)


def zeros(a: Tree) -> Tree:
    """Return zeros of a's structure, shapes and dtypes."""
    return map_trees(lambda u: u * 0, a)


def squared_norm(a: Tree) -> Scalar:
    """Return the sum of the squares of all entries."""
    return sum((u * u).sum() for u in jax.tree.leaves(a))


def as_numpy(array: Any) -> Any:
    """Return an array of any kind, or a tensor, as a NumPy array."""
    return array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)


def nbytes(a: Tree) -> int:
    """Return the bytes that a message takes, from the shapes and dtypes of its leaves."""
    return sum(int(u.size) * u.dtype.itemsize for u in jax.tree.leaves(a))


def check_params(params: Tree) -> None:
    """Refuse parameters that are no pytree of finite floating-point arrays; the error names the leaf."""
    try:
        leaves = jax.tree_util.tree_leaves_with_path(params)
    except (TypeError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(f"params is no pytree of arrays ({first}); give dictionaries texts as keys") from error
    if not leaves:
        raise ValueError("params holds no arrays; give the initial parameters, or a function init(key) -> params")
    for path, leaf in leaves:
        name, array = jax.tree_util.keystr(path) or "x", np.asarray(leaf)
        if array.dtype.name in ("bfloat16", "float16"):
            raise ValueError(
                f"parameter {name} has dtype {array.dtype}, and a run computes in float32 or float64; give one of these"
            )
        if array.dtype.kind != "f":
            raise ValueError(f"parameter {name} has dtype {array.dtype}; parameters must be floating-point numbers")
        if not np.isfinite(array).all():
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "x"
            raise ValueError(
                f"initial parameter {name} holds {array[~np.isfinite(array)].flat[0]}: give finite numbers"
            )
