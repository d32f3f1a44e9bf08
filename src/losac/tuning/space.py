"""The search space: lists of values, and ranges to draw from."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from losac._checks import described, is_number, nearest, shown
from losac._units import tidy
from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm

Point = dict[str, Any]
Edge = Literal["inside", "low", "high", "low limit", "high limit", "fixed"]
"""The position of the best value on its axis; a limit is the last value that the setting allows."""
_OUTER = 0.05


@dataclass(frozen=True)
class Range:
    """All numbers from low to high, uniform or uniform in their logarithm."""

    low: float
    high: float
    log: bool

    def __post_init__(self) -> None:
        least = 0.0 if self.log else -math.inf
        for name, value in (("low", self.low), ("high", self.high)):
            if not is_number(value):
                raise ValueError(f"{name}={shown(value)} of a range must be a number")
        if not least < self.low < self.high < math.inf:
            need = "positive numbers with low < high" if self.log else "numbers with low < high"
            raise ValueError(f"a range from {self.low!r} to {self.high!r} is empty; give {need}")

    def at(self, share: float) -> float:
        """Return the number at a share of the way from low to high."""
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)

    def share(self, value: float) -> float:
        """Return the share of the way from low to high at which a number lies."""
        low, high, here = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (here - low) / (high - low)


Axis = Range | tuple[Any, ...]


def log_range(low: float, high: float) -> Range:
    """Return the range from low to high, uniform in the logarithm, for random search and Optuna."""
    return Range(low, high, log=True)


def uniform(low: float, high: float) -> Range:
    """Return the range from low to high, for random search and Optuna."""
    return Range(low, high, log=False)


def choice(*values: Any) -> tuple[Any, ...]:
    """Return the given values as an axis; a list means the same."""
    return values


def check_space(space: Mapping[str, Range | Sequence[Any]], algorithm: Algorithm) -> dict[str, Axis]:
    """Return the axes, with numbers sorted; refuse settings and values that the algorithm does not have."""
    if space and not isinstance(space, Mapping):
        raise TypeError(f"space must map settings to lists of values or ranges, not {described(space)}")
    if not space:
        raise ValueError("the space is empty: name at least one setting, such as {'step_size': [1e-4, 1e-3]}")
    known = list(algorithm.settings())
    for name in space:
        if name not in known:
            hint = nearest(name, known)
            raise ValueError(f"{algorithm.label} has no setting {name!r}{hint}; it has {', '.join(known)}")
    axes: dict[str, Axis] = {name: v if isinstance(v, Range) else _values(name, v) for name, v in space.items()}
    for name, axis in axes.items():
        for value in (axis.low, axis.high) if isinstance(axis, Range) else axis:
            algorithm.check_setting(name, value)
    return axes


def _values(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise ValueError(f"{name}={values!r} must be a list of values, log_range(low, high) or uniform(low, high)")
    if odd := [value for value in values if not isinstance(value, Hashable)]:
        raise ValueError(f"{name} has the value {shown(odd[0])}; give values such as numbers and words")
    found = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not found:
        raise ValueError(f"{name} has no values to try; give at least one")
    if twice := [value for k, value in enumerate(found) if value in found[:k]]:
        raise ValueError(f"{name} has {shown(twice[0])} twice; give each value once")
    return tuple(sorted(found)) if _numeric(found) else found


def is_ordered(axis: Axis) -> bool:
    """Whether an axis has two ends: a range, or at least two numbers."""
    return isinstance(axis, Range) or (len(axis) > 1 and _numeric(axis))


def is_log(values: Sequence[float]) -> bool:
    """Whether sorted numbers are spaced more evenly in their logarithm than linearly.

    >>> is_log([1, 3, 10]), is_log([0.0, 0.5, 0.9]), is_log([2, 4, 6, 8])
    (True, False, False)
    """
    if values[0] <= 0:
        return False
    if len(values) == 2:
        return values[1] >= 2 * values[0]
    plain, log = (np.diff(v) for v in (np.asarray(values, float), np.log(values)))
    return bool(np.std(log) / np.mean(log) < np.std(plain) / np.mean(plain))


def beyond(values: Sequence[float], side: Literal["low", "high"]) -> float:
    """Return the number that continues sorted numbers on one side, at their ratio or difference there.

    >>> beyond([1, 3, 10], "high"), beyond([1.0, 2.0, 3.0], "low"), beyond([0.5, 0.7], "high")
    (33, 0.0, 0.9)
    """
    last, before = (values[0], values[1]) if side == "low" else (values[-1], values[-2])
    following = last * (last / before) if is_log(values) else last + (last - before)
    if all(isinstance(v, numbers.Integral) for v in values):
        return round(following)
    rounded_off = not is_log(values) and abs(following) < 1e-9 * abs(last - before)
    return 0.0 if rounded_off else tidy(following)


def edge(axis: Axis, value: Any) -> Edge:
    """Return where a value lies on its axis: at an end of a list, in the outer 5 % of a range, or inside.

    >>> edge((1, 3, 10), 10), edge((1, 3, 10), 3), edge(log_range(1e-4, 1), 1.2e-4), edge(("a", "b"), "a")
    ('high', 'inside', 'low', 'fixed')
    """
    if not is_ordered(axis):
        return "fixed"
    if isinstance(axis, Range):
        share = axis.share(value)
        return "low" if share < _OUTER else "high" if share > 1 - _OUTER else "inside"
    return "low" if value == axis[0] else "high" if value == axis[-1] else "inside"


def as_range(values: Sequence[Any]) -> Axis:
    """Return the range of a grid's values, for random search; values that are not numbers stay a list."""
    axis = tuple(values)
    return Range(float(axis[0]), float(axis[-1]), is_log(axis)) if is_ordered(axis) else axis


def _numeric(values: tuple[Any, ...]) -> bool:
    return all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in values)


TRIALS = 32
"""Points of a default space, the same for all algorithms."""
_STEPS = tuple(10 ** (k / 2) for k in range(-3, 5))
_MANY_STEPS = tuple(10 ** (k / 9) for k in range(-14, 18))


def default_space(algorithm_name: str | type[Algorithm], step_size: float) -> dict[str, list[float]]:
    """Return the grid to tune an algorithm over: 32 points for every algorithm.

    The step sizes are relative to a base step and √10 apart. The second axis is what the algorithm declares in
    ``tuned``: the setting that makes the method what it is (its momentum, α or ρ), or the server step. An algorithm
    without one gets 32 step sizes over the same range instead.

    Args:
      algorithm_name: as in :data:`losac.algorithms.ALGORITHMS`, or a class of your own.
      step_size: the base step; the grid goes from 1/30 of it to a hundred times as much.

    >>> space = default_space("scaffold", 1e-3)
    >>> [f"{step:.2g}" for step in space["step_size"]]
    ['3.2e-05', '0.0001', '0.00032', '0.001', '0.0032', '0.01', '0.032', '0.1']
    >>> space["server_step"]
    [0.3, 1.0, 3.0, 10.0]
    >>> {name: len(values) for name, values in default_space("dsgd", 1e-3).items()}
    {'step_size': 32}
    """
    own = isinstance(algorithm_name, type) and issubclass(algorithm_name, Algorithm)
    if not own and (not isinstance(algorithm_name, str) or algorithm_name not in ALGORITHMS):
        known = list(ALGORITHMS)
        hint = nearest(algorithm_name, known)
        raise ValueError(f"no default space for {algorithm_name!r}{hint}; there is one for {', '.join(known)}")
    if not is_number(step_size) or not step_size > 0:
        raise ValueError(f"step_size={step_size!r} must be a positive number, around which the grid is laid")
    second = (algorithm_name if isinstance(algorithm_name, type) else ALGORITHMS[algorithm_name]).tuned
    steps = [tidy(step_size * factor) for factor in (_STEPS if second else _MANY_STEPS)]
    return {"step_size": steps, **{name: list(values) for name, values in second.items()}}
