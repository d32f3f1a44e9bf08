"""Grid search that follows its best point: it extends an axis while the best value is at its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from losac.tuning.space import Axis, Edge, Point, Range, beyond, edge
from losac.tuning.trials import Evaluate, Trial, ranked

Grid = dict[str, tuple[Any, ...]]
Allows = Callable[[Point], bool]


def grid_search(
    axes: Mapping[str, Axis], evaluate: Evaluate, allows: Allows, most_widenings: int
) -> tuple[Grid, list[Trial], dict[str, Edge]]:
    """Run a grid, then extend it beyond the edges where the best point is.

    Args:
      axes: setting → values.
      evaluate: runs a list of points.
      allows: whether the algorithm accepts a point.
      most_widenings: how often the grid may grow; no point runs twice.

    Returns:
      The final grid, its trials, and the position of the best point on each axis.
    """
    grid = values_only(axes)
    trials = evaluate(_points(grid))
    for _ in range(most_widenings):
        best = ranked(trials)[0]
        if best.diverged is not None:
            break
        ends = _edges(grid, best.settings, allows)
        grown = {name: _grow(values, ends[name]) for name, values in grid.items()}
        if grown == grid:
            break
        old = _points(grid)
        grid, trials = grown, trials + evaluate([point for point in _points(grown) if point not in old])
    return grid, trials, _edges(grid, ranked(trials)[0].settings, allows)


def values_only(axes: Mapping[str, Axis]) -> Grid:
    """Return the axes if all are lists of values."""
    grid: Grid = {}
    for name, axis in axes.items():
        if isinstance(axis, Range):
            raise ValueError(f"{name} is a range, and a grid needs values: list them, or use search='random'")
        grid[name] = axis
    return grid


def _points(grid: Grid) -> list[Point]:
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def _edges(grid: Grid, best: Point, allows: Allows) -> dict[str, Edge]:
    return {name: _edge(values, best, name, allows) for name, values in grid.items()}


def _edge(values: tuple[Any, ...], best: Point, name: str, allows: Allows) -> Edge:
    found = edge(values, best[name])
    if found != "low" and found != "high":
        return found
    following = beyond(values, found)
    if following not in values and allows(best | {name: following}):
        return found
    return "low limit" if found == "low" else "high limit"


def _grow(values: tuple[Any, ...], end: Edge) -> tuple[Any, ...]:
    if end == "low":
        return (beyond(values, "low"), *values)
    return (*values, beyond(values, "high")) if end == "high" else values
