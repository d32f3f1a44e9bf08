"""Runs that differ in nothing but the seed belong together: groups, their labels and their mean curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from losac.history import History

Axis = Literal["rounds", "bytes", "gradients", "seconds"]
_OWN = ("loss", "objective", "test_loss")


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one algorithm with the same settings, one for each seed."""

    label: str
    runs: tuple[History, ...]

    @property
    def finished(self) -> tuple[History, ...]:
        """The runs that did not diverge."""
        return tuple(run for run in self.runs if run.diverged is None)

    @property
    def fate(self) -> str:
        """Which runs diverged and when, in words; empty where none did."""
        ends = [run.diverged for run in self.runs if run.diverged is not None]
        if not ends:
            return ""
        if len(self.runs) == 1:
            return f"diverged at round {ends[0]}"
        if len(ends) == len(self.runs):
            where = f"round {ends[0]}" if len(set(ends)) == 1 else f"rounds {min(ends)} to {max(ends)}"
            return f"all {len(ends)} seeds diverged at {where}"
        return f"{len(ends)} of {len(self.runs)} seeds diverged, the first at round {min(ends)}"


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric over an axis: the mean over the seeds, and the least and greatest value."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def group_histories(histories: Sequence[History], labels: Sequence[str] | None = None) -> list[Group]:
    """Put runs together that share algorithm, settings and task, in the order in which they first appear.

    Args:
      histories: the runs.
      labels: one for each run; runs with the same label then belong together, whatever their settings.
    """
    histories = list(histories)
    if not histories:
        raise ValueError("there are no histories to show; give at least one")
    if labels is not None and len(labels) != len(histories):
        raise ValueError(f"labels has {len(labels)} entries for {len(histories)} histories; give one for each")
    members: dict[Any, list[History]] = {}
    for index, history in enumerate(histories):
        members.setdefault(_identity(history) if labels is None else labels[index], []).append(history)
    names = _labels([runs[0] for runs in members.values()]) if labels is None else list(members)
    return [Group(name, tuple(runs)) for name, runs in zip(names, members.values())]


def default_metrics(history: History) -> list[str]:
    """Return what to show unless told: the loss (the objective) and the metrics of the task, else the test loss."""
    own = [name for name in history.metrics if name not in _OWN]
    losses = [name for name in ("loss", "objective") if name in history.metrics]
    return losses + (own or [name for name in ("test_loss",) if name in history.metrics])


def headline_metric(histories: Sequence[History]) -> str:
    """Return the metric that a target refers to: the accuracy, or the last of the default ones."""
    known = default_metrics(histories[0])
    return "accuracy" if "accuracy" in known else known[-1]


def axis_values(history: History, axis: Axis) -> np.ndarray:
    """Return the rounds, the bytes sent in both directions, the gradients or the seconds, at every evaluation."""
    if axis == "bytes":
        return history.bytes_up + history.bytes_down
    return {"rounds": history.rounds, "gradients": history.gradients, "seconds": history.seconds}[axis]


def mean_curve(group: Group, metric: str, axis: Axis = "rounds") -> Curve:
    """Return a metric over an axis, at the rounds that all runs of the group have measured.

    The curve ends where the first run diverged: a mean over the survivors alone would flatter the method.
    """
    measured = [run.rounds[~np.isnan(run.metric(metric))] for run in group.runs]
    common = measured[0]
    for rounds in measured[1:]:
        common = np.intersect1d(common, rounds)
    at = [np.searchsorted(run.rounds, common) for run in group.runs]
    values = np.stack([run.metric(metric)[rows] for run, rows in zip(group.runs, at)])
    x = np.mean([axis_values(run, axis)[rows] for run, rows in zip(group.runs, at)], axis=0)
    return Curve(x, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def shown(value: Any) -> str:
    """Return a setting's value as a user would write it."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if getattr(value, "ndim", 1) == 0:
        value = value.item()
    return f"{value:g}" if isinstance(value, int | float) else repr(value)


def _identity(history: History) -> tuple[Any, ...]:
    return (history.task, history.algorithm, *_texts(history.settings).items())


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: shown(value) for name, value in settings.items()}


def _labels(first: Sequence[History]) -> list[str]:
    """Name each group by its algorithm, and by what tells it from others of the same algorithm."""
    several_tasks = len({run.task for run in first}) > 1
    labels = []
    for run in first:
        same = [_texts(other.settings) for other in first if other.algorithm == run.algorithm]
        mine = _texts(run.settings)
        telling = [f"{k}={v}" for k, v in mine.items() if any(other.get(k) != v for other in same)]
        task = [f"on {run.task}"] if several_tasks else []
        labels.append(" ".join([run.algorithm, *telling, *task]))
    return labels
