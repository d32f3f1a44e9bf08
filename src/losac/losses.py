"""Losses and metrics of a model: each is called with ``(params, (x, y))`` and returns the mean over the batch.

The attribute ``coupled`` of a metric says that it is not a mean over rows (:mod:`losac.metrics`).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from losac._checks import NONNEGATIVE, POSITIVE, check_function, check_number
from losac.trees import Tree, squared_norm

Batch = tuple[Array, Array]


@dataclass(frozen=True)
class _OfModel:
    """The common part: the model."""

    model: Any

    def __post_init__(self) -> None:
        check_function("model", self.model, "model(params, x)", 2)


@dataclass(frozen=True)
class CrossEntropy(_OfModel):
    """Softmax cross-entropy with whole-number labels."""

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x)
        chosen = y[..., None] == jnp.arange(logits.shape[-1])  # a comparison: its derivative needs no scatter
        return (jax.nn.logsumexp(logits, -1) - jnp.where(chosen, logits, 0).sum(-1)).mean()


@dataclass(frozen=True)
class BinaryCrossEntropy(_OfModel):
    """Sigmoid cross-entropy of one logit with labels 0 and 1, plus an l2 term l2/2‖params‖²."""

    l2: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("l2", self.l2, NONNEGATIVE)

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x).reshape(-1)
        loss = _sigmoid_cross_entropy(logits, y.reshape(-1)).mean()
        return loss + 0.5 * self.l2 * squared_norm(params) if self.l2 else loss


@dataclass(frozen=True)
class SquaredError(_OfModel):
    """scale · (prediction − y)²; the scale is ½ for least squares and 1 in the paper's low-rank problem."""

    scale: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("scale", self.scale, POSITIVE)

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        return self.scale * jnp.mean((self.model(params, x).reshape(y.shape) - y) ** 2)


@dataclass(frozen=True)
class Accuracy(_OfModel):
    """The share of correct answers, by the largest logit, or by the sign of a single one."""

    coupled: ClassVar[bool] = False

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x)
        guess = logits.argmax(-1) if logits.shape[-1] > 1 else (logits[..., 0] > 0)
        return jnp.mean((guess == y).astype(logits.dtype))


@dataclass(frozen=True)
class SigmoidCrossEntropy(_OfModel):
    """Sigmoid cross-entropy of one logit per label with zeros and ones; the mean over the labels."""

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x)
        return _sigmoid_cross_entropy(logits, y).mean()


@dataclass(frozen=True)
class LabelAccuracy(_OfModel):
    """The share of correct answers over rows and labels; a label is predicted if its logit is positive."""

    coupled: ClassVar[bool] = False

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        x, y = batch
        logits = self.model(params, x)
        return jnp.mean(((logits > 0) == (y > 0)).astype(logits.dtype))


@dataclass(frozen=True)
class F1(_OfModel):
    """The F1 of each row's labels, 2·right / (predicted + true); 1 if none is predicted and none true.

    It is a mean over rows and can be computed in chunks, like scikit-learn's ``average="samples"``.
    """

    coupled: ClassVar[bool] = False

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the mean over the batch."""
        right, either = _overlap(self.model, params, batch)
        return jnp.mean(jnp.where(either > 0, 2 * right / jnp.maximum(either, 1), 1))


@dataclass(frozen=True)
class MicroF1(_OfModel):
    """The F1 of all rows and labels together, 2·right / (predicted + true).

    It is not a mean over rows: it needs all rows at once, such as those of one client in :func:`losac.evaluate`.
    """

    coupled: ClassVar[bool] = True

    def __call__(self, params: Tree, batch: Batch) -> Array:
        """Return the F1 of the rows."""
        right, either = _overlap(self.model, params, batch)
        return jnp.where(either.sum() > 0, 2 * right.sum() / jnp.maximum(either.sum(), 1), 1)


@dataclass(frozen=True)
class Decayed:
    """A loss plus strength/2 ‖params‖², whose gradient is the weight decay of PyTorch's SGD.

    It is part of every client's loss, and thus of the loss that is recorded. For a term that all clients share, see
    :func:`losac.prox.l2`.
    """

    loss: Any
    strength: float

    def __post_init__(self) -> None:
        check_number("weight_decay", self.strength, NONNEGATIVE)
        object.__setattr__(self, "__signature__", inspect.signature(self.loss))  # what the loss takes, by its names

    def __call__(self, params: Tree, batch: Batch, *arguments: Any, **extras: Any) -> Any:
        """Return the mean over the batch, with the model's state if the loss returns it."""
        found = self.loss(params, batch, *arguments, **extras)
        term = 0.5 * self.strength * squared_norm(params)
        return (found[0] + term, *found[1:]) if isinstance(found, tuple) else found + term


def _overlap(model: Any, params: Tree, batch: Batch) -> tuple[Array, Array]:
    """Return for each row how many labels are both predicted and true, and the sum of both numbers of labels."""
    x, y = batch
    logits = model(params, x)
    told, true = (logits > 0).astype(logits.dtype), (y > 0).astype(logits.dtype)
    return (told * true).sum(-1), (told + true).sum(-1)


def _sigmoid_cross_entropy(logits: Array, y: Array) -> Array:
    import optax  # here: a client of a federation is a new process for every message

    found: Array = optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype))
    return found
