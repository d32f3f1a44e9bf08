"""The curves that a page carries, as plain numbers: browsers compute means, bands and rounds to a target from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from losac._costs import AXES
from losac._units import tidy
from losac.metrics import falls
from losac.report.entries import Entry
from losac.report.groups import RunGroup, axis_values, headline_metric
from losac.report.style import colour_place, name_of, style


def payload(groups: Sequence[RunGroup], target: float | None = None) -> dict[str, Any]:
    """Return what the charts of a page are drawn from.

    Args:
      groups: the runs, put together.
      target: value of the headline metric; by default the best that every run reached.
    """
    entries = [entry for group in groups for entry in group.entries]
    histories = [entry.history for entry in entries]
    index_of = {id(entry): index for index, entry in enumerate(entries)}
    metrics = list(dict.fromkeys(name for run in histories for name in run.metrics))
    headline = headline_metric(histories)
    targets = {name: common_target(entries, name) for name in metrics}
    value = targets[headline] if target is None else target
    return {
        "runs": [_run(entry) for entry in entries],
        "groups": [
            _group(index, group, [index_of[id(entry)] for entry in group.entries]) for index, group in enumerate(groups)
        ],
        "metrics": {
            name: {"name": name_of(name), "falls": falls(name), "percent": name == "accuracy"} for name in metrics
        },
        "axes": {name: {"name": axis.title, "short": axis.short, "kind": axis.kind} for name, axis in AXES.items()},
        "target": None if value is None else {"metric": headline, "value": value},
        "targets": targets,
        "quantiles": _quantiles(max(len(group.runs) for group in groups)),
    }


def common_target(entries: Sequence[Entry], metric: str) -> float | None:
    """Return a value with two digits that every run which did not diverge has reached, as good as can be."""
    measured = [entry.history.metrics.get(metric) for entry in entries if entry.history.diverged is None]
    known = [values[~np.isnan(values)] for values in measured if values is not None]
    if not known or not all(len(values) for values in known):
        return None
    down = falls(metric)
    worst = max(float(values.min()) for values in known) if down else min(float(values.max()) for values in known)
    if worst == 0 or not math.isfinite(worst):
        return worst if math.isfinite(worst) else None
    unit = 10.0 ** (math.floor(math.log10(abs(worst))) - 1)
    return tidy((math.ceil if down else math.floor)(worst / unit) * unit, 2)


def _run(entry: Entry) -> dict[str, Any]:
    history = entry.history
    return {
        "name": entry.name,
        "seed": history.seed,
        "status": entry.status,
        "diverged": history.diverged,
        "last": entry.last,
        **{axis: _numbers(axis_values(history, axis)) for axis in AXES},
        "metrics": {name: _numbers(values) for name, values in history.metrics.items()},
    }


def _group(index: int, group: RunGroup, members: list[int]) -> dict[str, Any]:
    return {
        "label": group.label,
        "colour": colour_place(index),
        "dash": style(index).svg_dash,
        "fate": group.fate,
        "diverged": any(run.diverged is not None for run in group.runs),
        "runs": members,
    }


def _quantiles(most: int) -> dict[str, float]:
    """Return the 97.5 % quantiles of Student's t by the number of seeds, for two-sided intervals of 95 %."""
    from scipy.special import stdtrit

    return {str(n): round(float(stdtrit(n - 1, 0.975)), 6) for n in range(2, most + 1)}


def _numbers(values: np.ndarray) -> list[float | int | None]:
    """Return seven digits of each number, enough for a chart and a smaller page; null where nothing was measured."""
    if np.issubdtype(values.dtype, np.integer):
        return [int(value) for value in values]
    return [tidy(value, 7) if math.isfinite(value) else None for value in values.tolist()]
