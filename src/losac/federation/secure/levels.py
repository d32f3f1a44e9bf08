"""Uploads in whole numbers: what is masked, what a client holds, and what the server's sum is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from losac.algorithms.contract import Algorithm
from losac.algorithms.fixed_point import is_fixed
from losac.federation.errors import RefusedError
from losac.trees import Tree

Levels = list[np.ndarray]
"""Numbers of steps, int64, leaf by leaf."""


def levels_of(payload: Tree) -> Levels:
    """Return an upload in fixed point as whole numbers; refuse one with NaN, or one that is not in fixed point."""
    leaves = jax.tree.leaves(payload, is_leaf=is_fixed)
    if not all(is_fixed(leaf) for leaf in leaves):
        raise RefusedError("the upload is not in fixed point: let fixed_point be the last of the uploads' transforms")
    if any(leaf.has_nan() for leaf in leaves):
        raise RefusedError("its own work led to NaN, which would spoil the sum of all")
    return [leaf.levels() for leaf in leaves]


def as_uint64(levels: Levels) -> list[np.ndarray]:
    """Return whole numbers modulo 2⁶⁴."""
    return [np.array(level, order="C").view(np.uint64) for level in levels]


def as_int64(arrays: Sequence[np.ndarray]) -> Levels:
    """Return numbers modulo 2⁶⁴ as those nearest to zero."""
    return [np.array(array, order="C").view(np.int64) for array in arrays]


def values_of(payload: Tree, levels: Levels) -> Tree:
    """Return the numbers that levels stand for, in the structure of an upload before it was encoded."""
    leaves, structure = jax.tree.flatten(payload, is_leaf=is_fixed)
    values = [np.asarray(level * leaf.step, leaf.dtype) for leaf, level in zip(leaves, levels)]
    return jax.tree.unflatten(structure, values)


class Credited(NamedTuple):
    """Which leaf of an upload a leaf of its credit is, and times what."""

    leaf: int
    factor: float
    step: float


class _Traced:
    """Stands for an array while an algorithm says what it credits."""

    __array_ufunc__ = None

    def __init__(self, leaf: int, factor: float) -> None:
        self.leaf, self.factor = leaf, factor

    def __mul__(self, other: Any) -> _Traced:
        return _Traced(self.leaf, self.factor * float(other))

    __rmul__ = __mul__


def credited(algorithm: Algorithm, payload: Tree) -> list[Credited]:
    """Return what an algorithm credits of an upload: some of its arrays, each times a number."""
    leaves, structure = jax.tree.flatten(payload, is_leaf=is_fixed)
    marks = jax.tree.unflatten(structure, [_Traced(k, 1.0) for k in range(len(leaves))])
    found = jax.tree.leaves(algorithm.credit(marks))
    return [Credited(mark.leaf, mark.factor, leaves[mark.leaf].step) for mark in found]


def credit_of(parts: Sequence[Credited], levels: Levels) -> Levels:
    """Return the levels of an upload that are credited."""
    return [levels[part.leaf] for part in parts]


def credit_values(parts: Sequence[Credited], levels: Levels, like: Tree) -> Tree:
    """Return the credit that levels stand for, in the structure and dtype of a credit."""
    leaves, structure = jax.tree.flatten(like)
    values = [
        np.asarray(level * part.step * part.factor, leaf.dtype) for part, level, leaf in zip(parts, levels, leaves)
    ]
    return jax.tree.unflatten(structure, values)
