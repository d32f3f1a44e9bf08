"""Losses and metrics of a model: each is called with ``(params, (x, y))`` and returns the mean over the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from losac.trees import Tree, squared_norm

Batch = tuple[Array, Array]


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy with whole-number labels."""

    model: Any

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x)
        chosen = y[..., None] == jnp.arange(logits.shape[-1])  # a comparison, whose derivative needs no scatter
        return (jax.nn.logsumexp(logits, -1) - jnp.where(chosen, logits, 0).sum(-1)).mean()


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Sigmoid cross-entropy of one logit with labels 0 and 1, plus an l2 term l2/2‖params‖² where wanted."""

    model: Any
    l2: float = 0.0

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x).reshape(-1)
        loss = optax.sigmoid_binary_cross_entropy(logits, y.reshape(-1).astype(logits.dtype)).mean()
        return loss + 0.5 * self.l2 * squared_norm(params) if self.l2 else loss


@dataclass(frozen=True)
class SquaredError:
    """scale · (prediction − y)²; the scale is ½ for least squares and 1 in the paper's low-rank problem."""

    model: Any
    scale: float = 0.5

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        return self.scale * jnp.mean((self.model(params, x).reshape(y.shape) - y) ** 2)


@dataclass(frozen=True)
class Accuracy:
    """The share of right answers: the largest logit, or the sign of a single one."""

    model: Any

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x)
        guess = logits.argmax(-1) if logits.shape[-1] > 1 else (logits[..., 0] > 0)
        return jnp.mean((guess == y).astype(logits.dtype))
