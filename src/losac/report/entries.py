"""Runs as pages show them: what each measured, under which conditions, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from losac.history import History

if TYPE_CHECKING:
    from losac.runs import Run

_NO_CONDITION = ("seed", "rounds", "target", "data_dir")
_WORDS = {"running": "still running", "stopped": "stopped", "killed": "killed", "failed": "failed"}
_ENDS = {
    "running": "are still going",
    "killed": "ended without a message, like a killed process",
    "failed": "ended by an error",
}


@dataclass(frozen=True, eq=False)
class Entry:
    """A run on a page: its record so far, its fate, and its planned end.

    ``status`` is that of :class:`losac.runs.Run`; ``facts`` are the settings of problem and simulation in the words of
    the run's file, which go before the history's own conditions.
    """

    history: History
    name: str = ""
    status: str = "finished"
    last: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the run reached the end of its plan."""
        return self.status == "finished"

    @property
    def conditions(self) -> dict[str, Any]:
        """All that decides the numbers besides algorithm, settings and seed, the rounds first.

        The rounds are those planned; they are unknown if a run diverged before its plan was noted.
        """
        known = {**self.history.conditions, **self.facts}
        known.pop("rounds", None)
        return ({} if self.last is None else {"rounds": self.last}) | known


def from_histories(histories: Sequence[History]) -> list[Entry]:
    """Return entries of runs known only by their record."""
    return [_from_history(run) for run in histories]


def _from_history(run: History) -> Entry:
    measured = int(run.rounds[-1]) if len(run.rounds) else 0
    if run.diverged is not None:
        return Entry(run, status="diverged", last=run.planned)
    last = measured if run.planned is None else run.planned
    return Entry(run, status="finished" if measured >= last else "stopped", last=last)


def from_runs(runs: Sequence[Run]) -> list[Entry]:
    """Return entries of run folders; those that have measured nothing yet are left out."""
    told = [(run, run.history()) for run in runs]
    return [from_run(run, history) for run, history in told if history is not None]


def from_run(run: Run, history: History) -> Entry:
    """Return the entry of a run folder after its record has been read."""
    parts = [run.experiment.get(name) or {} for name in ("problem", "simulation")]
    facts = {str(k): v for part in parts for k, v in part.items() if k not in _NO_CONDITION}
    return Entry(history, run.name, run.status, run.last, facts)


def fate_of(entries: Sequence[Entry]) -> str:
    """Return in words which runs of a group did not reach their end; empty if all did."""
    if len(entries) == 1:
        return _one_fate(entries[0])
    count = Counter(entry.status for entry in entries)
    total = len(entries)
    parts = [f"{n} of {total} seeds {_WORDS[status]}" for status, n in count.items() if status in _WORDS]
    ends = [entry.history.diverged for entry in entries if entry.history.diverged is not None]
    if len(ends) == total:
        where = f"round {ends[0]}" if len(set(ends)) == 1 else f"rounds {min(ends)} to {max(ends)}"
        parts.append(f"all {total} seeds diverged at {where}")
    elif ends:
        parts.append(f"{len(ends)} of {total} seeds diverged, the first at round {min(ends)}")
    return "; ".join(parts)


def status_notes(entries: Sequence[Entry], unmeasured: Sequence[str] = (), repeats: Sequence[Entry] = ()) -> list[str]:
    """Return sentences on runs that are unfinished, and on runs that are the same as another."""
    notes = []
    for status, ends in _ENDS.items():
        names = [entry.name for entry in entries if entry.status == status]
        if names:
            one = len(names) == 1
            whom, who = ("it", "it") if one else ("them", "they")
            said = ends.replace("are", "is") if one else ends
            notes.append(f"{_listed(names)} {said}; what is shown of {whom} is what {who} measured so far.")
    if unmeasured:
        verb = "has" if len(unmeasured) == 1 else "have"
        notes.append(f"{_listed(list(unmeasured))} {verb} measured nothing yet, and {verb} no curve.")
    if repeats:
        names = [entry.name or f"{entry.history.algorithm} seed {entry.history.seed}" for entry in repeats]
        notes.append(
            "Runs that repeat the settings and seed of another run here do not count, since one seed twice is not two "
            f"seeds: {_listed(names)}."
        )
    return notes


def _one_fate(entry: Entry) -> str:
    if entry.history.diverged is not None:
        return f"diverged at round {entry.history.diverged}"
    if entry.status not in _WORDS:
        return ""
    end = "" if entry.last is None else f" of {entry.last}"
    return f"{_WORDS[entry.status]}, round {int(entry.history.rounds[-1])}{end}"


def _listed(names: Sequence[str], most: int = 6) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
