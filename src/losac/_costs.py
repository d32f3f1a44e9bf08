"""The costs of a run: the one table of what is counted, and of the axes of charts.

Records, files, tables, charts and trackers read it. A new cost is a row of :data:`COSTS`, with its axis, and its price
in :class:`losac.simulation.program.costs.Meter`. In real federations the transport counts it
(:class:`losac.federation.drive.Exchanged`); what it does not count is 0 there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Cost(NamedTuple):
    """Something that clients spend, as a total over all of them.

    Args:
      axis: the axis of charts that it belongs to.
      column: its name in comparison tables on disk.
      head: the head of its column in tables for people.
      unit: how many of it a table shows as one.
      dtype: of its series.
      later: whether runs were recorded before it was counted; it is NaN in their records.
    """

    axis: str
    column: str
    head: str
    unit: float = 1.0
    dtype: str = "float64"
    later: bool = False

    def in_units(self, total: Any) -> float:
        """Return a total as tables show it."""
        return float(total) / self.unit


class CostAxis(NamedTuple):
    """An axis of charts: its whole title, its short name, and the kind of number on its ticks."""

    title: str
    short: str
    kind: str


COSTS: dict[str, Cost] = {
    "bytes_up": Cost("bytes", "megabytes_up", "MB up", 1e6, "int64"),
    "bytes_down": Cost("bytes", "megabytes_down", "MB down", 1e6, "int64"),
    "gradients": Cost("gradients", "gradients", "gradients"),
}
"""By the name in histories and files."""

AXES: dict[str, CostAxis] = {
    "rounds": CostAxis("round", "rounds", "rounds"),
    "bytes": CostAxis("bytes sent, up and down", "bytes sent", "bytes"),
    "gradients": CostAxis("single-sample gradients", "gradients", "count"),
    "seconds": CostAxis("wall time", "wall time", "seconds"),
}

SPENT = (*COSTS, "seconds")
"""The series of a record after the rounds and the metrics: all costs, and the wall time."""


def by_name(totals: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return totals [evaluations, costs] as a series for each cost.

    >>> by_name([[0, 0, 0], [8, 16, 2.5]])["bytes_down"]
    array([ 0, 16])
    """
    columns = np.array(totals, float).reshape(-1, len(COSTS)).T
    return {name: column.astype(cost.dtype) for (name, cost), column in zip(COSTS.items(), columns)}


def series_of(record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the series of all costs among other columns; NaN where a cost was not counted yet."""
    unknown = np.full(len(record["seconds"]), np.nan)
    found = {name: record.get(name, unknown) if cost.later else record[name] for name, cost in COSTS.items()}
    return {name: np.asarray(found[name], cost.dtype) for name, cost in COSTS.items()}
