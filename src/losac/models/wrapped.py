"""Models around models: pictures changed at random in training, and numbers of half the precision inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from losac import _random
from losac._checks import check_choice, check_count, check_flag
from losac.models.trained import Trained
from losac.trees import Tree, map_trees

Precision = Literal["bfloat16", "float16"]


def augmented(model: Any, shape: tuple[int, int, int], *, flip: bool = True, crop: int = 4) -> Trained:
    """Return a model that trains on pictures mirrored and shifted at random; predictions see them as they are.

    The changes are drawn in the compiled step, from the seed, anew in every local step.

    Args:
      model: for pictures.
      shape: (height, width, channels) of a picture; flat rows are brought to it.
      flip: whether half of the pictures are mirrored.
      crop: how many pixels a picture is shifted in each direction, at most; zeros come in.
    """
    check_flag("flip", flip)
    check_count("crop", crop, 0)

    def changed(x: Array, key: Array) -> Array:
        pictures = x.reshape(x.shape[0], *shape)
        return jax.vmap(lambda one, k: _changed(one, k, flip, crop))(
            pictures, _random.row_keys(key, x.shape[0])
        ).reshape(x.shape)

    def train(params: Tree, state: Tree, x: Array, key: Array, *frozen: Tree) -> tuple[Array, Tree]:
        x = changed(x, key)
        return model.train(params, state, x, key, *frozen) if isinstance(model, Trained) else (model(params, x), state)

    def predict(params: Tree, state: Tree, x: Array, *frozen: Tree) -> Array:
        return model.predict(params, state, x, *frozen) if isinstance(model, Trained) else model(params, x)

    return Trained(model.init, predict, train, getattr(model, "state", None), getattr(model, "frozen", None))


def _changed(picture: Array, key: Array, flip: bool, crop: int) -> Array:
    """Return one picture, perhaps mirrored, and shifted."""
    mirrored, down, right = jax.random.uniform(key, (3,))
    if flip:
        picture = jnp.where(mirrored < 0.5, picture[:, ::-1], picture)
    if not crop:
        return picture
    padded = jnp.pad(picture, ((crop, crop), (crop, crop), (0, 0)))
    start = [jnp.floor(share * (2 * crop + 1)).astype(jnp.int32) for share in (down, right)]
    return jax.lax.dynamic_slice(padded, (*start, 0), picture.shape)


@dataclass(frozen=True)
class Mixed:
    """A model that computes with numbers of 16 bits; parameters, gradients and outputs keep their precision.

    The loss is computed from outputs of full precision. ``bfloat16`` has the range of ``float32``, so that no loss
    needs to be scaled.
    """

    model: Any
    precision: Precision = "bfloat16"

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, get_args(Precision))

    def init(self, key: Array) -> Tree:
        """Draw the initial parameters, in full precision."""
        return self.model.init(key)

    def __call__(self, params: Tree, x: Array) -> Array:
        """Return the outputs of a batch."""
        outputs: Array = self.model(*narrow((params, x), self.precision))
        return outputs.astype(jnp.result_type(*jax.tree.leaves(params)))


def mixed(model: Any, precision: Precision = "bfloat16") -> Mixed | Trained:
    """Return a model that computes with numbers of 16 bits (:class:`Mixed`); its state keeps its precision."""
    if not isinstance(model, Trained):
        return Mixed(model, precision)
    check_choice("precision", precision, get_args(Precision))

    def train(params: Tree, state: Tree, x: Array, key: Array, *frozen: Tree) -> tuple[Array, Tree]:
        small, now, x, *rest = narrow((params, state, x, *frozen), precision)
        outputs, after = model.train(small, now, x, key, *rest)
        wide = jnp.result_type(*jax.tree.leaves(params))
        return outputs.astype(wide), map_trees(lambda a, b: a.astype(b.dtype), after, state)

    def predict(params: Tree, state: Tree, x: Array, *frozen: Tree) -> Array:
        outputs = model.predict(*narrow((params, state, x, *frozen), precision))
        return outputs.astype(jnp.result_type(*jax.tree.leaves(params)))

    return Trained(model.init, predict, train, model.state, model.frozen)


def narrow(tree: Tree, precision: str) -> Tree:
    """Return a tree with its floating-point arrays in a precision."""
    return map_trees(lambda a: a.astype(precision) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree)
