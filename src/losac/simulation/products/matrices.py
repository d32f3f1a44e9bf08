"""Matrices that are kept apart: known ones with coefficients, plus products aᵀb of a few rows each.

The gradient of a dense layer on a block of r rows is aᵀb, a [r, inputs] being what goes into the layer and
b [r, outputs] what comes back. Algorithms only add, subtract and scale gradients and models, so a local model is
some known matrices, which all clients share, plus such products; it need not be formed to be multiplied with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac.trees import Array, Tree, map_trees


class UnsupportedMatrixError(TypeError):
    """A matrix was used in another way than adding, subtracting and scaling."""


class Outer(NamedTuple):
    """The product aᵀb, with a [rows, inputs] and b [rows, outputs]."""

    a: Array
    b: Array


class Matrix:
    """Σ coefficient · known + Σ aᵀb, with the operators that algorithms use.

    Args:
      shape: of the whole; its first axes together are the inputs, the others the outputs.
      known: pairs of a coefficient and an array of that shape.
      outers: the products.
      lazy: whether it may stay apart after a local step.
      exact: whether products are formed in full precision even where the hardware prefers less: what is added up over
        many rounds, like LoSAC's φ, would otherwise drift away from the sum of what the clients keep.
    """

    __array_ufunc__ = None  # a NumPy array on the left leaves the operation to this class

    def __init__(
        self,
        shape: tuple[int, ...],
        known: tuple[tuple[Any, Array], ...],
        outers: tuple[Outer, ...],
        lazy: bool,
        exact: bool = False,
    ) -> None:
        self.shape, self.known, self.outers, self.lazy, self.exact = shape, known, outers, lazy, exact

    def __add__(self, other: Any) -> Matrix:
        if isinstance(other, int | float) and other == 0:
            return self
        if not isinstance(other, Matrix):
            if jnp.shape(other) != self.shape:
                raise UnsupportedMatrixError(
                    f"a matrix of shape {self.shape} plus something of shape {jnp.shape(other)}"
                )
            other = Matrix(self.shape, ((1.0, other),), (), self.lazy, self.exact)
        known = list(self.known)
        for coefficient, array in other.known:
            index = next((k for k, (_, mine) in enumerate(known) if mine is array), None)
            if index is None:
                known.append((coefficient, array))
            else:
                known[index] = (known[index][0] + coefficient, array)
        outers = list(self.outers)
        for a, b in other.outers:
            index = next((k for k, mine in enumerate(outers) if mine.a is a), None)
            if index is None:
                outers.append(Outer(a, b))
            else:
                outers[index] = Outer(a, outers[index].b + b)
        left = tuple(pair for pair in known if not (isinstance(pair[0], float) and pair[0] == 0))
        return Matrix(self.shape, left, tuple(outers), self.lazy and other.lazy, self.exact or other.exact)

    def __mul__(self, factor: Any) -> Matrix:
        if jnp.ndim(factor) != 0:
            raise UnsupportedMatrixError(f"a matrix of shape {self.shape} times something of shape {jnp.shape(factor)}")
        known = tuple((coefficient * factor, array) for coefficient, array in self.known)
        return Matrix(self.shape, known, tuple(Outer(a, b * factor) for a, b in self.outers), self.lazy, self.exact)

    def __neg__(self) -> Matrix:
        return self * -1.0

    def __sub__(self, other: Any) -> Matrix:
        return self + (-other)

    def __rsub__(self, other: Any) -> Matrix:
        return -self + other

    def __truediv__(self, factor: Any) -> Matrix:
        return self * (1.0 / factor)

    __radd__ = __add__
    __rmul__ = __mul__

    def rows(self) -> Outer:
        """Return all products as one, with their rows one below the other."""
        return Outer(*(jnp.concatenate(parts) for parts in zip(*self.outers)))

    def base(self) -> Array | None:
        """Return the sum of the known matrices; None if there is none."""
        total = None
        for coefficient, array in self.known:
            term = array if isinstance(coefficient, float) and coefficient == 1 else coefficient * array
            total = term if total is None else total + term
        return total

    def dense(self) -> Array:
        """Return the whole as one array."""
        total = self.base()
        if not self.outers:
            return total
        a, b = self.rows()
        product = multiply(a.T, b, self.exact).reshape(self.shape)
        return product if total is None else total + product


def formed(tree: Tree, *, all_of_them: bool) -> Tree:
    """Return a tree with its matrices formed; those that may stay apart only on request."""

    def form(leaf: Any) -> Any:
        return leaf.dense() if isinstance(leaf, Matrix) and (all_of_them or not leaf.lazy) else leaf

    return map_trees(form, tree)


@jax.tree_util.register_pytree_node_class
class Sum:
    """A matrix as it leaves a client: coefficients of the message's arrays at some places, and one product."""

    def __init__(
        self, shape: tuple[int, ...], indices: tuple[int, ...], exact: bool, weights: Array, outer: Outer
    ) -> None:
        self.shape, self.indices, self.exact, self.weights, self.outer = shape, indices, exact, weights, outer

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the arrays, and the rest."""
        return (self.weights, self.outer), (self.shape, self.indices, self.exact)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> Sum:
        """Put both together again."""
        return cls(*static, *arrays)


def shared(tree: Tree, shapes: frozenset[tuple[int, ...]]) -> Tree:
    """Return a message with its arrays of these shapes as matrices that may stay apart."""
    return map_trees(lambda a: Matrix(a.shape, ((1.0, a),), (), True) if jnp.shape(a) in shapes else a, tree)


def sent(tree: Tree, message: Tree) -> Tree:
    """Return an upload with its matrices as sums, over the arrays of the message it answers."""
    arrays = [leaf.known[0][1] if isinstance(leaf, Matrix) else leaf for leaf in jax.tree.leaves(message)]

    def take(leaf: Any) -> Any:
        if not isinstance(leaf, Matrix):
            return leaf
        indices = tuple(next((k for k, a in enumerate(arrays) if a is array), -1) for _, array in leaf.known)
        if -1 in indices or not leaf.outers:
            raise UnsupportedMatrixError("an upload contains an array that is neither a gradient nor in the message")
        outer = leaf.rows()
        weights = jnp.stack([jnp.asarray(c, outer.b.dtype) for c, _ in leaf.known]) if indices else jnp.zeros(0)
        return Sum(leaf.shape, indices, leaf.exact, weights, outer)

    return map_trees(take, tree)


def weighted_total(weight: Array, uploads: Tree, arrays: Sequence[Array]) -> Tree:
    """Return Σ weight · upload over a leading axis; ``arrays`` are those of the message."""

    def total(leaf: Any) -> Array:
        if not isinstance(leaf, Sum):
            return jnp.tensordot(weight.astype(leaf.dtype), leaf, 1)
        a, b = leaf.outer
        b = b * weight.astype(b.dtype)[:, None, None]
        found = multiply(a.reshape(-1, a.shape[-1]).T, b.reshape(-1, b.shape[-1]), leaf.exact)
        weights = weight.astype(b.dtype) @ leaf.weights
        return _with_known(found.reshape(leaf.shape), weights, leaf.indices, arrays)

    return map_trees(total, uploads, is_leaf=lambda leaf: isinstance(leaf, Sum))


def add_scaled(total: Tree, weight: Array, upload: Tree, arrays: Sequence[Array]) -> Tree:
    """Return total + weight · upload."""

    def add(leaf: Any, old: Array) -> Array:
        if not isinstance(leaf, Sum):
            return old + weight.astype(leaf.dtype) * leaf
        a, b = leaf.outer
        scale = weight.astype(b.dtype)
        found = old + multiply(a.T, b * scale, leaf.exact).reshape(leaf.shape)
        return _with_known(found, scale * leaf.weights, leaf.indices, arrays)

    return map_trees(add, upload, total, is_leaf=lambda leaf: isinstance(leaf, Sum))


def blank(upload: Tree) -> Tree:
    """Return zeros of the shapes that a sum of uploads has."""

    def zero(leaf: Any) -> Array:
        dtype = leaf.outer.b.dtype if isinstance(leaf, Sum) else leaf.dtype
        return jnp.zeros(leaf.shape, dtype)

    return map_trees(zero, upload, is_leaf=lambda leaf: isinstance(leaf, Sum))


def _with_known(total: Array, weights: Array, indices: tuple[int, ...], arrays: Sequence[Array]) -> Array:
    for k, index in enumerate(indices):
        total = total + weights[k] * arrays[index]
    return total


def multiply(a: Array, b: Array, exact: bool) -> Array:
    """Return a·b, in full precision if it must be."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST if exact else None)


def flat(array: Array, columns: int) -> Array:
    """Return an array as rows of this many columns."""
    return array.reshape(math.prod(array.shape) // columns, columns)


def rounded(tree: Tree, dtype: str, exact: Collection[Array] = ()) -> Tree:
    """Return gradients, or their factors, rounded to a table's dtype, except those listed as exact.

    There and back by ``astype`` is no rounding: XLA may leave both conversions out, as it does on GPUs, and what is
    kept would no longer be what was used.
    """
    kind = jnp.finfo(dtype)

    def one(a: Array) -> Array:
        if any(a is other for other in exact):
            return a
        normal = jax.lax.reduce_precision(a, kind.nexp, kind.nmant)
        if kind.tiny <= jnp.finfo(a.dtype).tiny:
            return normal
        finest = float(kind.smallest_subnormal)  # which reduce_precision takes for zero
        return jnp.where(jnp.abs(a) < kind.tiny, jnp.round(a / finest) * finest, normal)

    def each(leaf: Any) -> Any:
        if not isinstance(leaf, Matrix):
            return one(leaf)
        outers = tuple(Outer(one(a), one(b)) for a, b in leaf.outers)
        return Matrix(leaf.shape, leaf.known, outers, leaf.lazy, leaf.exact)

    return map_trees(each, tree)
