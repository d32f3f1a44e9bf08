"""Models that are more than parameters: with dropout, with batch statistics as their state, or on frozen weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from losac._checks import check_function, takes
from losac.trees import Tree


@dataclass(frozen=True, eq=False)
class Trained:
    """A model with dropout, a state or frozen weights, for :func:`losac.classification` and :func:`losac.regression`.

    Gradients are those of training mode, with the client's own batch statistics and a new random key in every step. The
    loss and the metrics are computed in evaluation mode: no dropout, running statistics. Every local step updates the
    state, and the server averages the changes over the clients of a round. Frozen weights are the same for all, never
    change and are never sent.

    Args:
      initialise: ``initialise(key) -> params``.
      predict: ``predict(params, state, x) -> outputs``, in evaluation mode.
      train: ``train(params, state, x, key) -> (outputs, new_state)``, in training mode.
      state: the first state, a pytree of floating-point arrays; None for no state.
      frozen: the frozen weights, a pytree of arrays, which ``predict`` and ``train`` then take as a last argument;
        None for none.
    """

    initialise: Callable[[Array], Tree]
    predict: Callable[..., Array]
    train: Callable[..., tuple[Array, Tree]]
    state: Tree = None
    frozen: Tree = None

    def __post_init__(self) -> None:
        last = "" if self.frozen is None else ", frozen"
        check_function("initialise", self.initialise, "initialise(key)", 1)
        check_function("predict", self.predict, f"predict(params, state, x{last})", 3 + bool(last))
        check_function("train", self.train, f"train(params, state, x, key{last})", 4 + bool(last))
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.state):
            if not jax.numpy.issubdtype(np.asarray(leaf).dtype, np.floating):
                raise ValueError(
                    f"the model's state has dtype {np.asarray(leaf).dtype} at {jax.tree_util.keystr(path)}; the server "
                    "averages states, so they must be floating-point numbers"
                )

    def init(self, key: Array) -> Tree:
        """Draw the initial parameters."""
        return self.initialise(key)

    def __call__(self, params: Tree, x: Array, state: Tree = None, frozen: Tree = None) -> Array:
        """Return the outputs of a batch in evaluation mode; with the first state, if none is given."""
        return self.predict(params, self.state if state is None else state, x, *self._frozen(frozen))

    def trained(self, params: Tree, x: Array, state: Tree, key: Array, frozen: Tree = None) -> tuple[Array, Tree]:
        """Return the outputs of a batch in training mode, and the next state."""
        return self.train(params, state, x, key, *self._frozen(frozen))

    def _frozen(self, given: Tree) -> tuple[Tree, ...]:
        return () if self.frozen is None else (self.frozen if given is None else given,)


def with_frozen(function: Callable[..., Any], frozen: Tree) -> Callable[..., Any]:
    """Return a loss, metric or model with frozen weights in place, if it takes them and there are any."""
    return partial(function, frozen=frozen) if jax.tree.leaves(frozen) and takes(function, "frozen") else function


@dataclass(frozen=True)
class RandomLoss:
    """A loss of :mod:`losac.losses` for a model with dropout and without state."""

    loss: Any

    def __call__(self, params: Tree, batch: tuple[Array, Array], key: Array, training: bool = True) -> Array:
        """Return the mean over the batch."""
        return _loss(self.loss, params, batch, None, key, training)[0]


@dataclass(frozen=True)
class StatefulLoss:
    """A loss of :mod:`losac.losses` for a model with a state."""

    loss: Any

    def __call__(
        self, params: Tree, batch: tuple[Array, Array], state: Tree, key: Array, training: bool = True
    ) -> tuple[Array, Tree]:
        """Return the mean over the batch, and the next state."""
        return _loss(self.loss, params, batch, state, key, training)


@dataclass(frozen=True)
class FrozenLoss:
    """A loss of :mod:`losac.losses` for a model on frozen weights, without state."""

    loss: Any

    def __call__(
        self, params: Tree, batch: tuple[Array, Array], frozen: Tree, key: Array, training: bool = True
    ) -> Array:
        """Return the mean over the batch."""
        return _loss(self.loss, params, batch, None, key, training, frozen)[0]


@dataclass(frozen=True)
class FrozenStatefulLoss:
    """A loss of :mod:`losac.losses` for a model on frozen weights, with a state."""

    loss: Any

    def __call__(
        self, params: Tree, batch: tuple[Array, Array], state: Tree, frozen: Tree, key: Array, training: bool = True
    ) -> tuple[Array, Tree]:
        """Return the mean over the batch, and the next state."""
        return _loss(self.loss, params, batch, state, key, training, frozen)


@dataclass(frozen=True)
class OfTrained:
    """A metric of :mod:`losac.losses` for a model with a state or frozen weights."""

    metric: Any

    @property
    def coupled(self) -> bool | None:
        """What the metric declares."""
        return getattr(self.metric, "coupled", None)

    def __call__(self, params: Tree, batch: tuple[Array, Array], state: Tree = None, frozen: Tree = None) -> Array:
        """Return the mean over the batch, in evaluation mode."""
        outputs = self.metric.model(params, batch[0], state if jax.tree.leaves(state) else None, frozen)
        return _of_outputs(self.metric, outputs, params, batch)


def trained_loss(loss: Any) -> Any:
    """Return a loss in the form that the kind of model needs."""
    if not isinstance(loss.model, Trained):
        return loss
    if loss.model.frozen is None:
        return RandomLoss(loss) if loss.model.state is None else StatefulLoss(loss)
    return FrozenLoss(loss) if loss.model.state is None else FrozenStatefulLoss(loss)


def trained_metric(metric: Any) -> Any:
    """Return a metric in the form that the kind of model needs."""
    model = metric.model
    more = isinstance(model, Trained) and (model.state is not None or model.frozen is not None)
    return OfTrained(metric) if more else metric


def _loss(
    loss: Any, params: Tree, batch: Any, state: Tree, key: Array, training: bool, frozen: Tree = None
) -> tuple[Array, Tree]:
    model = loss.model
    if training:
        outputs, after = model.trained(params, batch[0], state, key, frozen)
    else:
        outputs, after = model(params, batch[0], state, frozen), state
    return _of_outputs(loss, outputs, params, batch), after


def _of_outputs(function: Any, outputs: Array, params: Tree, batch: Any) -> Array:
    """Return a loss or metric of given outputs."""
    return replace(function, model=lambda params, x: outputs)(params, batch)
