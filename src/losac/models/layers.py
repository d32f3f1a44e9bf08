"""Layers of the larger models: pure functions of parameters and arrays [batch, …], and how their weights start."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from losac import _random

Weights = dict[str, Array]
EPSILON = 1e-5


class LayerKeys:
    """Hands out a new key for each layer's weights."""

    def __init__(self, key: Array) -> None:
        self._key = key

    def __call__(self) -> Array:
        """Return the next key."""
        self._key, key = _random.layer_keys(self._key)
        return key


def normal(key: Array, shape: tuple[int, ...], fan_in: int, gain: float = 2.0) -> Array:
    """Return weights with variance gain / fan_in; a gain of 2 suits ReLU."""
    return jax.random.normal(key, shape) * math.sqrt(gain / fan_in)


def dense(key: Array, inputs: int, outputs: int, gain: float = 2.0) -> Weights:
    """Return the weights of a dense layer."""
    return {"w": normal(key, (inputs, outputs), inputs, gain), "b": jnp.zeros(outputs)}


def apply_dense(layer: Weights, x: Array) -> Array:
    """Return x w + b."""
    return x @ layer["w"] + layer["b"]


def filters(key: Array, size: int, inputs: int, outputs: int) -> Array:
    """Return the weights [size, size, inputs, outputs] of a convolution."""
    return normal(key, (size, size, inputs, outputs), size * size * inputs)


def by_patches(x: Array, w: Array, same: bool) -> Array:
    """Return a convolution of stride 1 as one matrix product with every pixel's neighbourhood.

    It stays fast when clients with weights of their own are vectorised, as grouped convolutions do not.
    """
    size = w.shape[0]
    if same:
        before = (size - 1) // 2
        x = jnp.pad(x, ((0, 0), (before, size - 1 - before), (before, size - 1 - before), (0, 0)))
    height, width = x.shape[1] - size + 1, x.shape[2] - size + 1
    around = [x[:, i : i + height, j : j + width] for i in range(size) for j in range(size)]
    return jnp.concatenate(around, -1) @ w.reshape(-1, w.shape[-1])


def convolve(x: Array, w: Array, stride: int = 1) -> Array:
    """Return a convolution with padding that keeps the size, but for the stride."""
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x: Array) -> Array:
    """Return the largest of each 2 × 2 pixels; a row or column too many is left out."""
    height, width = x.shape[1] // 2, x.shape[2] // 2
    return x[:, : 2 * height, : 2 * width].reshape(x.shape[0], height, 2, width, 2, -1).max((2, 4))


def scale_and_shift(features: int) -> Weights:
    """Return the weights of a normalisation."""
    return {"scale": jnp.ones(features), "shift": jnp.zeros(features)}


def group_norm(layer: Weights, x: Array, groups: int) -> Array:
    """Normalise groups of channels of each row by themselves."""
    cut = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean, variance = cut.mean((1, 3), keepdims=True), cut.var((1, 3), keepdims=True)
    whole = ((cut - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape)
    return whole * layer["scale"] + layer["shift"]


def layer_norm(layer: Weights, x: Array) -> Array:
    """Normalise the features of each position."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * layer["scale"] + layer["shift"]


def batch_norm(layer: Weights, x: Array, running: Weights | None) -> tuple[Array, Weights]:
    """Normalise channels by running statistics, or else by those of the batch; return the statistics that were used."""
    used = {"mean": x.mean((0, 1, 2)), "variance": x.var((0, 1, 2))} if running is None else running
    return (x - used["mean"]) * jax.lax.rsqrt(used["variance"] + EPSILON) * layer["scale"] + layer["shift"], used


def attend(layer: dict[str, Any], x: Array, heads: int, hidden: Array) -> Array:
    """Return multi-head attention [batch, length, width]; ``hidden`` [batch, length, length] says what is not seen."""
    batch, length, width = x.shape
    q, k, v = (
        apply_dense(layer[name], x).reshape(batch, length, heads, width // heads) for name in ("query", "key", "value")
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // heads)
    shares = jax.nn.softmax(jnp.where(hidden[:, None], -1e9, scores), -1)
    return apply_dense(layer["out"], jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, length, width))
