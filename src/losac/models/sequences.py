"""Models of sequences of whole numbers (characters, words): recurrent networks and a small transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from losac._checks import check_choice, check_count, check_flag
from losac.models.layers import LayerKeys, apply_dense, attend, dense, layer_norm, normal, scale_and_shift

Cell = Literal["lstm", "gru"]


@dataclass(frozen=True)
class Recurrent:
    """Layers of LSTM or GRU cells; the logits are those after the last position.

    With 2 layers of 256 LSTM cells and an embedding of 8 this is FedAvg's character model.
    """

    tokens: int
    classes: int
    cell: Cell = "gru"
    embedding: int = 8
    hidden: int = 128
    layers: int = 1

    def __post_init__(self) -> None:
        check_choice("cell", self.cell, get_args(Cell))
        for name in ("tokens", "classes", "embedding", "hidden", "layers"):
            check_count(name, getattr(self, name))

    def init(self, key: Array) -> dict[str, Any]:
        """Draw the embedding, the cells and the last layer."""
        keys, gates = LayerKeys(key), {"lstm": 4, "gru": 3}[self.cell]
        sizes = [self.embedding, *[self.hidden] * self.layers]
        cells = [
            {
                "in": dense(keys(), inputs, gates * self.hidden, gain=1.0),
                "on": dense(keys(), self.hidden, gates * self.hidden, gain=1.0),
            }
            for inputs in sizes[:-1]
        ]
        embedding = normal(keys(), (self.tokens, self.embedding), 1, gain=1.0)
        return {"embedding": embedding, "cells": cells, "last": dense(keys(), self.hidden, self.classes, gain=1.0)}

    def __call__(self, params: dict[str, Any], x: Array) -> Array:
        """Return the logits [batch, classes] of tokens [batch, length]."""
        step = _lstm if self.cell == "lstm" else _gru
        over_time = jnp.moveaxis(params["embedding"][x.astype(jnp.int32)], 1, 0)
        for cell in params["cells"]:
            zeros = jnp.zeros((x.shape[0], self.hidden), over_time.dtype)
            inside = apply_dense(cell["in"], over_time)  # of all positions in one product

            def one(carry: Any, now: Array, cell: Any = cell) -> Any:
                return step(carry, now, apply_dense(cell["on"], carry[0]))

            _, over_time = jax.lax.scan(one, (zeros, zeros), inside)
        return apply_dense(params["last"], over_time[-1])


def _lstm(carry: tuple[Array, Array], inside: Array, on: Array) -> tuple[tuple[Array, Array], Array]:
    _, memory = carry
    gate, forget, new, out = jnp.split(inside + on, 4, -1)
    memory = jax.nn.sigmoid(forget + 1) * memory + jax.nn.sigmoid(gate) * jnp.tanh(new)
    h = jax.nn.sigmoid(out) * jnp.tanh(memory)
    return (h, memory), h


def _gru(carry: tuple[Array, Array], inside: Array, on: Array) -> tuple[tuple[Array, Array], Array]:
    h, unused = carry
    (reset, update, new), (reset_on, update_on, new_on) = jnp.split(inside, 3, -1), jnp.split(on, 3, -1)
    candidate = jnp.tanh(new + jax.nn.sigmoid(reset + reset_on) * new_on)
    share = jax.nn.sigmoid(update + update_on)
    h = share * h + (1 - share) * candidate
    return (h, unused), h


@dataclass(frozen=True)
class Transformer:
    """A small transformer with normalisation before each part; the logits are those of the sequence.

    ``causal``: a position sees itself and those before it, and the logits are those after the last one, for the next
    token. Otherwise all positions see each other, and the logits are of their mean. ``padding`` is a token that is not
    seen.
    """

    tokens: int
    classes: int
    length: int
    width: int = 64
    heads: int = 4
    layers: int = 2
    causal: bool = False
    padding: int | None = 0

    def __post_init__(self) -> None:
        check_flag("causal", self.causal)
        for name in ("tokens", "classes", "length", "width", "heads", "layers"):
            check_count(name, getattr(self, name))
        if self.width % self.heads:
            raise ValueError(f"heads={self.heads} must divide width={self.width}")

    def init(self, key: Array) -> dict[str, Any]:
        """Draw the embeddings, the layers and the last layer."""
        keys, width = LayerKeys(key), self.width
        layers = [
            {
                "norm one": scale_and_shift(width),
                **{name: dense(keys(), width, width, gain=1.0) for name in ("query", "key", "value", "out")},
                "norm two": scale_and_shift(width),
                "wide": dense(keys(), width, 4 * width),
                "narrow": dense(keys(), 4 * width, width, gain=1.0),
            }
            for _ in range(self.layers)
        ]
        return {
            "tokens": normal(keys(), (self.tokens, width), width, gain=1.0),
            "positions": normal(keys(), (self.length, width), width, gain=1.0),
            "layers": layers,
            "norm": scale_and_shift(width),
            "last": dense(keys(), width, self.classes, gain=1.0),
        }

    def __call__(self, params: dict[str, Any], x: Array) -> Array:
        """Return the logits [batch, classes] of tokens [batch, length]."""
        x = x.astype(jnp.int32)
        unseen = jnp.zeros(x.shape, bool) if self.padding is None else x == self.padding
        hidden = jnp.broadcast_to(unseen[:, None, :], (*x.shape, x.shape[1]))
        if self.causal:
            at = jnp.arange(x.shape[1])
            hidden = hidden | (at[None, :] > at[:, None])
        hidden = hidden & ~jnp.eye(x.shape[1], dtype=bool)  # all see themselves, so that none sees nothing
        z = params["tokens"][x] + params["positions"][: x.shape[1]]
        for layer in params["layers"]:
            z = z + attend(layer, layer_norm(layer["norm one"], z), self.heads, hidden)
            wide = jax.nn.gelu(apply_dense(layer["wide"], layer_norm(layer["norm two"], z)))
            z = z + apply_dense(layer["narrow"], wide)
        z = layer_norm(params["norm"], z)
        if self.causal:
            return apply_dense(params["last"], z[:, -1])
        seen = (~unseen)[..., None].astype(z.dtype)
        return apply_dense(params["last"], (z * seen).sum(1) / jnp.maximum(seen.sum(1), 1))
