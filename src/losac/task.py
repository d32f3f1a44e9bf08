"""A task: the problem that an algorithm solves.

.. math:: \\min_x\\; \\sum_i p_i f_i(x) + \\Psi(x), \\qquad
          f_i(x) = \\sum_{j \\le n_i} \\ell_{ij}(x) \\;\\text{ or }\\; \\frac1{n_i}\\sum_{j \\le n_i} \\ell_{ij}(x)

The paper's f_i is the sum over a client's samples and p_i = 1/N.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np

from losac import _random, losses
from losac._checks import (
    POSITIVE,
    check_flag,
    check_function,
    check_kind,
    check_list,
    check_number,
    check_text,
    described,
    is_number,
    requires,
    shown,
    takes,
)
from losac._functions import digest_of_arrays
from losac.data import FederatedData
from losac.data.checks import check_test
from losac.data.federated import check_data
from losac.metrics.declared import bound, check_metrics
from losac.models.trained import Trained, trained_loss, trained_metric
from losac.prox import Regularizer
from losac.prox import zero as no_regularizer
from losac.trees import Tree, check_params

Reduction = Literal["sum", "mean"]
Weights = Literal["uniform", "samples"] | Sequence[float]
Examples = tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Task:
    """A loss, its parameters and the clients' data.

    Args:
      loss: ``loss(params, (x, y))``, the mean loss of a batch; any JAX function. It may also take, by these names,
        ``key`` (a random key, for dropout), ``state`` (of the model; it then returns ``(value, new_state)``),
        ``training`` (false in evaluation) and ``frozen`` (the weights below).
      params: the initial parameters, any pytree; or ``init(key) -> params``, to draw them with the run's seed.
      data: the clients' data.
      reduction: whether f_i is the ``"sum"`` over the client's samples (the paper) or their ``"mean"``.
      regularizer: Ψ, from :mod:`losac.prox`; LoSAC and SCAFFOLD then run as their proximal versions.
      metrics: name → ``metric(params, (x, y))``, evaluated on the test data (or on the training data, without test
        data). It may take the model's ``state`` and the ``frozen`` weights by these names. A metric must be a mean
        over rows, or declared with :func:`losac.metrics.whole` or :func:`losac.metrics.score`; others are refused.
      test: ``(x, y)``; by default the test part of the data; ``None`` for none.
      weights: p_i: ``"uniform"``, ``"samples"`` (∝ n_i) or a list of non-negative numbers, scaled to sum to one.
      coupled: the loss couples the examples of a batch (batch statistics). It is then never evaluated example by
        example, and sees only real examples.
      state: the model's initial state, if the loss takes one.
      frozen: weights that all clients share and nobody trains, such as a pretrained model under adapters; a pytree of
        arrays. They are an argument of the compiled program, and are never sent, differentiated or kept per client.
      name: the name in tables and plots.

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
    frozen: Tree = field(default=None, kw_only=True)
    name: str = field(default="", kw_only=True)
    client_weights: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        extras = {name: None for name in ("key", "state", "training", "frozen") if self.takes(name)}
        check_function("loss", self.loss, "loss(params, (x, y))", 2, **extras)
        check_data(self.data)
        if callable(self.params):
            check_function("params", self.params, "init(key)", 1)
        else:
            check_params(self.params)
        if self.regularizer is not None:
            check_kind("regularizer", self.regularizer, Regularizer, "make one with losac.prox, such as l1(0.1)")
        check_flag("coupled", self.coupled)
        check_text("name", self.name)
        if self.reduction not in ("sum", "mean"):
            raise ValueError(f"reduction={self.reduction!r} must be 'sum' (the paper) or 'mean'")
        check_metrics(self.metrics)
        takes_state = self.takes("state")
        if takes_state and self.state is None:
            raise ValueError("the loss takes a model state: give its initial value as Task(state=…)")
        if self.state is not None and not takes_state:
            raise ValueError("Task(state=…) is given, but the loss has no argument named 'state'")
        self._check_frozen()
        if isinstance(self.test, str) and self.test == "data":
            object.__setattr__(self, "test", self.data.test)
        elif self.test is not None:
            object.__setattr__(self, "test", check_test(self.test, self.data.x, self.data.y))
        if self.regularizer is None:
            object.__setattr__(self, "regularizer", no_regularizer())
        object.__setattr__(self, "name", self.name or self.data.name)
        object.__setattr__(self, "client_weights", _client_weights(self.weights, self.data.sizes))

    def _check_frozen(self) -> None:
        if self.frozen is None:
            for name, function in {"the loss": self.loss, **self.metrics}.items():
                if requires(function, "frozen"):
                    what = name if function is self.loss else f"metric {name!r}"
                    raise ValueError(f"{what} takes frozen weights: give them as Task(frozen=…)")
            return
        if not self.takes("frozen"):
            raise ValueError("Task(frozen=…) is given, but the loss has no argument named 'frozen'")
        if not jax.tree.leaves(self.frozen):
            raise ValueError("frozen holds no arrays; leave it out")
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.frozen):
            if not hasattr(leaf, "dtype") or np.dtype(leaf.dtype).kind not in "fiubV":
                where = jax.tree_util.keystr(path) or "x"
                raise TypeError(f"frozen holds {described(leaf)} at {where}; it must be a pytree of arrays of numbers")

    @functools.cached_property
    def frozen_digest(self) -> str:
        """Twelve digits that name the frozen weights by all of their numbers; empty if there are none."""
        return digest_of_arrays(self.frozen)

    def takes(self, argument: str) -> bool:
        """Whether the loss has an argument of this name besides its two positional ones."""
        return takes(self.loss, argument)

    @property
    def is_composite(self) -> bool:
        """Whether there is a regulariser in addition to the smooth part."""
        return not isinstance(self.regularizer, no_regularizer)

    def init_params(self, key: Any) -> Tree:
        """Return the initial parameters; draw them with the key if they are a function."""
        if not callable(self.params):
            return self.params
        drawn = self.params(key)
        leaves = jax.tree.leaves(drawn)
        if not leaves or not all(hasattr(leaf, "dtype") or isinstance(leaf, float) for leaf in leaves):
            raise TypeError(f"init(key) returned {described(drawn)}; it must return a pytree of floating-point arrays")
        return drawn

    def __repr__(self) -> str:
        shapes = jax.eval_shape(lambda: self.init_params(_random.any_key()))
        size = _size(shapes)
        extras = f" on {_size(self.frozen)} frozen ones" if self.frozen is not None else ""
        extras += f", Ψ = {self.regularizer}" if self.is_composite else ""
        metrics = f", metrics: {', '.join(self.metrics)}" if self.metrics else ""
        return (
            f"Task({self.name}: {self.data.num_clients} clients, {len(self.data)} samples; "
            f"f_i = {self.reduction}, {size} parameters{extras}{metrics})"
        )


def check_task(task: Any) -> Task:
    """Return a task; refuse anything else."""
    return check_kind("task", task, Task, "make one with losac.classification, losac.regression or losac.Task")


def parameter_count(task: Task) -> int:
    """Return d, the number of parameters."""
    return _size(jax.eval_shape(lambda: task.init_params(_random.any_key())))


def _size(tree: Tree) -> int:
    return sum(int(leaf.size) for leaf in jax.tree.leaves(tree))


def classification(
    model: Any,
    data: FederatedData,
    *,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    weight_decay: float = 0.0,
    **options: Any,
) -> Task:
    """Return the task of classifying with a model: cross-entropy, and the metric ``accuracy``.

    A model with one output is trained with binary cross-entropy on labels 0 and 1. A model with dropout or batch
    statistics (:class:`losac.models.Trained`) uses its training mode and its evaluation mode.

    Args:
      model: from :mod:`losac.models`, or any other object with the same two methods.
      data: the clients' data.
      metrics: further metrics, as for :class:`Task`; also scores of outputs, such as those of :mod:`losac.metrics`.
      weight_decay: λ of λ/2‖x‖², added to the loss (:class:`losac.losses.Decayed`).
      options: as for :class:`Task`.

    >>> import losac
    >>> data = losac.data.load("digits", clients=5)
    >>> scores = {"macro_f1": losac.metrics.macro_f1, "log_loss": losac.metrics.log_loss}
    >>> losac.classification(losac.models.softmax_regression(64, 10), data, metrics=scores)
    Task(digits: 5 clients, 1438 samples; f_i = sum, 650 parameters, metrics: accuracy, macro_f1, log_loss)
    """
    shape = (1, *_outputs(model, data))
    loss = losses.BinaryCrossEntropy(model) if shape[-1] == 1 else losses.CrossEntropy(model)
    highest = int(np.max(data.y))
    if not np.issubdtype(np.asarray(data.y).dtype, np.integer) or int(np.min(data.y)) < 0:
        raise ValueError("classification needs labels 0, 1, 2, …; recode them, or use losac.regression")
    if highest >= max(shape[-1], 2):
        raise ValueError(f"the model has {shape[-1]} outputs but the labels reach {highest}")
    own: dict[str, Callable[..., Any]] = {"accuracy": trained_metric(losses.Accuracy(model))}
    loss = _decayed(trained_loss(loss), weight_decay)
    return Task(loss, model.init, data, metrics=own | bound(metrics, model), **_state_of(model), **options)


def multilabel(
    model: Any, data: FederatedData, *, metrics: Mapping[str, Callable[..., Any]] | None = None, **options: Any
) -> Task:
    """Return the task of predicting several labels per row: sigmoid cross-entropy, metrics ``accuracy`` and ``f1``.

    The targets are zeros and ones, [n, labels], and the model has one output per label. ``accuracy`` is the share of
    correct answers over rows and labels; ``f1`` is the mean over rows of a row's F1 (:class:`losac.losses.F1`). Further
    metrics and options as for :func:`classification`.

    >>> import losac, numpy as np
    >>> x = np.eye(4, dtype="float32")
    >>> data = losac.FederatedData.from_clients([(x, (x > 0).astype("int32"))] * 2)
    >>> multilabel(losac.models.Dense((4, 4)), data)
    Task(data: 2 clients, 8 samples; f_i = sum, 20 parameters, metrics: accuracy, f1)
    """
    outputs = _outputs(model, data)
    if data.y.ndim != 2 or not np.isin(data.y, (0, 1)).all():
        raise ValueError(
            f"multilabel needs targets of zeros and ones, one column per label, not rows of shape {data.y.shape[1:]} "
            f"from {data.y.min()} to {data.y.max()}; one label per row goes to losac.classification"
        )
    if outputs != data.y.shape[1:]:
        raise ValueError(f"the model has outputs of shape {outputs}, but there are {data.y.shape[1]} labels")
    own = {"accuracy": trained_metric(losses.LabelAccuracy(model)), "f1": trained_metric(losses.F1(model))}
    loss = trained_loss(losses.SigmoidCrossEntropy(model))
    return Task(loss, model.init, data, metrics=own | bound(metrics, model), **_state_of(model), **options)


def regression(
    model: Any,
    data: FederatedData,
    *,
    scale: float = 0.5,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    weight_decay: float = 0.0,
    **options: Any,
) -> Task:
    """Return the task of least squares with a model: the loss is scale · (prediction − y)².

    Metrics, weight decay and options as for :func:`classification`.
    """
    check_number("scale", scale, POSITIVE)
    outputs = _outputs(model, data)
    if math.prod(outputs) != math.prod(data.y.shape[1:]):
        raise ValueError(f"the model has outputs of shape {outputs}, but y has rows of shape {data.y.shape[1:]}")
    loss = _decayed(trained_loss(losses.SquaredError(model, scale)), weight_decay)
    return Task(loss, model.init, data, metrics=bound(metrics, model), **_state_of(model), **options)


def _decayed(loss: Any, strength: float) -> Any:
    """Return a loss with weight decay, or as it is without."""
    decayed = losses.Decayed(loss, strength)
    return decayed if strength else loss


def _outputs(model: Any, data: FederatedData) -> tuple[int, ...]:
    """Return the shape of a model's outputs for one row of the data; check that the model takes the rows."""
    check_data(data)
    if isinstance(model, type) or not callable(model) or not callable(getattr(model, "init", None)):
        raise TypeError(
            "model must have init(key) and a call model(params, x), such as losac.models.softmax_regression(64, 10), "
            f"not {described(model)}"
        )
    try:
        found = jax.eval_shape(lambda k: model(model.init(k), data.x[:1]), _random.any_key())
    except Exception as error:
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"the model does not take rows of shape {data.x.shape[1:]}: {words}") from error
    if not hasattr(found, "shape") or found.shape[:1] != (1,):
        raise ValueError("the model must return an array with one row of outputs for each row of x")
    shape: tuple[int, ...] = found.shape[1:]
    return shape


def _state_of(model: Any) -> dict[str, Any]:
    """Return the first state and the frozen weights of a model, where it has any, as options of a task."""
    found = {"state": model.state, "frozen": model.frozen} if isinstance(model, Trained) else {}
    return {name: part for name, part in found.items() if part is not None}


def _client_weights(weights: Weights, sizes: np.ndarray) -> np.ndarray:
    if isinstance(weights, str):
        if weights not in ("uniform", "samples"):
            raise ValueError(f"weights={weights!r} must be 'uniform', 'samples' or one number per client")
        raw = np.ones(len(sizes)) if weights == "uniform" else np.asarray(sizes, float)
    else:
        listed = check_list("weights", weights, "'uniform', 'samples' or a list of numbers, one for each client")
        for i, weight in enumerate(listed):
            if not is_number(weight):
                raise ValueError(f"weights[{i}]={shown(weight)} must be a number")
        raw = np.asarray(listed, float)
        if raw.shape != (len(sizes),):
            raise ValueError(f"weights has shape {raw.shape}, but there are {len(sizes)} clients")
        with np.errstate(over="ignore"):
            total = raw.sum()
        if not (np.isfinite(total) and np.all(raw >= 0) and total > 0):
            raise ValueError("weights must be finite, with their sum, not negative, and not all zero")
    return raw / raw.sum()
