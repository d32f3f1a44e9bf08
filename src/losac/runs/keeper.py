"""The callback that keeps a run in its folder: metrics, checkpoints, the log, the status."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from losac._claim import FolderClaim
from losac._claim import FolderError as FolderError
from losac._files import write_whole
from losac.history import Callback, History, Moment, Start
from losac.history.callbacks import End
from losac.history.history import plain_settings
from losac.runs.checkpoints import Checkpoints
from losac.runs.layout import ABOUT, FORMAT, HISTORY
from losac.runs.table import MetricsTable

LOG = logging.getLogger("losac.runs")
SHARE = 10
"""The least time between checkpoints, as a multiple of the time that one takes."""
BETWEEN_PARQUETS = 2.0


class Keeper(Callback):
    """Writes one run into one folder.

    Args:
      claim: on the run's folder.
      checkpoints: where its states go.
      about: what run.json says of it from the start.
      seconds: between checkpoints.
      earlier: the record that the run continues, if it does.
    """

    def __init__(
        self,
        claim: FolderClaim,
        checkpoints: Checkpoints,
        about: Mapping[str, Any],
        seconds: float,
        earlier: History | None,
    ) -> None:
        self.claim, self.checkpoints, self.about, self.seconds = claim, checkpoints, dict(about), seconds
        self.folder = claim.folder
        self.table = MetricsTable(self.folder)
        self.saved = 0 if earlier is None else int(earlier.rounds[-1])
        self.interrupted = False
        self._earlier = earlier
        self._next = self._next_parquet = 0.0

    def on_start(self, start: Start) -> None:
        """Write what identifies the run, and begin its table."""
        with self._explained():
            self.table.begin(self._earlier)
            identity = {"algorithm": start.algorithm, "settings": plain_settings(start.settings), "task": start.task}
            plan = {"seed": start.seed, "last": start.last, "conditions": dict(start.conditions)}
            self._write_about("running", identity | plan | {"diverged": None})
        self._next = time.monotonic() + self.seconds
        where = f"continues from round {start.first}" if start.first else "begins"
        LOG.info("%s on %s, seed %d, %s, to round %d", start.algorithm, start.task, start.seed, where, start.last)

    def on_evaluation(self, moment: Moment) -> None:
        """Write what is new; save the state if that is due, or if the run is to stop."""
        history = moment.history
        with self._explained():
            if moment.round > self.saved:
                self.claim.settle()
            self.table.add(history)
            measured = ", ".join(f"{name} {history.final(name):.6g}" for name in history.metrics)
            LOG.info("round %d of %d: %s", moment.round, moment.last, measured)
            if self.interrupted:
                moment.stop()
            if moment.stopping or moment.round == moment.last or time.monotonic() >= self._next:
                self._keep(moment)
            if time.monotonic() >= self._next_parquet:
                self.table.write_parquet(history)
                self._next_parquet = time.monotonic() + BETWEEN_PARQUETS

    def on_end(self, history: History | None, end: End) -> None:
        """Write the rest, and how it ended."""
        if end != "failed":
            self.claim.settle()
        with self._explained() if end in ("finished", "stopped") else contextlib.suppress(OSError):
            if history is not None:
                self.table.write_parquet(history)
            told: dict[str, Any] = {"diverged": None if history is None else history.diverged}
            if history is not None and end == "finished":
                save_history(history, self.folder)
                told |= {"last": int(history.rounds[-1]), "conditions": dict(history.conditions)}  # it may end early
            self._write_about(end, told)
        LOG.info("%s at round %s", end, "?" if history is None else history.rounds[-1])

    def _keep(self, moment: Moment) -> None:
        began = time.monotonic()
        self.checkpoints.save(moment.history, moment.state())
        self.saved = moment.round
        took = time.monotonic() - began
        self._next = time.monotonic() + max(self.seconds, SHARE * took)
        LOG.info("checkpoint of round %d, %.2f s", moment.round, took)

    def _write_about(self, status: str, more: Mapping[str, Any]) -> None:
        self.about |= {**more, "status": status, "changed": now()}
        write_whole(self.folder / ABOUT, json.dumps({"format": FORMAT, **self.about}, indent=2, ensure_ascii=False))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn any error of a file into one that says what is lost and how to continue."""
        try:
            yield
        except Exception as error:
            kept, way_on = f"the run is kept up to round {self.saved}", "continue with --resume"
            if self.claim.replacing:
                kept, way_on = "what was there before is kept", "run it again"
            raise FolderError(
                f"cannot write to {self.folder} ({_reason(error)}); {kept}: make room or give the folder back its "
                f"permissions, then {way_on}"
            ) from error


def save_history(history: History, folder: Path) -> None:
    """Write the history with its model; without it if its parameters are not in plain containers."""
    import dataclasses

    try:
        history.save(folder / HISTORY)
    except TypeError as error:
        LOG.warning("the model is not in %s: %s", HISTORY, error)
        dataclasses.replace(history, params=None, model_state=None).save(folder / HISTORY)


def now() -> str:
    """Return the time of day as files have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _reason(error: BaseException) -> str:
    text = str(error)
    for known in ("No space left on device", "Permission denied", "File too large", "Read-only file system"):
        if known in text:
            return known
    return " ".join(text.split())[:200] or type(error).__name__
