"""Runs as pages show them: what each measured, what became of it, and which of them belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from losac.history import History
from losac.report.groups import shown

if TYPE_CHECKING:
    from losac.runs import Run

_NO_SETTING = ("seed", "rounds", "target", "data_dir")
_WORDS = {"running": "still running", "stopped": "stopped", "killed": "killed", "failed": "failed"}
_ENDS = {
    "running": "are still going",
    "killed": "ended without a word, like a killed process",
    "failed": "ended by an error",
}


@dataclass(frozen=True, eq=False)
class Entry:
    """A run on a page: its record so far, its fate, and where it was to end.

    ``status`` is that of :class:`losac.runs.Run`; ``facts`` are the settings of problem and simulation.
    """

    history: History
    name: str = ""
    status: str = "finished"
    last: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def from_histories(histories: Sequence[History]) -> list[Entry]:
    """Return entries of runs of which nothing but the record is known."""
    return [Entry(run, status="finished" if run.diverged is None else "diverged") for run in histories]


def from_runs(runs: Sequence[Run]) -> list[Entry]:
    """Return entries of run folders; those that have measured nothing yet are left out."""
    told = [(run, run.history()) for run in runs]
    return [from_run(run, history) for run, history in told if history is not None]


def from_run(run: Run, history: History) -> Entry:
    """Return the entry of a run folder whose record has been read."""
    return Entry(history, run.name, run.status, run.last, _facts(run.experiment))


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return one label for each entry: the algorithm, and what tells it from others of the same algorithm but the seed.

    Unlike :func:`losac.report.group_histories` this looks at the whole configuration: runs with other clients per round
    or another partition are other experiments, not other seeds.
    """
    everything = [_texts(entry) for entry in entries]
    labels = []
    for entry, mine in zip(entries, everything):
        same = [
            texts for texts, other in zip(everything, entries) if other.history.algorithm == entry.history.algorithm
        ]
        telling = [f"{k}={v}" for k, v in mine.items() if any(other.get(k) != v for other in same)]
        labels.append(" ".join([entry.history.algorithm, *telling]))
    return labels


def fate_of(entries: Sequence[Entry]) -> str:
    """Return in words which runs of a group did not reach their end; empty where all did."""
    if len(entries) == 1:
        return _one_fate(entries[0])
    count = Counter(entry.status for entry in entries)
    total = len(entries)
    parts = [f"{n} of {total} seeds {_WORDS[status]}" for status, n in count.items() if status in _WORDS]
    ends = [entry.history.diverged for entry in entries if entry.history.diverged is not None]
    if ends:
        which = f"all {total} seeds" if len(ends) == total else f"{len(ends)} of {total} seeds"
        where = f"round {ends[0]}" if len(set(ends)) == 1 else f"rounds {min(ends)} to {max(ends)}"
        parts.append(f"{which} diverged at {where}")
    return "; ".join(parts)


def status_notes(entries: Sequence[Entry], unmeasured: Sequence[str] = ()) -> list[str]:
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
    if twins := _twins(entries):
        notes.append(
            f"{_listed(twins)} repeat the settings and seed of another run here; they count as further seeds, which "
            "makes bands and deviations smaller than they are. Leave them out."
        )
    return notes


def _one_fate(entry: Entry) -> str:
    if entry.history.diverged is not None:
        return f"diverged at round {entry.history.diverged}"
    if entry.status not in _WORDS:
        return ""
    end = "" if entry.last is None else f" of {entry.last}"
    return f"{_WORDS[entry.status]}, round {int(entry.history.rounds[-1])}{end}"


def _twins(entries: Sequence[Entry]) -> list[str]:
    seen: set[Any] = set()
    twins = []
    for entry in entries:
        key = (entry.history.task, entry.history.algorithm, entry.history.seed, *_texts(entry).items())
        if key in seen:
            twins.append(entry.name or f"{entry.history.algorithm} seed {entry.history.seed}")
        seen.add(key)
    return twins


def _texts(entry: Entry) -> dict[str, str]:
    return {name: shown(value) for name, value in entry.history.settings.items()} | dict(entry.facts)


def _facts(experiment: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of problem and simulation as texts; the algorithm's are in the history."""
    parts = [experiment.get(name) or {} for name in ("problem", "simulation")]
    return {str(k): shown(v) for part in parts for k, v in part.items() if k not in _NO_SETTING}


def _listed(names: Sequence[str], most: int = 6) -> str:
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
