"""The common part of all trackers: each evaluation is logged once, also if a run is continued."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from losac._files import make_folder, write_whole
from losac.history.callbacks import Callback, End, Moment, Start
from losac.history.history import History, plain_settings

Facts = Mapping[str, str | int | float | bool | None]


class MetricRow(NamedTuple):
    """One evaluation: the metrics and costs that were measured, without those that are NaN."""

    round: int
    values: dict[str, float]


class _Memory(NamedTuple):
    """The tracked run, the tool's own name for it, and the last round that was logged."""

    facts: dict[str, Any]
    run_id: str
    round: int


class Tracker(Callback, ABC):
    """Logs a run to a tool: :meth:`open`, :meth:`log` and :meth:`close` are what differs between tools.

    A run that begins at round 0 is a new one for the tool. A continued run extends the tool's run if this
    tracker, or the file ``memory``, knows one of the same algorithm, settings, task and seed; else it is a new one with
    all that the history holds. Rounds that were logged before a crash, and are repeated after it, are not logged again.
    """

    run_id: str | None = None
    """The tool's own name for the run, once it has begun."""

    def __init__(self, memory: Path | None = None) -> None:
        self._file = memory
        self._memory: _Memory | None = None

    @abstractmethod
    def open(self, facts: Facts, run_id: str | None) -> str:
        """Begin a run, or continue the one with this id; return its id."""

    @abstractmethod
    def log(self, rows: Sequence[MetricRow]) -> None:
        """Log evaluations durably: they must survive if the process is killed."""

    @abstractmethod
    def close(self, end: End) -> None:
        """End the run with the tool's own status."""

    def on_start(self, start: Start) -> None:
        """Begin or continue, and log the settings."""
        facts = run_facts(start)
        known = self._recall(facts) if start.first else None
        self.run_id = self.open(facts | {"rounds": start.last}, None if known is None else known.run_id)
        self._memory = _Memory(facts, self.run_id, -1) if known is None else known
        self._remember()

    def on_evaluation(self, moment: Moment) -> None:
        """Log what is new."""
        self._log(moment.history)

    def on_end(self, history: History | None, end: End) -> None:
        """Log the rest, and how the run ended."""
        if history is not None:
            self._log(history)
        self.close(end)

    def _log(self, history: History) -> None:
        assert self._memory is not None
        rows = new_rows(history, self._memory.round)
        if rows:
            self.log(rows)
            self._memory = self._memory._replace(round=rows[-1].round)
            self._remember()

    def _recall(self, facts: Mapping[str, Any]) -> _Memory | None:
        known = self._memory
        if known is None and self._file is not None and self._file.exists():
            known = _Memory(**json.loads(self._file.read_text(encoding="utf-8")))
        return known if known is not None and known.facts == facts else None

    def _remember(self) -> None:
        assert self._memory is not None
        if self._file is not None:
            make_folder(self._file.parent)
            write_whole(self._file, json.dumps(self._memory._asdict()))


def run_facts(start: Start) -> dict[str, Any]:
    """Return what identifies a run, flat and plain: algorithm, task, seed and the algorithm's settings.

    Memory addresses are left out: they differ in a continued run.
    """
    settings = plain_settings(start.settings)
    settings = {name: re.sub(r" at 0x[0-9a-f]+", "", v) if isinstance(v, str) else v for name, v in settings.items()}
    return {**settings, "algorithm": start.algorithm, "task": start.task, "seed": int(start.seed)}


def new_rows(history: History, after: int) -> list[MetricRow]:
    """Return the evaluations after a round."""
    series = {**history.metrics, **history.costs, "seconds": history.seconds}
    return [
        MetricRow(int(r), {name: float(values[e]) for name, values in series.items() if not np.isnan(values[e])})
        for e, r in enumerate(history.rounds)
        if r > after
    ]
