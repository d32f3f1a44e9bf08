"""Arithmetic on pytrees, by operators only, so that the leaves may be JAX, NumPy or PyTorch arrays."""

from __future__ import annotations

from typing import Any

import jax

Tree = Any
"""A pytree of arrays."""

Array = Any
"""A JAX array, or a NumPy one on its way to the device."""

map_trees = jax.tree.map


def add(a: Tree, b: Tree) -> Tree:
    """Return a + b."""
    return map_trees(lambda u, v: u + v, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """Return a − b."""
    return map_trees(lambda u, v: u - v, a, b)


def scale(s: Any, a: Tree) -> Tree:
    """Return s · a."""
    return map_trees(lambda u: s * u, a)


def axpy(s: Any, a: Tree, b: Tree) -> Tree:
    """Return s · a + b."""
    return map_trees(lambda u, v: s * u + v, a, b)


def zeros(a: Tree) -> Tree:
    """Return zeros of a's structure, shapes and dtypes."""
    return map_trees(lambda u: u * 0, a)


def squared_norm(a: Tree) -> Any:
    """Return the sum of the squares of all entries."""
    return sum((u * u).sum() for u in jax.tree.leaves(a))


def nbytes(a: Tree) -> int:
    """Return the bytes that a message takes, from the shapes and dtypes of its leaves."""
    return sum(int(u.size) * u.dtype.itemsize for u in jax.tree.leaves(a))
