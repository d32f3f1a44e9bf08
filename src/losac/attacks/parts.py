"""The parts of messages and uploads: whole models, changes of models, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from losac.trees import Tree


class ModelParts:
    """Messages and uploads are trees of parts, each of the structure and shapes of the model."""

    def __init__(self, model: Tree) -> None:
        self._structure: Any = jax.tree.structure(model)
        self._shapes = [np.shape(leaf) for leaf in jax.tree.leaves(model)]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(int(np.prod(shape)) for shape in self._shapes)

    def _is_part(self, tree: Tree) -> bool:
        return bool(
            self._structure == jax.tree.structure(tree)
            and [np.shape(leaf) for leaf in jax.tree.leaves(tree)] == self._shapes
        )

    def each(self, function: Callable[[Tree], Any], tree: Tree) -> Tree:
        """Replace every part."""
        return jax.tree.map(lambda t: function(t) if self._is_part(t) else t, tree, is_leaf=self._is_part)

    def list(self, tree: Tree) -> list[Tree]:
        """Return the parts."""
        return [t for t in jax.tree.leaves(tree, is_leaf=self._is_part) if self._is_part(t)]

    def flat(self, part: Tree) -> np.ndarray:
        """Return a part as one array, in double precision; there is only one zero."""
        return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(part)]) + 0.0

    def unflatten(self, flat: np.ndarray) -> Tree:
        """Return a part from its array."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        pieces = [piece.reshape(shape) for piece, shape in zip(np.split(flat, ends[:-1]), self._shapes)]
        return jax.tree.unflatten(self._structure, pieces)
