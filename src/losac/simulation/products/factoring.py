"""Which gradients are kept as products aᵀb: those of dense layers, if the factors are smaller than the matrix.

LoSAC's table then holds b, and a unless it is the data itself: for a linear model that is one residual per row and
output. With few rows the local models stay apart as well, as the server's arrays plus a few products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac.simulation.products.layers import FactoredLayer, Traced
from losac.simulation.products.matrices import Matrix, Outer, UnsupportedMatrixError
from losac.trees import Tree

MOST_STEPS = 16
"""Up to this many local steps are unrolled, which models that stay apart need."""
STAYS_APART = 1.5
"""How large the factors of a local model may become, as a multiple of the matrix, before forming it is cheaper."""


class Factoring(NamedTuple):
    """The layers among the parameters, in the order of their leaves, with the leaves' shapes and structure."""

    layers: tuple[FactoredLayer | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    structure: Any

    @property
    def lazy_shapes(self) -> frozenset[tuple[int, ...]]:
        """The shapes of the parameters with local models that stay apart."""
        return frozenset(shape for shape, layer in zip(self.shapes, self.layers) if layer is not None and layer.lazy)

    def params(self) -> Tree:
        """Return the parameters' shapes."""
        leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(self.shapes, self.dtypes)]
        return jax.tree.unflatten(self.structure, leaves)

    def blank(self, entry: Tree, dtype: str | None) -> Tree:
        """Return an entry of the table at the start, where all gradients are zero; ``entry`` has them formed."""
        found: list[Any] = []
        for leaf, layer in zip(jax.tree.leaves(entry), self.layers):
            kind = leaf.dtype if dtype is None else dtype
            if layer is None:
                found.append(leaf.astype(kind))
                continue
            b = jnp.zeros((layer.rows, layer.outputs), kind)
            found.append((b,) if layer.data else (jnp.zeros((layer.rows, layer.inputs), kind), b))
        return tuple(found)

    def unpack(self, entry: Tree, traced: Traced) -> Tree:
        """Return the gradient that an entry stands for."""
        found: list[Any] = []
        for k, (kept, layer) in enumerate(zip(entry, self.layers)):
            if layer is None:
                found.append(kept.astype(self.dtypes[k]))
                continue
            factors = [a.astype(self.dtypes[k]) for a in kept]
            outer = Outer(traced.inputs[k], factors[0]) if layer.data else Outer(*factors)
            found.append(Matrix(self.shapes[k], (), (outer,), layer.lazy, layer.exact))
        return jax.tree.unflatten(self.structure, found)

    def pack(self, y: Tree, gradient: Tree) -> Tree:
        """Return the entry of a gradient; only the gradient itself can be one, since only it is a product."""
        found: list[Any] = []
        for new, g, layer in zip(jax.tree.leaves(y), jax.tree.leaves(gradient), self.layers):
            if layer is None:
                found.append(new)
                continue
            if new is not g:
                raise UnsupportedMatrixError("the table's new entry is not the gradient")
            found.append((g.outers[0].b,) if layer.data else tuple(g.outers[0]))
        return tuple(found)


def choose(
    found: Sequence[FactoredLayer | None], *, table: bool, steps: int | None, lazy: bool, every: bool
) -> tuple[FactoredLayer | None, ...]:
    """Return which layers are kept as products, and which of them lazily.

    Args:
      found: the layers of the loss.
      table: whether the method keeps a table.
      steps: local steps; None if they are not fixed.
      lazy: whether local models may stay apart.
      every: every layer, even if it does not pay.
    """

    def one(layer: FactoredLayer | None) -> FactoredLayer | None:
        if layer is None:
            return None
        size = layer.inputs * layer.outputs
        rank = (steps or 0) * layer.rows * (2 if table and not layer.data else 1)
        apart = lazy and steps is not None and 0 < steps <= MOST_STEPS
        apart = apart and (every or rank * (layer.inputs + layer.outputs) <= STAYS_APART * size)
        stored = table and (every or layer.numbers < size)
        if table:
            return layer._replace(lazy=apart, exact=True) if stored else None
        return layer._replace(lazy=True) if apart else None

    return tuple(one(layer) for layer in found)
