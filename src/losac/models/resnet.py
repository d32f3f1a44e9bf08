"""Residual networks for small pictures: ResNet-8 and 20 of CIFAR's kind, and ResNet-18.

K. He, X. Zhang, S. Ren, J. Sun, *Deep residual learning for image recognition*, 2016. Group normalisation instead of
batch normalisation suits clients with labels of their own: K. Hsieh, A. Phanishayee, O. Mutlu, P. Gibbons, *The non-IID
data quagmire of decentralized machine learning*, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from losac._checks import check_choice, check_count, check_number
from losac._settings import BELOW_ONE
from losac.models.built import Model
from losac.models.built import _check_sizes as check_sizes
from losac.models.layers import (
    LayerKeys,
    apply_dense,
    batch_norm,
    convolve,
    dense,
    filters,
    group_norm,
    scale_and_shift,
)
from losac.models.trained import Trained
from losac.trees import Tree, map_trees

Norm = Literal["group", "batch"]


@dataclass(frozen=True)
class ResNet:
    """Stages of residual blocks of two 3 × 3 convolutions; each stage but the first halves the picture.

    With ``norm="group"`` it is a model. With ``norm="batch"`` use :meth:`trained`, whose state are the running
    statistics.
    """

    shape: tuple[int, int, int]
    classes: int
    blocks: tuple[int, ...] = (3, 3, 3)
    widths: tuple[int, ...] = (16, 32, 64)
    norm: Norm = "group"
    groups: int = 8
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_sizes("shape", self.shape, 3, "a tuple (height, width, channels)")
        check_count("classes", self.classes)
        check_sizes("blocks", self.blocks, 1, "a tuple with one number for each stage")
        check_sizes("widths", self.widths, 1, "a tuple with one number for each stage")
        check_choice("norm", self.norm, get_args(Norm))
        check_number("momentum", self.momentum, BELOW_ONE)
        if len(self.blocks) != len(self.widths):
            raise ValueError(f"blocks={self.blocks} and widths={self.widths} must have one number for each stage")
        if self.norm == "group" and any(width % self.groups for width in self.widths):
            raise ValueError(f"groups={self.groups} must divide every width, {self.widths}")

    def _plan(self) -> list[tuple[int, int, int]]:
        """Return inputs, outputs and stride of every block."""
        found, before = [], self.widths[0]
        for stage, (count, width) in enumerate(zip(self.blocks, self.widths)):
            for block in range(count):
                found.append((before, width, 2 if stage and not block else 1))
                before = width
        return found

    def init(self, key: Array) -> dict[str, Any]:
        """Draw the filters; the last normalisation of a block starts at zero, so that blocks start as identities."""
        keys, blocks = LayerKeys(key), []
        for a, b, stride in self._plan():
            block = {"one": filters(keys(), 3, a, b), "norm one": scale_and_shift(b), "two": filters(keys(), 3, b, b)}
            block["norm two"] = map_trees(jnp.zeros_like, scale_and_shift(b))
            if stride > 1 or a != b:
                block["past"] = filters(keys(), 1, a, b)
            blocks.append(block)
        first = {"w": filters(keys(), 3, self.shape[2], self.widths[0]), "norm": scale_and_shift(self.widths[0])}
        return {"first": first, "blocks": blocks, "last": dense(keys(), self.widths[-1], self.classes, gain=1.0)}

    def __call__(self, params: dict[str, Any], x: Array, running: Tree = None) -> Array:
        """Return the logits [batch, classes]; batch statistics are those of the batch, or ``running`` ones."""
        return self._through(params, x, running)[0]

    def _through(self, params: dict[str, Any], x: Array, running: Tree) -> tuple[Array, list[Any]]:
        used: list[Any] = []

        def norm(layer: Any, x: Array) -> Array:
            if self.norm == "group":
                return group_norm(layer, x, self.groups)
            x, statistics = batch_norm(layer, x, None if running is None else running[len(used)])
            used.append(statistics)
            return x

        x = x.reshape(x.shape[0], *self.shape)
        x = jax.nn.relu(norm(params["first"]["norm"], convolve(x, params["first"]["w"])))
        for block, (_, _, stride) in zip(params["blocks"], self._plan()):
            inside = jax.nn.relu(norm(block["norm one"], convolve(x, block["one"], stride)))
            inside = norm(block["norm two"], convolve(inside, block["two"]))
            x = jax.nn.relu(inside + (convolve(x, block["past"], stride) if "past" in block else x))
        return apply_dense(params["last"], x.mean((1, 2))), used

    def trained(self) -> Trained:
        """Return the model with batch normalisation: gradients use the batch's statistics, predictions running ones."""
        first = [{"mean": jnp.zeros(w), "variance": jnp.ones(w)} for w in self._normalised()]

        def train(params: Tree, state: Tree, x: Array, key: Array) -> tuple[Array, Tree]:
            logits, used = self._through(params, x, None)
            return logits, map_trees(lambda a, b: self.momentum * a + (1 - self.momentum) * b, state, used)

        return Trained(self.init, lambda params, state, x: self(params, x, state), train, first)

    def _normalised(self) -> list[int]:
        """Return the widths of the normalised layers, in their order."""
        return [self.widths[0], *(width for _, width, _ in self._plan() for _ in range(2))]


def resnet(depth: int, shape: tuple[int, int, int], classes: int, norm: Norm = "group") -> Model | Trained:
    """Return ResNet-8, 20 (CIFAR's kind, widths 16, 32, 64) or 18 (four stages, widths 64 to 512).

    >>> import jax
    >>> sum(leaf.size for leaf in jax.tree.leaves(resnet(20, (32, 32, 3), 10).init(jax.random.key(0))))
    272282
    """
    plans = {8: ((1, 1, 1), (16, 32, 64)), 20: ((3, 3, 3), (16, 32, 64)), 18: ((2, 2, 2, 2), (64, 128, 256, 512))}
    check_choice("depth", depth, tuple(plans))
    found = ResNet(shape, classes, *plans[depth], norm=norm)
    return found if norm == "group" else found.trained()
