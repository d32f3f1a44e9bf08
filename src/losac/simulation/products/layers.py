"""Finds the dense layers of a loss, and differentiates it with their gradients as products aᵀb.

A dense layer is a parameter that the loss uses once, as the second factor of a matrix product over its first axes.
The loss is traced and replayed with a term added to the result of each such product: the derivative by that term is
b, and the product's first factor is a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from losac._compat import evaluate
from losac.simulation.products.matrices import Matrix, Outer, flat
from losac.trees import Array, Tree

Loss = Callable[[Tree], tuple[Array, Tree]]
"""Parameters → the value to differentiate, and auxiliary output."""
_CALLS = ("pjit", "jit", "closed_call")


class FactoredLayer(NamedTuple):
    """A dense layer: the number of rows that go through it, inputs, outputs, the outcome's shape and dtype.

    ``data`` says that its inputs do not depend on any parameter; ``lazy`` that the local model's may stay apart;
    ``exact`` that its gradients are remembered, and so must be added up in full precision.
    """

    rows: int
    inputs: int
    outputs: int
    shape: tuple[int, ...]
    data: bool
    lazy: bool = False
    exact: bool = False

    @property
    def numbers(self) -> int:
        """How many numbers the factors take that must be kept; the inputs of the first layer are the data."""
        return self.rows * (self.outputs + (0 if self.data else self.inputs))


def find_layers(loss: Loss, params: Tree) -> list[FactoredLayer | None]:
    """Return the dense layer of every parameter; None for a parameter that is not one."""
    closed = jax.make_jaxpr(loss)(params)
    variables = closed.jaxpr.invars
    uses: dict[int, list[FactoredLayer | None]] = {k: [] for k in range(len(variables))}
    _look(closed.jaxpr, dict(zip(variables, range(len(variables)))), set(variables), uses)
    return [found[0] if len(found) == 1 else None for found in uses.values()]


def _look(
    jaxpr: Jaxpr, params: Mapping[Any, int], moved: set[Any], uses: dict[int, list[FactoredLayer | None]]
) -> None:
    """Note the uses of every parameter; ``moved`` are the variables that depend on one."""
    for eqn in jaxpr.eqns:
        given = [v for v in eqn.invars if not isinstance(v, Literal)]
        hits = [v for v in given if v in params]
        inner = _inner(eqn)
        if inner is not None:
            pairs = [(v, w) for v, w in zip(eqn.invars, inner.jaxpr.invars) if not isinstance(v, Literal)]
            deep = {w: params[v] for v, w in pairs if v in params}
            _look(inner.jaxpr, deep, {w for v, w in pairs if v in moved}, uses)
        else:
            for v in hits:
                uses[params[v]].append(_layer(eqn, v, moved))
        if any(v in moved for v in given):
            moved |= set(eqn.outvars)
    for out in jaxpr.outvars:
        if not isinstance(out, Literal) and out in params:
            uses[params[out]].append(None)


def _inner(eqn: JaxprEqn) -> ClosedJaxpr | None:
    return eqn.params["jaxpr"] if eqn.primitive.name in _CALLS else None


def _layer(eqn: Any, variable: Any, moved: set[Any]) -> FactoredLayer | None:
    """Return the layer that an equation is, seen from one of its variables."""
    if eqn.primitive.name != "dot_general" or eqn.invars[1] is not variable or eqn.invars[0] is variable:
        return None
    (left, right), batch = eqn.params["dimension_numbers"]
    first: Any = eqn.invars[0]
    shape, depth = variable.aval.shape, first.aval.ndim
    over = len(right)
    if any(batch) or tuple(right) != tuple(range(over)) or tuple(left) != tuple(range(depth - over, depth)):
        return None
    inputs, outputs = math.prod(shape[:over]), math.prod(shape[over:])
    out: Any = eqn.outvars[0].aval
    data = isinstance(first, Literal) or first not in moved
    return FactoredLayer(math.prod(out.shape) // outputs, inputs, outputs, tuple(out.shape), data)


class Traced(NamedTuple):
    """A loss as equations, with the data-only inputs of its layers."""

    closed: ClosedJaxpr
    structure: Any
    inputs: dict[int, Array]


def trace(loss: Loss, params: Tree, layers: Sequence[FactoredLayer | None]) -> Traced:
    """Trace a loss; ``params`` only provide shapes."""
    closed, shape = jax.make_jaxpr(loss, return_shape=True)(params)
    found: dict[int, Array] = {}
    variables = closed.jaxpr.invars
    weights = {v: k for k, v in enumerate(variables) if layers[k] is not None}
    _replay(closed.jaxpr, closed.consts, [None] * len(variables), weights, {}, found)
    inputs = {k: flat(a, _known(layers[k]).inputs) for k, a in found.items() if _known(layers[k]).data}
    return Traced(closed, jax.tree.structure(shape), inputs)


def gradient(traced: Traced, params: Tree, layers: Sequence[FactoredLayer | None]) -> tuple[Tree, Tree]:
    """Return the gradient, with layers as products, and the loss's auxiliary output."""
    leaves, tree = jax.tree.flatten(params)
    closed = traced.closed
    weights = {v: k for k, v in enumerate(closed.jaxpr.invars) if layers[k] is not None}
    plain = {k: leaf for k, leaf in enumerate(leaves) if layers[k] is None}
    dtype = closed.out_avals[0].dtype
    taps = {k: jnp.zeros(layer.shape, dtype) for k, layer in enumerate(layers) if layer is not None}

    def value(taps: dict[int, Array], plain: dict[int, Array]) -> tuple[Array, Any]:
        found: dict[int, Array] = {}
        args = [plain.get(k, leaf) for k, leaf in enumerate(leaves)]
        total, *along = _replay(closed.jaxpr, closed.consts, args, weights, taps, found)
        return total, (jax.tree.unflatten(traced.structure, [total, *along])[1], found)

    (b, others), (along, a) = jax.grad(value, argnums=(0, 1), has_aux=True)(taps, plain)
    found = []
    for k, (leaf, layer) in enumerate(zip(leaves, layers)):
        if layer is None:
            found.append(others[k])
            continue
        inputs = traced.inputs[k] if layer.data else flat(a[k], layer.inputs)
        found.append(Matrix(leaf.shape, (), (Outer(inputs, flat(b[k], layer.outputs)),), layer.lazy, layer.exact))
    return jax.tree.unflatten(tree, found), along


def _known(layer: FactoredLayer | None) -> FactoredLayer:
    assert layer is not None
    return layer


def _replay(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    args: Sequence[Any],
    weights: Mapping[Any, int],
    taps: Mapping[int, Array],
    found: dict[int, Array],
) -> list[Any]:
    """Evaluate equations, adding the taps to the layers' outcomes and noting their inputs.

    If an argument is None, so is all that depends on it.
    """
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, Literal) else values[v]

    for eqn in jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        hits = {k: weights[v] for k, v in enumerate(eqn.invars) if not isinstance(v, Literal) and v in weights}
        inner = _inner(eqn)
        if hits and inner is not None:
            deep = {inner.jaxpr.invars[k]: index for k, index in hits.items()}
            outcome = _replay(inner.jaxpr, inner.consts, given, deep, taps, found)
        elif hits:
            index = hits[1]
            if given[0] is not None:
                found[index] = given[0]
            outcome = [
                _product(eqn, given[0], given[1], taps[index]) if index in taps and given[0] is not None else None
            ]
        elif any(value is None for value in given):
            outcome = [None] * len(eqn.outvars)
        else:
            outcome = evaluate(eqn, given)
        values.update(zip(eqn.outvars, outcome))
    return [read(v) for v in jaxpr.outvars]


def _product(eqn: JaxprEqn, left: Array, weight: Any, tap: Array) -> Array:
    """Return left · weight + tap, where the weight may be a matrix that is kept apart."""
    if not isinstance(weight, Matrix):
        return eqn.primitive.bind(left, weight, **eqn.params) + tap
    base, precision = weight.base(), eqn.params["precision"]
    total = tap if base is None else eqn.primitive.bind(left, base, **eqn.params) + tap
    if not weight.outers:
        return total
    a, b = weight.rows()
    inner = jnp.matmul(flat(left, a.shape[1]), a.T, precision=precision)
    return total + jnp.matmul(inner, b, precision=precision).reshape(total.shape)
