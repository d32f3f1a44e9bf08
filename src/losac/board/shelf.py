"""The runs below a folder as a board lists them; files are read again only when they have changed."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from losac.history import History
    from losac.runs import Run

_WATCHED = ("run.json", "metrics.csv", "log.txt")
_RECENT = 20
_LOG_BYTES = 32_768


@dataclass(frozen=True)
class ShelvedRun:
    """A run at the last check; ``run`` is None if its folder could not be read."""

    mark: tuple[Any, ...]
    row: dict[str, Any]
    run: Run | None = None
    history: History | None = None


class Shelf:
    """All runs below a folder, by their paths within it.

    A run with damaged or half-written files is listed as unreadable with the reason; nothing in the folder makes the
    shelf fail, and nothing missing does.

    Args:
      folder: the one with the runs.
      fresh: seconds for which one check of the folder serves all requests.
    """

    def __init__(self, folder: str | Path, fresh: float = 0.4) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise ValueError(f"{folder} is not a folder; give the one that holds your runs")
        self._fresh, self._looked = fresh, -math.inf
        self._books: dict[str, ShelvedRun] = {}
        self._lock = threading.Lock()

    def books(self) -> dict[str, ShelvedRun]:
        """Return the present runs."""
        with self._lock:
            if time.monotonic() - self._looked > self._fresh:
                found = {self._name(folder): folder for folder in _run_folders(self.folder)}
                self._books = {name: self._look(name, folder) for name, folder in sorted(found.items())}
                self._looked = time.monotonic()
            return self._books

    def state(self) -> str:
        """Return a word that changes whenever a run does."""
        marks = [(name, book.mark) for name, book in self.books().items()]
        return hashlib.sha256(repr(marks).encode()).hexdigest()[:16]

    def rows(self) -> list[dict[str, Any]]:
        """Return what the board lists of each run."""
        return [book.row for book in self.books().values()]

    def chosen(self, names: Sequence[str]) -> list[Run]:
        """Return some of the readable runs; other names are skipped."""
        books = self.books()
        found = [books[name].run for name in names if name in books]
        return [run for run in found if run is not None]

    def curves(self, names: Sequence[str], *, apart: bool) -> dict[str, Any] | None:
        """Return the curves of some runs, one per run or one for all seeds together; None if there are none."""
        from losac.report.entries import from_run
        from losac.report.groups import group_entries
        from losac.report.payload import payload

        books = self.books()
        chosen = sorted(
            (books[name] for name in names if name in books), key=lambda book: book.row.get("started") or ""
        )
        entries = [from_run(b.run, b.history) for b in chosen if b.run is not None and b.history is not None]
        if not entries:
            return None
        labels = _own_labels([entry.name for entry in entries]) if apart else None
        return payload(group_entries(entries, labels))

    def details(self, name: str) -> dict[str, Any] | None:
        """Return the row of a run with its configuration and the end of its log; None if there is no such run."""
        book = self.books().get(name)
        if book is None:
            return None
        experiment, about = ({}, {}) if book.run is None else (book.run.experiment, book.run.about)
        told = {k: about[k] for k in ("versions", "hardware", "command", "started", "resumed") if about.get(k)}
        log = self._tail(self.folder / name / "log.txt")
        return {"row": book.row, "experiment": experiment, "about": told, "log": log}

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self.folder).as_posix()

    def _look(self, name: str, folder: Path) -> ShelvedRun:
        from losac.runs import open_run

        marks = tuple(_mark(folder / file) for file in _WATCHED)
        known = self._books.get(name)
        lives = known is not None and known.row["status"] == "running"
        if known is not None and known.mark[0] == marks and not lives:
            return known
        try:
            run = open_run(folder)
            if known is not None and known.mark == (marks, run.status):
                return known
            history = run.history()
            return ShelvedRun((marks, run.status), _row(name, run, history), run, history)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
            row = {"id": name, "name": _shown_name(name, folder), "status": "unreadable", "reason": reason}
            return ShelvedRun((marks, "unreadable"), row)

    def _tail(self, path: Path) -> str:
        """Return the last lines of a file that lies within the folder; nothing if it cannot be read."""
        if not path.resolve().is_relative_to(self.folder):
            return ""
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_BYTES))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""
        return text if size <= _LOG_BYTES else text[text.find("\n") + 1 :]


def _run_folders(root: Path) -> Iterator[Path]:
    """Find the folders with a run.json, without following links and without looking inside runs."""
    for path, folders, files in os.walk(root):
        if "run.json" in files:
            folders.clear()
            yield Path(path)
        else:
            folders[:] = [name for name in folders if not name.startswith(".")]


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _row(name: str, run: Run, history: History | None) -> dict[str, Any]:
    rate = None if history is None else _rate(history)
    done = 0 if history is None else int(history.rounds[-1])
    left = (run.last - done) / rate if rate and run.status == "running" else None
    return {
        "id": name,
        "name": _shown_name(name, run.folder),
        "status": run.status,
        "algorithm": run.about.get("algorithm"),
        "task": run.about.get("task"),
        "seed": run.about.get("seed"),
        "round": done,
        "last": run.last,
        "loss": _last(history, ("loss", "objective", "test_loss")),
        "accuracy": _last(history, ("accuracy",)),
        "rate": rate if run.status == "running" else _whole_rate(history),
        "left": left,
        "started": run.about.get("started"),
    }


def _shown_name(name: str, folder: Path) -> str:
    return folder.name if name == "." else name


def _rate(history: History) -> float | None:
    """Return the rounds per second of the last evaluations, in order to forget compilation and pauses."""
    first = max(0, len(history.rounds) - 1 - _RECENT)
    rounds, seconds = (float(a[-1] - a[first]) for a in (history.rounds, history.seconds))
    return rounds / seconds if seconds > 0 and rounds > 0 else None


def _whole_rate(history: History | None) -> float | None:
    if history is None or not history.seconds[-1] > 0:
        return None
    return float(history.rounds[-1] / history.seconds[-1])


def _last(history: History | None, names: Sequence[str]) -> float | None:
    """Return the last value of the first of these metrics that exists."""
    known = [] if history is None else [name for name in names if name in history.metrics]
    value = history.final(known[0]) if history is not None and known else math.nan
    return value if math.isfinite(value) else None


def _own_labels(names: Sequence[str]) -> list[str]:
    """Return the names, with a number where folders in different places have the same."""
    seen: dict[str, int] = {}
    labels = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        labels.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return labels
