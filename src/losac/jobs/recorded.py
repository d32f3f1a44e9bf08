"""One run as a job: its folder travels to the worker as far as it is there, and back."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from losac._files import LOCK
from losac.algorithms.contract import Algorithm
from losac.history import DivergedError, History
from losac.runs import open_run, record
from losac.simulation import simulate
from losac.task import Task


def run_job(
    task: Task,
    algorithm: Algorithm,
    options: Mapping[str, Any],
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    begun: bytes | None = None,
) -> tuple[History, bytes | None]:
    """Run an algorithm; return what it measured, also if it diverged, and the folder of the run.

    Args:
      task, algorithm, options: as for :func:`losac.simulate`.
      sections: of the run's file; None if no folder is kept.
      begun: the folder of the run as far as it is there, from :func:`pack_folder`; the run continues.
    """
    if sections is None:
        try:
            return simulate(task, algorithm, **options), None
        except DivergedError as error:
            return error.history, None
    with tempfile.TemporaryDirectory(prefix="losac-run-") as scratch:
        folder = Path(scratch) / "run"
        if begun is not None:
            unpack_folder(begun, folder)
        try:
            history = record(task, algorithm, folder, resume=True, experiment=sections, **options)
        except DivergedError as error:
            history = error.history
        return history, pack_folder(folder)


def ended_history(
    task: Task,
    algorithm: Algorithm,
    folder: Path,
    options: Mapping[str, Any],
    sections: Mapping[str, Mapping[str, Any]],
) -> History | None:
    """Return what a run in a folder has measured, if nothing is left to do for it: it has finished or diverged.

    A run that was made otherwise is refused, as by :func:`losac.runs.record`.
    """
    if not (folder / "run.json").exists():
        return None
    run = open_run(folder)
    if run.status == "diverged":
        return run.history()
    if run.status != "finished" or run.last != options["rounds"]:
        return None
    return record(task, algorithm, folder, resume=True, experiment=sections, **options)


def pack_folder(folder: Path) -> bytes | None:
    """Return the files of a folder; None if there is no folder."""
    if not folder.is_dir():
        return None
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if path.name != LOCK:
                archive.add(path, path.name)
    return content.getvalue()


def unpack_folder(content: bytes, folder: Path) -> None:
    """Put files of :func:`pack_folder` in the place of a folder; it is there as a whole, or as it was."""
    new = folder.with_name(f".{folder.name}")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(new, filter="data")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(new, folder)
