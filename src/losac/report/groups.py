"""Runs that differ in nothing but the seed belong together: groups and their mean curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from losac._costs import COSTS
from losac.history import History
from losac.report.checks import check_histories, check_labels
from losac.report.entries import Entry, fate_of, from_histories
from losac.report.equal import differences, equal_runs, labels_of

AxisName = str
"""A name of :data:`losac._costs.AXES`."""
_OWN = ("loss", "objective", "test_loss")


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Equal runs, one for each seed.

    Attributes:
      label: the algorithm, and what distinguishes it from the other groups.
      entries: the runs that count.
      repeats: runs with the seed of another one, which do not count.
      unequal: what differs among the runs, if given labels join them nevertheless.
    """

    label: str
    entries: tuple[Entry, ...]
    repeats: tuple[Entry, ...] = ()
    unequal: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[History, ...]:
        """The runs that count."""
        return tuple(entry.history for entry in self.entries)

    @property
    def finished(self) -> tuple[History, ...]:
        """The runs that reached the end of their plan."""
        return tuple(entry.history for entry in self.entries if entry.complete)

    @property
    def going(self) -> tuple[History, ...]:
        """The runs that did not, and have not diverged."""
        return tuple(e.history for e in self.entries if not e.complete and e.history.diverged is None)

    @property
    def fate(self) -> str:
        """What a reader must know of the runs besides their numbers, in words; empty if there is nothing."""
        told = [fate_of(self.entries)]
        if self.repeats:
            count = len(self.repeats)
            told.append(f"{count} repeats of a seed do not count" if count > 1 else "1 repeat of a seed does not count")
        if self.unequal:
            told.append(f"runs of unequal {', '.join(self.unequal)} together")
        return "; ".join(filter(None, told))


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """A metric over an axis: the mean over the seeds, and the least and greatest value."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def group_histories(histories: Sequence[History], labels: Sequence[str] | None = None) -> list[RunGroup]:
    """Put equal runs together, in order of first appearance.

    Runs are equal if algorithm, settings, problem and simulation are (:attr:`losac.History.conditions`); they may
    differ in their seed, and a seed counts once.

    Args:
      histories: the runs.
      labels: one for each run; runs with the same label then belong together, and the group says what is not equal.
    """
    return group_entries(from_histories(check_histories(histories)), labels)


def group_entries(entries: Sequence[Entry], labels: Sequence[str] | None = None) -> list[RunGroup]:
    """Put equal runs together, like :func:`group_histories`."""
    if not entries:
        raise ValueError("there are no histories to show; give at least one")
    if labels is None:
        found = equal_runs(entries)
        return [_group(label, members) for label, members in zip(labels_of(found), found)]
    check_labels(labels, len(entries))
    named: dict[str, list[Entry]] = {}
    for label, entry in zip(labels, entries):
        named.setdefault(label, []).append(entry)
    return [_group(label, members) for label, members in named.items()]


def _group(label: str, members: Sequence[Entry]) -> RunGroup:
    """Return a group; of equal runs with one seed the first that is complete counts, or the first."""
    unequal = tuple(differences(members)) if len(equal_runs(members)) > 1 else ()
    if unequal:
        return RunGroup(label, tuple(members), (), unequal)
    counted: dict[int, Entry] = {}
    for entry in members:
        known = counted.get(entry.history.seed)
        if known is None or (entry.complete and not known.complete):
            counted[entry.history.seed] = entry
    kept = tuple(counted.values())
    return RunGroup(label, kept, tuple(entry for entry in members if entry not in kept))


def default_metrics(history: History) -> list[str]:
    """Return what to show by default: the loss (the objective) and the metrics of the task, else the test loss."""
    own = [name for name in history.metrics if name not in _OWN]
    losses = [name for name in ("loss", "objective") if name in history.metrics]
    return losses + (own or [name for name in ("test_loss",) if name in history.metrics])


def headline_metric(histories: Sequence[History]) -> str:
    """Return the metric that a target refers to: the accuracy, or the last of the default ones."""
    known = default_metrics(check_histories(histories)[0])
    return "accuracy" if "accuracy" in known else known[-1]


def axis_values(history: History, axis: AxisName) -> np.ndarray:
    """Return the rounds, the seconds, or the sum of the costs of an axis, at every evaluation."""
    if axis in ("rounds", "seconds"):
        return np.asarray(getattr(history, axis))
    return np.sum([history.costs[name] for name, cost in COSTS.items() if cost.axis == axis], axis=0)


def mean_curve(group: RunGroup, metric: str, axis: AxisName = "rounds") -> MeanCurve:
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
    return MeanCurve(x, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def latest(group: RunGroup) -> tuple[tuple[History, ...], int | None]:
    """Return the runs with final values to show, and the round of these if it is not the last.

    They are the complete runs. If there are none, they are those that have not diverged, at the last round that all of
    them have evaluated.
    """
    if group.finished or not group.going:
        return group.finished, None
    common = group.going[0].rounds
    for run in group.going[1:]:
        common = np.intersect1d(common, run.rounds)
    return group.going, int(common[-1])
