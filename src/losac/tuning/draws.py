"""Random search: points drawn from the space, which run together."""

from __future__ import annotations

from collections.abc import Mapping

from losac import _random
from losac.tuning.space import Axis, Point, Range

_DRAWS_PER_TRIAL = 20


def draw_points(axes: Mapping[str, Axis], trials: int, seed: int) -> list[Point]:
    """Draw distinct points; fewer than requested if the space has no more.

    >>> from losac.tuning.space import log_range
    >>> len(draw_points({"step_size": log_range(1e-4, 1e-1)}, 5, seed=0))
    5
    >>> draw_points({"blocks": (1, 2)}, 5, seed=0)
    [{'blocks': 2}, {'blocks': 1}]
    """
    rng = _random.search_generator(seed)
    points: list[Point] = []
    for _ in range(_DRAWS_PER_TRIAL * trials):
        point = {
            name: axis.at(rng.random()) if isinstance(axis, Range) else axis[rng.integers(len(axis))]
            for name, axis in axes.items()
        }
        if point not in points:
            points.append(point)
        if len(points) == trials:
            break
    return points
