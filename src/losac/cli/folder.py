"""The folder of a command's results. All commands lock it, check it, and only then clear it."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from losac._claim import EXPERIMENT, RUN_FILES, FolderClaim, FolderError, claimed, holds_anything
from losac._files import is_locked

if TYPE_CHECKING:
    from losac.history import Callback, History, Moment, Start
    from losac.history.callbacks import End

Purpose = Literal["new", "overwrite", "resume", "add"]
_RUNS = "runs"
_RESULTS = (
    *RUN_FILES, "runs/*-seed*", "report.html", "comparison.csv", "comparison.png", "partition.png", "config.json",
    "audit.json", "pictures.png", "trials.csv", "tuning.png", "tuning.svg", "best.toml",
)  # fmt: skip
"""All that the commands write, as patterns."""


def purpose(*, resume: bool = False, overwrite: bool = False) -> Purpose:
    """Return what a command wants with its folder."""
    if resume and overwrite:
        raise ValueError("--resume continues what is in --out, and --overwrite replaces it: use only one of them")
    return "resume" if resume else "overwrite" if overwrite else "new"


@contextlib.contextmanager
def results_folder(out: Path | None, wanted: Purpose, experiment: str | None = None) -> Iterator[FolderClaim | None]:
    """Lock the folder of the results and check it; a process that works in it is not disturbed.

    What an earlier command left is cleared only when all input has been checked: by :meth:`FolderClaim.begin`, or
    when :meth:`FolderClaim.staged` puts new files in its place. A bad option therefore loses no result.

    Args:
      out: the folder, made if missing; None if nothing is to be saved.
      wanted: it must be new or empty; its results are replaced; a command continues in it; files are added to it.
      experiment: the experiment's file. It is written at once if there is nothing to lose.
    """
    if out is None:
        if wanted in ("overwrite", "resume"):
            raise ValueError(f"--{wanted} needs the folder of the results: --out DIR")
        yield None
        return
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; give a folder")
    if wanted == "resume" and not _resumable(out):
        raise ValueError(f"there is nothing to resume in {out}; leave out --resume to begin{_or_replace(out)}")
    for runs in (out.absolute(), out.absolute().parent):
        if runs.name == _RUNS and is_locked(runs.parent):
            raise FolderError(f"another command writes into {runs.parent}; wait for it, or give another folder")
    with claimed(out, _RESULTS) as claim:
        if wanted == "new" and not claim.empty:
            raise ValueError(f"--out {out} is not empty; give another folder, or --overwrite to replace its results")
        if experiment is not None and claim.empty:
            claim.begin(experiment)
        yield claim


def check_same_data(folder: Path, data: str) -> None:
    """Refuse to continue a run on other data, before these are loaded or downloaded."""
    path = folder / EXPERIMENT
    if not ((folder / "run.json").exists() and path.is_file()):
        return
    try:
        before = tomllib.loads(path.read_text(encoding="utf-8")).get("problem", {}).get("data")
    except (ValueError, AttributeError):
        return
    if before is not None and before != data:
        raise ValueError(
            f"the run in {folder} was made with problem.data = {before!r}, and now it is {data!r}; leave that as it "
            "was, or begin another run in another folder"
        )


def _resumable(out: Path) -> bool:
    return (out / EXPERIMENT).is_file() or holds_anything(out / _RUNS)


def _or_replace(out: Path) -> str:
    return ", with --overwrite to replace what is there" if holds_anything(out) else ""


def settling(claim: FolderClaim) -> Callback:
    """Return a callback that gives up the results that a comparison replaces once one of its runs has got going."""
    import losac

    class Settling(losac.Callback):
        def on_start(self, start: Start) -> None:
            self.first = start.first

        def on_evaluation(self, moment: Moment) -> None:
            if moment.round > self.first:
                claim.settle()

        def on_end(self, history: History | None, end: End) -> None:
            if end != "failed":
                claim.settle()

    return Settling()
