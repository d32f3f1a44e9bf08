"""The models that come with the library; they compare by value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from losac.trees import Tree

Start = Literal["glorot", "he", "zeros"]


class Model(Protocol):
    """What the library asks of a model."""

    def init(self, key: Array) -> Tree:
        """Draw the initial parameters."""

    def __call__(self, params: Tree, x: Array) -> Array:
        """Return the outputs of a batch."""


def _start(start: Start, key: Array, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Array:
    if start == "zeros":
        return jnp.zeros(shape)
    if start == "glorot":
        return jax.random.uniform(key, shape, minval=-1.0) * (6.0 / (fan_in + fan_out)) ** 0.5
    if start == "he":
        return jax.random.normal(key, shape) * (2.0 / fan_in) ** 0.5
    raise ValueError(f"start={start!r} must be 'glorot' (uniform), 'he' (normal) or 'zeros'")


@dataclass(frozen=True)
class Dense:
    """Fully connected layers with ReLU between them; biases start at zero.

    With no hidden layer it is softmax regression (or, with one output, linear or logistic regression).
    """

    sizes: tuple[int, ...]
    start: Start = "glorot"
    bias: bool = True

    def init(self, key: Array) -> list[dict[str, Array]]:
        """Draw the weights of every layer."""
        layers = []
        for fan_in, fan_out in zip(self.sizes, self.sizes[1:]):
            key, subkey = jax.random.split(key)
            layer = {"w": _start(self.start, subkey, (fan_in, fan_out), fan_in, fan_out)}
            layers.append(layer | {"b": jnp.zeros(fan_out)} if self.bias else layer)
        return layers

    def __call__(self, params: list[dict[str, Array]], x: Array) -> Array:
        """Return the logits [batch, outputs]."""
        x = x.reshape(x.shape[0], -1)
        for depth, layer in enumerate(params):
            x = x @ layer["w"]
            if self.bias:
                x = x + layer["b"]
            if depth + 1 < len(params):
                x = jax.nn.relu(x)
        return x


@dataclass(frozen=True)
class Inner:
    """The prediction ⟨X, D⟩ of one matrix (or vector) X, started at zero; the paper's low-rank model."""

    shape: tuple[int, ...]

    def init(self, key: Array) -> Array:
        """Return the zero start, whatever the key."""
        return jnp.zeros(self.shape)

    def __call__(self, params: Array, x: Array) -> Array:
        """Return ⟨X, D⟩ for every D of the batch."""
        return x.reshape(x.shape[0], -1) @ params.reshape(-1)


@dataclass(frozen=True)
class Convolutional:
    """3 × 3 convolutions with ReLU, 2 × 2 max-pooling after some of them, then two dense layers.

    A convolution is a matrix product with the 3 × 3 surroundings of every pixel: one product per client stays fast when
    clients are vectorised, as grouped convolutions do not.
    """

    shape: tuple[int, int, int]
    classes: int
    channels: tuple[int, ...] = (16, 32)
    hidden: int = 64
    start: Start = "he"
    padding: Literal["same", "valid"] = "same"
    pooled: tuple[bool, ...] = (True, True)

    def _dense(self) -> Dense:
        height, width, _ = self.shape
        for pool in self.pooled:
            height, width = (side - (2 if self.padding == "valid" else 0) for side in (height, width))
            height, width = (height // 2, width // 2) if pool else (height, width)
        return Dense((height * width * self.channels[-1], self.hidden, self.classes), self.start)

    def init(self, key: Array) -> dict[str, Any]:
        """Draw the filters and the dense layers."""
        filters = []
        for fan_in, fan_out in zip((self.shape[2], *self.channels), self.channels):
            key, subkey = jax.random.split(key)
            w = _start(self.start, subkey, (3, 3, fan_in, fan_out), 9 * fan_in, 9 * fan_out)
            filters.append({"w": w, "b": jnp.zeros(fan_out)})
        return {"filters": filters, "dense": self._dense().init(key)}

    def __call__(self, params: dict[str, Any], x: Array) -> Array:
        """Return the logits [batch, classes]."""
        x = x.reshape(x.shape[0], *self.shape)
        for layer, pool in zip(params["filters"], self.pooled):
            if self.padding == "same":
                x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            height, width = x.shape[1] - 2, x.shape[2] - 2
            around = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
            w = layer["w"]
            x = jax.nn.relu(jnp.concatenate(around, -1) @ w.reshape(-1, w.shape[-1]) + layer["b"])
            if pool:
                height, width = height // 2, width // 2
                x = x[:, : 2 * height, : 2 * width].reshape(x.shape[0], height, 2, width, 2, -1).max((2, 4))
        return self._dense()(params["dense"], x)


@dataclass(frozen=True)
class Function:
    """A model from two plain functions."""

    initialise: Callable[[Array], Tree]
    apply: Callable[[Tree, Array], Array]

    def init(self, key: Array) -> Tree:
        """Draw the initial parameters."""
        return self.initialise(key)

    def __call__(self, params: Tree, x: Array) -> Array:
        """Return the outputs of a batch."""
        return self.apply(params, x)


def two_nn(inputs: int = 784, classes: int = 10, hidden: int = 200, start: Start = "glorot") -> Dense:
    """Return the paper's 2NN: two hidden layers of 200 ReLU units and a softmax output."""
    return Dense((inputs, hidden, hidden, classes), start)


def softmax_regression(inputs: int, classes: int) -> Dense:
    """Return multinomial logistic regression, started at zero."""
    return Dense((inputs, classes), "zeros")


def logistic_regression(inputs: int) -> Dense:
    """Return binary logistic regression with one logit, started at zero."""
    return Dense((inputs, 1), "zeros")


def linear(inputs: int, bias: bool = False) -> Model:
    """Return a linear predictor with one output, started at zero."""
    return Dense((inputs, 1), "zeros") if bias else Inner((inputs,))


def cnn(shape: tuple[int, int, int], classes: int, **options: Any) -> Convolutional:
    """Return a small convolutional network for images of shape (height, width, channels)."""
    return Convolutional(tuple(shape), classes, **options)  # type: ignore[arg-type]
