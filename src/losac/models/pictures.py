"""Convolutional networks of the field's benchmarks: LeNet, FedAvg's CNN, NIID-Bench's CNN."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from losac._checks import check_count, check_flag
from losac.models.built import _check_sizes as check_sizes
from losac.models.layers import LayerKeys, apply_dense, by_patches, dense, filters, max_pool


@dataclass(frozen=True)
class ConvNet:
    """Convolutions with ReLU and 2 × 2 max-pooling after each, then dense layers with ReLU between them.

    ``shape`` is (height, width, channels); flat rows are brought to it.
    """

    shape: tuple[int, int, int]
    classes: int
    channels: tuple[int, ...]
    hidden: tuple[int, ...]
    size: int = 5
    same: bool = True

    def __post_init__(self) -> None:
        check_sizes("shape", self.shape, 3, "a tuple (height, width, channels)")
        check_count("classes", self.classes)
        check_sizes("channels", self.channels, 1, "a tuple with one number for each convolution")
        check_sizes("hidden", self.hidden, 1, "a tuple with one number for each dense layer")
        check_count("size", self.size)
        check_flag("same", self.same)
        if min(self._left()) < 1:
            raise ValueError(f"images of shape {self.shape} are too small for {len(self.channels)} convolutions")

    def _left(self) -> tuple[int, int]:
        height, width, _ = self.shape
        for _ in self.channels:
            height, width = ((side - (0 if self.same else self.size - 1)) // 2 for side in (height, width))
        return height, width

    def init(self, key: Array) -> dict[str, Any]:
        """Draw the filters and the dense layers."""
        keys = LayerKeys(key)
        pairs = zip((self.shape[2], *self.channels), self.channels)
        stack = [{"w": filters(keys(), self.size, a, b), "b": jnp.zeros(b)} for a, b in pairs]
        sizes = (math.prod(self._left()) * self.channels[-1], *self.hidden, self.classes)
        return {"filters": stack, "dense": [dense(keys(), a, b) for a, b in itertools.pairwise(sizes)]}

    def __call__(self, params: dict[str, Any], x: Array) -> Array:
        """Return the logits [batch, classes]."""
        x = x.reshape(x.shape[0], *self.shape)
        for layer in params["filters"]:
            x = max_pool(jax.nn.relu(by_patches(x, layer["w"], self.same) + layer["b"]))
        x = x.reshape(x.shape[0], -1)
        for layer in params["dense"][:-1]:
            x = jax.nn.relu(apply_dense(layer, x))
        return apply_dense(params["dense"][-1], x)


def lenet(shape: tuple[int, int, int], classes: int) -> ConvNet:
    """Return LeNet-5 with ReLU and max-pooling: 5 × 5 filters 6 and 16, dense layers 120 and 84.

    On 28 × 28 pictures the first convolution keeps the size in the original; here none does, as in NIID-Bench's CNN.

    >>> import jax
    >>> sum(leaf.size for leaf in jax.tree.leaves(lenet((28, 28, 1), 10).init(jax.random.key(0))))
    44426
    """
    return ConvNet(shape, classes, (6, 16), (120, 84), same=False)


def fedavg_cnn(shape: tuple[int, int, int], classes: int) -> ConvNet:
    """Return the CNN of FedAvg's paper: 5 × 5 filters 32 and 64, a dense layer of 512.

    >>> import jax
    >>> sum(leaf.size for leaf in jax.tree.leaves(fedavg_cnn((28, 28, 1), 10).init(jax.random.key(0))))
    1663370
    """
    return ConvNet(shape, classes, (32, 64), (512,))
