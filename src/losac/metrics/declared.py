"""Declarations of metrics: whether they need all rows at once, and whether small values are best."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast, overload

import numpy as np

from losac._checks import accepts, described, shown
from losac._costs import SPENT
from losac.models.trained import Trained, with_frozen
from losac.trees import Tree, as_numpy

Metric = Callable[..., Any]
"""``metric(params, (x, y))``, which may take the model's ``state``; or a score, ``score(outputs, y)``."""

Function = TypeVar("Function", bound=Metric)

RESERVED = ("loss", "test_loss", "objective", "round", *SPENT)
"""Names that a history uses for its own series."""
MORE: tuple[tuple[str, ...], ...] = ((), ("state",), ("frozen",), ("state", "frozen"))
"""What a metric may take, by name, besides parameters and rows."""
FALLING = ("loss", "objective", "error", "distance")
FALLING_WORDS = ("brier", "ece", "mae", "mse", "nll", "perplexity", "rmse")


def falls(metric: str) -> bool:
    """Whether smaller values of a metric are better, judged by its name.

    >>> falls("test_loss"), falls("brier"), falls("validation_rmse"), falls("accuracy")
    (True, True, True, False)
    """
    return any(word in metric for word in FALLING) or not set(FALLING_WORDS).isdisjoint(re.split(r"[\W_]+", metric))


def whole(function: Function) -> Function:
    """Declare a metric ``metric(params, (x, y))`` that is not a mean over rows; it sees all rows at once.

    The rows are the test rows; without test rows, the training rows with equal weights; in :func:`losac.evaluate`, the
    rows of one client. NaN means that the metric is undefined, never that the run diverged. The function gets the
    attribute ``coupled = True``, which a class of metrics can also define itself.

    Args:
      function: a JAX function; it can take the model's ``state`` by this name.

    >>> import jax.numpy as jnp
    >>> @whole
    ... def root_mean_square_error(params, batch):
    ...     x, y = batch
    ...     return jnp.sqrt(jnp.mean((x @ params - y) ** 2))
    >>> root_mean_square_error.coupled
    True
    """
    return _marked(function, coupled=True)


@overload
def score(function: Function, /) -> Function: ...
@overload
def score(*, smaller_is_better: bool | None = None) -> Callable[[Function], Function]: ...
def score(function: Any = None, *, smaller_is_better: bool | None = None) -> Any:
    """Declare a metric from a model's outputs and the targets on all rows, in NumPy or scikit-learn.

    :func:`losac.classification`, :func:`losac.multilabel`, :func:`losac.regression` and :func:`losac.torch.simulate`
    take it as a metric; :func:`of_model` makes one for your own :class:`losac.Task`. If an output is not finite, the
    score is not called and its value is NaN. A score returns NaN if it is undefined on the given rows; that never means
    that the run diverged.

    Args:
      function: ``score(outputs, y)`` → a number; both are NumPy arrays that lead with the rows.
      smaller_is_better: if given, a metric name that implies the opposite is refused; the name decides how tuning and
        reports compare values.

    >>> from sklearn.metrics import matthews_corrcoef
    >>> @score
    ... def matthews(outputs, y):
    ...     return matthews_corrcoef(y, outputs.argmax(-1))
    >>> matthews(np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([0, 1]))
    1.0
    """
    if function is None:
        return functools.partial(_marked, of_outputs=True, smaller_is_better=smaller_is_better)
    return _marked(function, of_outputs=True, smaller_is_better=smaller_is_better)


@dataclass(frozen=True)
class ScoreOfModel:
    """A score as a metric of a model: outputs are compiled, the score is computed in NumPy."""

    score: Metric
    model: Metric
    coupled: ClassVar[bool] = True

    @property
    def smaller_is_better(self) -> bool | None:
        """What the score declares."""
        return getattr(self.score, "smaller_is_better", None)

    def __call__(self, params: Tree, batch: Any, state: Tree = None) -> float:
        """Return the score of the rows."""
        return score_of(self.score, outputs_of(self.model, params, batch[0], state), batch[1])


def of_model(score: Metric, model: Metric) -> ScoreOfModel:
    """Return a score as the metric ``metric(params, (x, y))`` of a model, or of any function ``model(params, x)``.

    >>> import losac
    >>> metric = of_model(losac.metrics.macro_f1, lambda params, x: x * params)
    >>> metric(2.0, (np.array([-1.0, 1.0]), np.array([0, 1])))
    1.0
    """
    _check_callable("score", score)
    _check_callable("model", model)
    return ScoreOfModel(score, model)


def outputs_of(model: Metric, params: Tree, x: Any, state: Tree, frozen: Tree = ()) -> Any:
    """Return a model's outputs, in evaluation mode."""
    more = {"state": state} if isinstance(model, Trained) and model.state is not None else {}
    return with_frozen(model, frozen)(params, x, **more)


def score_of(score: Metric, outputs: Any, y: Any) -> float:
    """Return the score of outputs and targets (NumPy or JAX arrays, or tensors); NaN if an output is not finite."""
    outputs, y = as_numpy(outputs), as_numpy(y)
    return real_number(score(outputs, y)) if np.isfinite(outputs).all() else float("nan")


def real_number(value: Any) -> float:
    """Return the value of a metric; refuse anything but one real number."""
    found = np.asarray(value)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise TypeError(f"a metric returned {described(value)}; it must return one real number")
    return float(found.reshape(()))


def is_score(metric: Metric) -> bool:
    """Whether a metric is declared with :func:`score`."""
    return bool(getattr(metric, "of_outputs", False))


def is_whole(metric: Metric) -> bool:
    """Whether a metric declares that it must see all rows at once."""
    return is_score(metric) or bool(getattr(metric, "coupled", False))


def bound(metrics: Mapping[str, Metric] | None, model: Metric) -> dict[str, Metric]:
    """Return metrics of ``(params, (x, y))``: scores become metrics of the model."""
    given = {} if metrics is None else check_mapping(metrics)
    return {name: of_model(metric, model) if is_score(metric) else metric for name, metric in given.items()}


def check_mapping(metrics: Any) -> dict[str, Metric]:
    """Return metrics by name; refuse anything but a mapping."""
    if not isinstance(metrics, Mapping) or not all(isinstance(name, str) and name for name in metrics):
        example = "metrics={'error': function}"
        raise TypeError(f"metrics must map names to functions, such as {example}, not {shown(metrics)}")
    for name in metrics:
        if not name.isprintable() or "," in name or name != name.strip():
            raise ValueError(
                f"the metric name {name!r} has a comma, a line break or spaces around it; tables need others"
            )
    return dict(metrics)


def check_metrics(metrics: Mapping[str, Metric], *, scores: bool = False, reserved: Collection[str] = RESERVED) -> None:
    """Refuse names that are taken, names that contradict a metric's declaration, and objects that are not metrics.

    Args:
      metrics: name → metric.
      scores: whether to accept scores of outputs, which need a known model.
      reserved: the names that are taken.
    """
    for name, metric in check_mapping(metrics).items():
        if name in reserved:
            known = f" ({', '.join(reserved)} are taken)" if len(reserved) > 1 else ""
            raise ValueError(f"the name {name!r} is taken{known}; give the metric another name")
        if not callable(metric):
            raise TypeError(f"metric {name!r} must be a function metric(params, (x, y)), not {type(metric).__name__}")
        if not any(accepts(metric, None, None, **dict.fromkeys(names)) for names in MORE):
            took = inspect.signature(metric)
            raise TypeError(f"metric {name!r} must be a function metric(params, (x, y)), but it takes {took}")
        if is_score(metric) and not scores:
            raise TypeError(
                f"metric {name!r} is a score of outputs, and the model is not known here: give "
                "losac.metrics.of_model(score, model), or make the task with losac.classification(…, metrics=…)"
            )
        small = getattr(metric, "smaller_is_better", None)
        if small is not None and small != falls(name):
            better, other = ("small", "large") if small else ("large", "small")
            way_out = f"call it {name + '_loss'!r}" if small else f"use a name without {', '.join(FALLING)}"
            raise ValueError(f"metric {name!r} is best when {better}, but its name says best when {other}; {way_out}")


def _check_callable(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {described(value)}")


def _marked(function: Function, **facts: Any) -> Function:
    """Return a function with attributes: the function, or a wrapper if it cannot have attributes."""
    _check_callable("the metric", function)
    try:
        vars(function).update(facts)
    except TypeError:

        @functools.wraps(function)
        def around(*given: Any, **named: Any) -> Any:
            return function(*given, **named)

        vars(around).update(facts)
        return cast(Function, around)
    return function
