"""Models: an ``init(key) -> params`` and a call ``model(params, x) -> outputs``, nothing else.

Models compare by value, so that a second task with the same model reuses the compiled program of the first.
Any object with these two methods, and any pair of plain functions, serves as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
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
    """Two 3 × 3 convolutions with ReLU and 2 × 2 max-pooling, then two dense layers."""

    shape: tuple[int, int, int]
    classes: int
    channels: tuple[int, int] = (16, 32)
    hidden: int = 64
    start: Start = "he"

    def _dense(self) -> Dense:
        height, width, _ = self.shape
        return Dense((height // 4 * (width // 4) * self.channels[1], self.hidden, self.classes), self.start)

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
        for layer in params["filters"]:
            x = jax.lax.conv_general_dilated(x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + layer["b"])
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
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


def from_flax(module: Any, example: Any) -> Function:
    """Return a model from a Flax linen module and one batch of example inputs.

    Modules with further collections (batch statistics) need a loss with ``state``: see :class:`losac.Task`.
    """
    example = jnp.asarray(np.asarray(example))
    shapes = jax.eval_shape(module.init, jax.random.key(0), example)
    if extra := sorted(set(shapes) - {"params"}):
        raise ValueError(
            f"{type(module).__name__} keeps the collections {extra} besides its parameters: write a loss "
            "loss(params, batch, state) that returns (value, new_state), and give Task(state=…)"
        )
    return Function(
        lambda key: module.init(key, example)["params"],
        lambda params, x: module.apply({"params": params}, x),
    )
