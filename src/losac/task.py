"""A task: the problem that every algorithm solves alike.

.. math:: \\min_x\\; \\sum_i p_i f_i(x) + \\Psi(x), \\qquad
          f_i(x) = \\sum_{j \\le n_i} \\ell_{ij}(x) \\;\\text{ or }\\; \\frac1{n_i}\\sum_{j \\le n_i} \\ell_{ij}(x)

The paper's f_i is the sum over a client's samples and p_i = 1/N.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np

from losac import losses
from losac.data import FederatedData
from losac.models.trained import Trained, trained_loss, trained_metric
from losac.prox import Regularizer
from losac.prox import zero as no_regularizer
from losac.trees import Tree

Reduction = Literal["sum", "mean"]
Weights = Literal["uniform", "samples"] | Sequence[float]
Examples = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """A loss, its parameters and the clients' data.

    Args:
      loss: ``loss(params, (x, y))``, the mean loss of a batch; any JAX function. It may also take ``key`` (a random
        key, for dropout), ``state`` (of the model; it then returns ``(value, new_state)``) and ``training`` (false
        where the loss is only evaluated), by these names.
      params: the initial parameters, any pytree; or ``init(key) -> params``, and the seed decides them.
      data: the clients' data.
      reduction: whether f_i is the ``"sum"`` over the client's samples (the paper) or their ``"mean"``.
      regularizer: Ψ, from :mod:`losac.prox`; it makes LoSAC and SCAFFOLD their proximal versions.
      metrics: name → ``metric(params, (x, y))``, means over a batch, evaluated on the test data (on the training
        data where there is none). It may take the model's ``state`` by this name.
      test: ``(x, y)``; by default the test part that came with the data. ``None`` for none.
      weights: p_i: ``"uniform"``, ``"samples"`` (∝ n_i) or a list of non-negative numbers, scaled to sum to one.
      coupled: the loss couples the examples of a batch (batch statistics): it is then never evaluated example by
        example, and sees only real ones.
      state: the model's initial state, where the loss takes one.
      name: for tables and plots.

    >>> import losac
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), losac.data.load("digits", clients=5))
    >>> task
    Task(digits: 5 clients, 1438 samples; f_i = sum, 650 parameters, metrics: accuracy)
    """

    loss: Callable[..., Any]
    params: Tree
    data: FederatedData
    reduction: Reduction = field(default="sum", kw_only=True)
    regularizer: Regularizer | None = field(default=None, kw_only=True)
    metrics: Mapping[str, Callable[..., Any]] = field(default_factory=dict, kw_only=True)
    test: Examples | Literal["data"] | None = field(default="data", kw_only=True)
    weights: Weights = field(default="uniform", kw_only=True)
    coupled: bool = field(default=False, kw_only=True)
    state: Tree = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    client_weights: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise TypeError(f"loss must be a function loss(params, batch), not {type(self.loss).__name__}")
        if not isinstance(self.data, FederatedData):
            raise TypeError(
                f"data must be a FederatedData, not {type(self.data).__name__}; "
                "make one with losac.FederatedData.from_clients([(x_0, y_0), …])"
            )
        if self.reduction not in ("sum", "mean"):
            raise ValueError(f"reduction={self.reduction!r} must be 'sum' (the paper) or 'mean'")
        if "loss" in self.metrics or "objective" in self.metrics or "test_loss" in self.metrics:
            raise ValueError("the names 'loss', 'test_loss' and 'objective' are taken; give the metric another name")
        takes_state = self.takes("state")
        if takes_state and self.state is None:
            raise ValueError("the loss takes a model state: give its initial value as Task(state=…)")
        if self.state is not None and not takes_state:
            raise ValueError("Task(state=…) is given, but the loss has no argument named 'state'")
        if self.test == "data":
            object.__setattr__(self, "test", self.data.test)
        if self.test is not None and len(self.test[0]) != len(self.test[1]):
            raise ValueError(f"test has {len(self.test[0])} inputs but {len(self.test[1])} targets")
        if self.regularizer is None:
            object.__setattr__(self, "regularizer", no_regularizer())
        object.__setattr__(self, "name", self.name or self.data.name)
        object.__setattr__(self, "client_weights", _client_weights(self.weights, self.data.sizes))

    def takes(self, argument: str) -> bool:
        """Whether the loss has an argument of this name besides its two positional ones."""
        return takes(self.loss, argument)

    @property
    def is_composite(self) -> bool:
        """Whether there is a regulariser besides the smooth part."""
        return not isinstance(self.regularizer, no_regularizer)

    def init_params(self, key: Any) -> Tree:
        """Return the initial parameters, drawn with the key where they are a function."""
        return self.params(key) if callable(self.params) else self.params

    def __repr__(self) -> str:
        shapes = jax.eval_shape(lambda: self.init_params(jax.random.key(0)))
        size = sum(int(leaf.size) for leaf in jax.tree.leaves(shapes))
        extras = f", Ψ = {self.regularizer}" if self.is_composite else ""
        metrics = f", metrics: {', '.join(self.metrics)}" if self.metrics else ""
        return (
            f"Task({self.name}: {self.data.num_clients} clients, {len(self.data)} samples; "
            f"f_i = {self.reduction}, {size} parameters{extras}{metrics})"
        )


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a loss or metric has an argument of this name besides its two positional ones."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return argument in names[2:]


def classification(model: Any, data: FederatedData, **options: Any) -> Task:
    """Return the task of classifying with a model: cross-entropy, and the metric ``accuracy``.

    A model with one output is trained by binary cross-entropy on labels 0 and 1. Options as for :class:`Task`. A model
    with dropout or batch statistics (:class:`losac.models.Trained`) is trained and evaluated in its two modes.
    """
    shape = jax.eval_shape(lambda k: model(model.init(k), data.x[:1]), jax.random.key(0)).shape
    loss = losses.BinaryCrossEntropy(model) if shape[-1] == 1 else losses.CrossEntropy(model)
    highest = int(np.max(data.y))
    if not np.issubdtype(np.asarray(data.y).dtype, np.integer) or int(np.min(data.y)) < 0:
        raise ValueError("classification needs labels 0, 1, 2, …; recode them, or use losac.regression")
    if highest >= max(shape[-1], 2):
        raise ValueError(f"the model has {shape[-1]} outputs but the labels reach {highest}")
    metrics = {"accuracy": trained_metric(losses.Accuracy(model))}
    return Task(trained_loss(loss), model.init, data, metrics=metrics, **_state_of(model), **options)


def multilabel(model: Any, data: FederatedData, **options: Any) -> Task:
    """Return the task of telling which of several labels hold: sigmoid cross-entropy, metrics ``accuracy`` and ``f1``.

    The targets are zeros and ones, [n, labels], and the model has one output per label. ``accuracy`` is the share of
    right answers over rows and labels; ``f1`` is the mean over rows of a row's F1 (:class:`losac.losses.F1`). Options
    as for :class:`Task`.

    >>> import losac, numpy as np
    >>> x = np.eye(4, dtype="float32")
    >>> data = losac.FederatedData.from_clients([(x, (x > 0).astype("int32"))] * 2)
    >>> multilabel(losac.models.Dense((4, 4)), data)
    Task(data: 2 clients, 8 samples; f_i = sum, 20 parameters, metrics: accuracy, f1)
    """
    outputs = jax.eval_shape(lambda k: model(model.init(k), data.x[:1]), jax.random.key(0)).shape[1:]
    if data.y.ndim != 2 or not np.isin(data.y, (0, 1)).all():
        raise ValueError(
            f"multilabel needs targets of zeros and ones, one column per label, not rows of shape {data.y.shape[1:]} "
            f"from {data.y.min()} to {data.y.max()}; one label per row goes to losac.classification"
        )
    if outputs != data.y.shape[1:]:
        raise ValueError(f"the model has outputs of shape {outputs}, but there are {data.y.shape[1]} labels")
    metrics: dict[str, Callable[..., Any]] = {"accuracy": losses.LabelAccuracy(model), "f1": losses.F1(model)}
    return Task(losses.SigmoidCrossEntropy(model), model.init, data, metrics=metrics, **options)


def regression(model: Any, data: FederatedData, *, scale: float = 0.5, **options: Any) -> Task:
    """Return the task of least squares with a model: the loss is scale · (prediction − y)²."""
    return Task(trained_loss(losses.SquaredError(model, scale)), model.init, data, **_state_of(model), **options)


def _state_of(model: Any) -> dict[str, Any]:
    """Return the first state of a model that has one, as an option of a task."""
    return {"state": model.state} if isinstance(model, Trained) and model.state is not None else {}


def _client_weights(weights: Weights, sizes: np.ndarray) -> np.ndarray:
    if isinstance(weights, str):
        if weights not in ("uniform", "samples"):
            raise ValueError(f"weights={weights!r} must be 'uniform', 'samples' or one number per client")
        raw = np.ones(len(sizes)) if weights == "uniform" else np.asarray(sizes, float)
    else:
        raw = np.asarray(weights, float)
        if raw.shape != (len(sizes),):
            raise ValueError(f"weights has shape {raw.shape}, but there are {len(sizes)} clients")
        if not (np.all(np.isfinite(raw)) and np.all(raw >= 0) and raw.sum() > 0):
            raise ValueError("weights must be finite, not negative, and not all zero")
    return raw / raw.sum()
