"""Models that differ between training and prediction: with dropout, or with batch statistics as their state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import Array

from losac._checks import check_function
from losac.trees import Tree


@dataclass(frozen=True, eq=False)
class Trained:
    """A model with dropout or a state, for :func:`losac.classification` and :func:`losac.regression`.

    Gradients are those of training mode, with the client's own batch statistics and a new random key in every step. The
    loss and the metrics are computed in evaluation mode: no dropout, running statistics. Every local step updates the
    state, and the server averages the changes over the clients of a round.

    Args:
      initialise: ``initialise(key) -> params``.
      predict: ``predict(params, state, x) -> outputs``, in evaluation mode.
      train: ``train(params, state, x, key) -> (outputs, new_state)``, in training mode.
      state: the first state, a pytree of floating-point arrays; None for no state.
    """

    initialise: Callable[[Array], Tree]
    predict: Callable[[Tree, Tree, Array], Array]
    train: Callable[[Tree, Tree, Array, Array], tuple[Array, Tree]]
    state: Tree = None

    def __post_init__(self) -> None:
        check_function("initialise", self.initialise, "initialise(key)", 1)
        check_function("predict", self.predict, "predict(params, state, x)", 3)
        check_function("train", self.train, "train(params, state, x, key)", 4)
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.state):
            if not jax.numpy.issubdtype(np.asarray(leaf).dtype, np.floating):
                raise ValueError(
                    f"the model's state has dtype {np.asarray(leaf).dtype} at {jax.tree_util.keystr(path)}; the server "
                    "averages states, so they must be floating-point numbers"
                )

    def init(self, key: Array) -> Tree:
        """Draw the initial parameters."""
        return self.initialise(key)

    def __call__(self, params: Tree, x: Array, state: Tree = None) -> Array:
        """Return the outputs of a batch in evaluation mode; with the first state, if none is given."""
        return self.predict(params, self.state if state is None else state, x)


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
class StatefulMetric:
    """A metric of :mod:`losac.losses` for a model with a state."""

    metric: Any

    @property
    def coupled(self) -> bool | None:
        """What the metric declares."""
        return getattr(self.metric, "coupled", None)

    def __call__(self, params: Tree, batch: tuple[Array, Array], state: Tree) -> Array:
        """Return the mean over the batch, in evaluation mode."""
        return _of_outputs(self.metric, self.metric.model(params, batch[0], state), params, batch)


def trained_loss(loss: Any) -> Any:
    """Return a loss in the form that the kind of model needs."""
    if not isinstance(loss.model, Trained):
        return loss
    return RandomLoss(loss) if loss.model.state is None else StatefulLoss(loss)


def trained_metric(metric: Any) -> Any:
    """Return a metric in the form that the kind of model needs."""
    stateful = isinstance(metric.model, Trained) and metric.model.state is not None
    return StatefulMetric(metric) if stateful else metric


def _loss(loss: Any, params: Tree, batch: Any, state: Tree, key: Array, training: bool) -> tuple[Array, Tree]:
    model = loss.model
    outputs, after = model.train(params, state, batch[0], key) if training else (model(params, batch[0], state), state)
    return _of_outputs(loss, outputs, params, batch), after


def _of_outputs(function: Any, outputs: Array, params: Tree, batch: Any) -> Array:
    """Return a loss or metric of given outputs."""
    return replace(function, model=lambda params, x: outputs)(params, batch)
