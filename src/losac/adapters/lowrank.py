"""Matrices W + BA that are never formed: a function is traced, and its products with them go through the factors.

Forming W + BA would take a copy of the matrix, and its gradient another, for every client. A product with it costs two
thin ones besides that with W, which all clients share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from losac._compat import evaluate
from losac.trees import Array, Tree

_CALLS = ("pjit", "jit", "closed_call")


class LowRank(NamedTuple):
    """The matrix ``base + left @ right``, with thin factors [n, r] and [r, m]."""

    base: Array
    left: Array
    right: Array

    def formed(self) -> Array:
        """Return the matrix."""
        return self.base + (self.left @ self.right).astype(self.base.dtype)

    @property
    def transposed(self) -> LowRank:
        """The transposed matrix."""
        return LowRank(self.base.T, self.right.T, self.left.T)


def call(function: Callable[[Tree], Tree], params: Tree) -> Tree:
    """Return ``function(params)`` where some leaves of the parameters are :class:`LowRank`.

    Matrix products use the factors; any other use of such a leaf forms it.

    >>> import jax.numpy as jnp
    >>> W, B, A = jnp.ones((3, 2)), jnp.ones((3, 1)), jnp.ones((1, 2))
    >>> call(lambda params: jnp.ones(3) @ params, LowRank(W, B, A))
    Array([6., 6.], dtype=float32)
    """
    leaves, structure = jax.tree.flatten(params, is_leaf=_is_low_rank)
    kinds = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (_base(leaf) for leaf in leaves)]
    closed, shape = jax.make_jaxpr(function, return_shape=True)(jax.tree.unflatten(structure, kinds))
    found = _replay(closed.jaxpr, closed.consts, leaves)
    return jax.tree.unflatten(jax.tree.structure(shape), found)


def _is_low_rank(value: Any) -> bool:
    return isinstance(value, LowRank)


def _base(leaf: Any) -> Any:
    return leaf.base if isinstance(leaf, LowRank) else leaf


def _replay(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Array]:
    """Evaluate equations, with low-rank matrices kept apart for as long as that is possible."""
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))
    for eqn in jaxpr.eqns:
        given = [v.val if isinstance(v, Literal) else values[v] for v in eqn.invars]
        values.update(zip(eqn.outvars, _outcome(eqn, given)))
    outcome = [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]
    return [_formed(value) for value in outcome]


def _outcome(eqn: JaxprEqn, given: list[Any]) -> list[Any]:
    """Return the outcome of an equation."""
    apart = [isinstance(value, LowRank) for value in given]
    name = eqn.primitive.name
    if any(apart) and name in _CALLS:
        inner = eqn.params["jaxpr"]
        return _replay(inner.jaxpr, inner.consts, given)
    if apart == [True] and name == "transpose":
        return [given[0].transposed] if tuple(eqn.params["permutation"]) == (1, 0) else [given[0]]
    if apart == [True] and name == "convert_element_type":
        return [LowRank(*(a.astype(eqn.params["new_dtype"]) for a in given[0]))]
    if name == "dot_general" and sum(apart) == 1:
        product = _product(eqn, given, apart.index(True))
        if product is not None:
            return [product]
    return evaluate(eqn, [_formed(value) for value in given])


def _formed(value: Any) -> Any:
    return value.formed() if isinstance(value, LowRank) else value


def _product(eqn: JaxprEqn, given: list[Any], side: int) -> Array | None:
    """Return a product with one low-rank factor; None if it is no plain product over one axis of it."""
    contracted, batch = eqn.params["dimension_numbers"]
    if any(batch) or len(contracted[side]) != 1:
        return None
    matrix, other = given[side], given[1 - side]
    matrix = matrix if tuple(contracted[side]) == (0,) else matrix.transposed  # now over its first axis
    axis, precision = contracted[1 - side], eqn.params["precision"]

    def dot(a: Array, over_a: Any, b: Array, over_b: Any) -> Array:
        return jax.lax.dot_general(a, b, ((over_a, over_b), ((), ())), precision=precision)

    if side == 1:
        thin = dot(other, axis, matrix.left, (0,))
        low = dot(thin, (thin.ndim - 1,), matrix.right, (0,))
    else:
        low = dot(matrix.right, (0,), dot(matrix.left, (0,), other, axis), (0,))
    base = [matrix.base, other] if side == 0 else [other, matrix.base]
    over = ((0,), axis) if side == 0 else (axis, (0,))
    plain = eqn.primitive.bind(*base, **eqn.params | {"dimension_numbers": (over, ((), ()))})
    return plain + low.astype(plain.dtype)
