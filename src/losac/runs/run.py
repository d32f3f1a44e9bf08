"""A run's folder opened for reading, whether the run has ended, is running, or was killed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from losac._checks import check_path, shown
from losac._costs import SPENT, series_of
from losac._files import is_locked
from losac.history import History
from losac.runs.clients import Clients, read_clients
from losac.runs.layout import ABOUT, EXPERIMENT, FORMAT, LOG
from losac.runs.table import read_table

Status = Literal["running", "finished", "stopped", "diverged", "failed", "killed"]


@dataclass(frozen=True)
class Run:
    """A run as its folder describes it at the moment of opening.

    Attributes:
      folder: its path.
      status: ``running``; ``finished`` its rounds; ``stopped`` by an interruption or a callback; ``diverged``;
        ``failed`` with an error; ``killed``: it says that it runs, but no process holds its folder.
      experiment: the configuration as run, by sections.
      about: versions, hardware, command and times.
    """

    folder: Path
    status: Status
    experiment: dict[str, Any] = field(repr=False)
    about: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def last(self) -> int:
        """The last round of its plan."""
        return int(self.about.get("last", 0))

    @property
    def target(self) -> float | None:
        """The value of the metric to report the first round of, if the experiment names one."""
        target = self.experiment.get("simulation", {}).get("target")
        return None if target is None else float(target)

    def history(self) -> History | None:
        """Return what was measured so far, without the model; None before the first evaluation."""
        columns = read_table(self.folder)
        if columns is None or "algorithm" not in self.about:
            return None
        rounds = columns.pop("round").astype(int)
        spent = {name: columns.pop(name) for name in SPENT if name in columns}
        return History(
            algorithm=self.about["algorithm"],
            settings=self.about["settings"],
            task=self.about["task"],
            seed=self.about["seed"],
            rounds=rounds,
            metrics=columns,
            costs=series_of(spent),
            seconds=spent["seconds"],
            diverged=self.about.get("diverged"),
            conditions=self.about.get("conditions", {}),
        )

    def clients(self) -> Clients | None:
        """Return how many rows the clients held, if that was kept."""
        return read_clients(self.folder)

    def log(self) -> str:
        """Return the log so far."""
        try:
            return (self.folder / LOG).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""


def open_run(folder: str | Path) -> Run:
    """Open a run's folder; the error says why it is not one."""
    folder = check_path("folder", folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; losac run --out DIR makes the folder of a run")
    if not (folder / ABOUT).is_file():
        raise ValueError(f"{folder} is not the folder of a run: it has no {ABOUT}")
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder / ABOUT} is damaged: {error}") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{folder / ABOUT} is not of a run of this version ({FORMAT!r})")
    status = about.get("status")
    if status not in get_args(Status):
        raise ValueError(f"{folder / ABOUT} is damaged: its status is {shown(status)}")
    if status == "running" and not is_locked(folder):
        status = "killed"
    return Run(folder, cast(Status, status), _experiment(folder / EXPERIMENT), about)


def find_runs(folder: str | Path) -> list[Run]:
    """Open a run, or all runs below a folder, in the order of their paths; other folders are skipped."""
    folder = check_path("folder", folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; give the folder of a run, or one that holds such folders")
    return sorted(_runs_below(folder), key=lambda run: run.folder)


def _runs_below(folder: Path) -> Iterator[Run]:
    for about in [folder / ABOUT] if (folder / ABOUT).exists() else folder.rglob(ABOUT):
        if any(part.startswith(".") for part in about.relative_to(folder).parts):
            continue  # what is being replaced
        try:
            yield open_run(about.parent)
        except ValueError:
            continue


def _experiment(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return {}
