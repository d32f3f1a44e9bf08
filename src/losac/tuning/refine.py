"""A search with a fixed number of trials that refines the grid around the best points, beyond an end or between values.

Every algorithm gets the same number of trials, however many settings it has, and no best value stays at an edge while
there are trials left: what a fair comparison asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from losac._units import tidy
from losac.tuning.grid import values_only
from losac.tuning.space import Axis, Point, beyond, is_log, is_ordered
from losac.tuning.trials import Evaluate, Trial, ranked

Side = Literal["low", "high"]
_FINEST = 1.15
"""Values of a logarithmic axis within this factor of each other count as the same."""


def refine_search(
    axes: Mapping[str, Axis], evaluate: Evaluate, allows: Callable[[Point], bool], trials: int, batch: int
) -> tuple[dict[str, tuple[Any, ...]], list[Trial]]:
    """Try the first axis at the middle of the others, then step by step the neighbours of the best points.

    Args:
      axes: setting → values; the first is usually the step size.
      evaluate: runs a list of points.
      allows: whether the algorithm accepts a point.
      trials: how many points to try.
      batch: how many of them at once; the later ones depend on the earlier.

    Returns:
      The values tried of each setting, and the trials.
    """
    grid = values_only(axes)
    first, *_ = grid
    middle = {name: values[(len(values) - 1) // 2] for name, values in grid.items()}
    start = [middle | {first: value} for value in grid[first]][:trials]
    found = evaluate(start)
    while len(found) < trials:
        known = [trial.settings for trial in found]
        wanted: list[Point] = []
        for point in _neighbours(grid, found, allows):
            if point not in known and point not in wanted:
                wanted.append(point)
            if len(wanted) == min(batch, trials - len(found)):
                break
        if not wanted:
            break
        found += evaluate(wanted)
        for point in wanted:
            grid = {
                name: tuple(sorted({*values, point[name]})) if is_ordered(values) else values
                for name, values in grid.items()
            }
    tried = [trial.settings for trial in found]
    return {name: tuple(v for v in values if any(p[name] == v for p in tried)) for name, values in grid.items()}, found


def _neighbours(
    grid: Mapping[str, tuple[Any, ...]], found: list[Trial], allows: Callable[[Point], bool]
) -> Iterator[Point]:
    """Yield points next to the best ones, the nearest to the best first, and of these the ones beyond all tried."""
    tried = [trial.settings for trial in found]
    if all(trial.diverged is not None for trial in found):
        yield from _smaller(grid, tried[0], allows)
        return
    for trial in ranked(found):
        beyond_all: list[Point] = []
        others: list[Point] = []
        for name, values in grid.items():
            alone = [p[name] for p in tried if all(p[k] == v for k, v in trial.settings.items() if k != name)]
            for value in _beside(values, alone, trial.settings[name]):
                ends = is_ordered(values) and not min(p[name] for p in tried) <= value <= max(p[name] for p in tried)
                (beyond_all if ends else others).append(trial.settings | {name: value})
        yield from filter(allows, [*beyond_all, *others])


def _smaller(grid: Mapping[str, tuple[Any, ...]], point: Point, allows: Callable[[Point], bool]) -> Iterator[Point]:
    """Yield points with ever smaller values of the first setting, where all others diverged."""
    name, values = next(iter(grid.items()))
    while is_ordered(values) and allows(smaller := point | {name: beyond(values, "low")}) and smaller[name] < values[0]:
        yield smaller
        values = (smaller[name], *values)


def _beside(values: tuple[Any, ...], tried: list[Any], value: Any) -> Iterator[Any]:
    """Yield what to try next to a value of an axis, given those tried with the other settings unchanged.

    On each side this is the next value of the axis if it was not tried, else the middle of both; at the end of the axis
    the value beyond. Values without an order are all yielded.
    """
    if not is_ordered(values):
        yield from (each for each in values if each != value)
        return
    at = values.index(value)
    sides: tuple[tuple[Side, int], ...] = (("low", at - 1), ("high", at + 1))
    for side, beside in sides:
        if not 0 <= beside < len(values):
            yield beyond(values, side)
        elif values[beside] not in tried:
            yield values[beside]
        elif (between := _middle(values, value, values[beside])) is not None:
            yield between


def _middle(values: tuple[Any, ...], one: Any, other: Any) -> Any:
    """Return the value between two; None where they are as near as it makes sense to tell apart.

    >>> _middle((1.0, 10.0, 100.0), 1.0, 10.0), _middle((1, 2, 4), 1, 2), _middle((0.0, 0.5, 1.0), 0.0, 0.5)
    (3.16227766017, None, 0.25)
    """
    low, high = sorted((one, other))
    if all(isinstance(value, int) for value in values):
        return (low + high) // 2 if high - low > 1 else None
    if is_log(values):
        return tidy(np.sqrt(low * high)) if high > _FINEST**2 * low else None
    span = max(values) - min(values)
    return tidy((low + high) / 2) if high - low > 0.05 * span else None
