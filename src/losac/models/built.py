"""The models that come with the library; they compare by value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import jax
import jax.numpy as jnp
from jax import Array

from losac import _random
from losac._checks import check_choice, check_count, check_flag, check_function, check_list, is_whole, shown
from losac.trees import Tree

Start = Literal["glorot", "he", "zeros"]


class Model(Protocol):
    """What the library requires of a model."""

    def init(self, key: Array) -> Tree:
        """Draw the initial parameters."""

    def __call__(self, params: Tree, x: Array) -> Array:
        """Return the outputs of a batch."""


def _start(start: Start, key: Array, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Array:
    if start == "zeros":
        return jnp.zeros(shape)
    if start == "glorot":
        return jax.random.uniform(key, shape, minval=-1.0) * (6.0 / (fan_in + fan_out)) ** 0.5
    return jax.random.normal(key, shape) * (2.0 / fan_in) ** 0.5


def _check_sizes(name: str, sizes: Any, least: int, words: str) -> None:
    """Refuse anything but a tuple of whole numbers of at least 1."""
    if not isinstance(sizes, tuple) or len(sizes) < least or not all(is_whole(size) and size >= 1 for size in sizes):
        raise ValueError(f"{name}={shown(sizes)} must be {words}, whole numbers of at least 1")


@dataclass(frozen=True)
class Dense:
    """Fully connected layers with ReLU between them; biases start at zero.

    Without a hidden layer this is softmax regression (or, with one output, linear or logistic regression).
    """

    sizes: tuple[int, ...]
    start: Start = "glorot"
    bias: bool = True

    def __post_init__(self) -> None:
        _check_sizes("sizes", self.sizes, 2, "a tuple (inputs, …, outputs)")
        check_choice("start", self.start, get_args(Start))
        check_flag("bias", self.bias)

    def init(self, key: Array) -> list[dict[str, Array]]:
        """Draw the weights of every layer."""
        layers = []
        for fan_in, fan_out in zip(self.sizes, self.sizes[1:]):
            key, subkey = _random.layer_keys(key)
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

    def __post_init__(self) -> None:
        _check_sizes("shape", self.shape, 1, "a tuple, the shape of one row of x")

    def init(self, key: Array) -> Array:
        """Return zeros; the key is not used."""
        return jnp.zeros(self.shape)

    def __call__(self, params: Array, x: Array) -> Array:
        """Return ⟨X, D⟩ for every D of the batch."""
        return x.reshape(x.shape[0], -1) @ params.reshape(-1)


@dataclass(frozen=True)
class Convolutional:
    """3 × 3 convolutions with ReLU, 2 × 2 max-pooling after some of them, then two dense layers.

    A convolution is a matrix product with the 3 × 3 neighbourhood of every pixel. One product per client stays fast
    when clients are vectorised; grouped convolutions do not.
    """

    shape: tuple[int, int, int]
    classes: int
    channels: tuple[int, ...] = (16, 32)
    hidden: int = 64
    start: Start = "he"
    padding: Literal["same", "valid"] = "same"
    pooled: tuple[bool, ...] = (True, True)

    def __post_init__(self) -> None:
        _check_sizes("shape", self.shape, 3, "a tuple (height, width, channels)")
        check_count("classes", self.classes)
        _check_sizes("channels", self.channels, 1, "a tuple with one number for each layer")
        check_count("hidden", self.hidden)
        check_choice("start", self.start, get_args(Start))
        check_choice("padding", self.padding, ("same", "valid"))
        if len(self.shape) != 3:
            raise ValueError(f"shape={self.shape} must be a tuple (height, width, channels)")
        if len(self.pooled) != len(self.channels):
            raise ValueError(
                f"pooled={shown(self.pooled)} must say for each of the {len(self.channels)} layers of channels whether "
                "it is pooled"
            )
        if min(self._left()) < 1:
            raise ValueError(f"images of shape {self.shape} are too small for {len(self.channels)} layers")

    def _left(self) -> tuple[int, int]:
        """Return height and width after the last layer."""
        height, width, _ = self.shape
        for pool in self.pooled:
            height, width = (side - (2 if self.padding == "valid" else 0) for side in (height, width))
            height, width = (height // 2, width // 2) if pool else (height, width)
        return height, width

    def _dense(self) -> Dense:
        height, width = self._left()
        return Dense((height * width * self.channels[-1], self.hidden, self.classes), self.start)

    def init(self, key: Array) -> dict[str, Any]:
        """Draw the filters and the dense layers."""
        filters = []
        for fan_in, fan_out in zip((self.shape[2], *self.channels), self.channels):
            key, subkey = _random.layer_keys(key)
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

    def __post_init__(self) -> None:
        check_function("initialise", self.initialise, "initialise(key)", 1)
        check_function("apply", self.apply, "apply(params, x)", 2)

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
    check_flag("bias", bias)
    return Dense((inputs, 1), "zeros") if bias else Inner((inputs,))


def cnn(shape: tuple[int, int, int], classes: int, **options: Any) -> Convolutional:
    """Return a small convolutional network for images of shape (height, width, channels)."""
    return Convolutional(tuple(check_list("shape", shape, "(height, width, channels)")), classes, **options)
