"""A Flower server from any algorithm: a strategy with a loop of its own.

Flower's own loop averages whatever came back and keeps nothing; here a round counts only once it is on the disk, and
every order says what the server has accepted (docs/protocol.md). The strategy therefore drives the grid itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from losac.algorithms.contract import Algorithm
from losac.federation import durable
from losac.federation.book import Book, RefusedError, Rules
from losac.federation.central import Central, central_of
from losac.federation.checkpoint import load_book, save_book
from losac.federation.drive import Driver, Measured
from losac.federation.setting import Setting
from losac.flower.transport import FlowerTransport
from losac.history import treefile
from losac.history.history import History
from losac.simulation.sampling import make_sampler
from losac.task import Task

LOG = logging.getLogger("losac")

PAUSE = 1.0
"""Seconds to wait after a round that did not count, at first."""


class Strategy:
    """Runs one algorithm on Flower's grid.

    Args:
      algorithm: the method.
      rules: see :class:`losac.federation.book.Rules`.
      deadline: seconds for each phase of a round; None waits until every client has answered or failed, which may be
        for ever.
      out: a folder for the checkpoint and the results; a run whose checkpoint is there goes on. None keeps nothing.
      sampling: as for :func:`losac.simulate`.
      mean_rows: where given, clients count by their rows over this number; else all alike.
      evaluate_every: rounds between two evaluations.
      evaluate_clients: whether the clients evaluate too, on their own data.
      forget_after: take out clients that were not there for so many rounds.
      patience: seconds to wait for clients at the start.
      attempts: give up after so many rounds in a row that did not count.
    """

    def __init__(
        self, algorithm: Algorithm, rules: Rules, *, deadline: float | None = 600.0, out: str | Path | None = None,
        sampling: Any = None, mean_rows: float | None = None, evaluate_every: int = 1, evaluate_clients: bool = False,
        forget_after: int | None = None, patience: float = 300.0, attempts: int = 20,
    ) -> None:  # fmt: skip
        self.algorithm, self.rules, self.deadline = algorithm, rules, deadline
        self.out = None if out is None else Path(out)
        self.sampler = make_sampler(sampling, rules.clients, rules.clients_per_round, algorithm.partial)
        self.mean_rows, self.forget_after, self.patience, self.attempts = mean_rows, forget_after, patience, attempts
        self.evaluate_every, self.evaluate_clients = evaluate_every, evaluate_clients
        self.log: list[dict[str, Any]] = []
        self.save: Callable[[Book], None] = lambda book: None

    def start(self, grid: Grid, central: Central | Task, num_rounds: int) -> History:
        """Run, or go on, until so many rounds are accepted; return what was measured.

        Of a task only the first model, the regulariser and the test data are used.
        """
        with contextlib.nullcontext() if self.out is None else _held(self.out):
            return self._start(grid, central, num_rounds)

    def _start(self, grid: Grid, central: Central | Task, num_rounds: int) -> History:
        rules = self.rules
        if isinstance(central, Task):
            central = central_of(central, rules.seed, rules.dtype)
        setting = Setting(self.algorithm, rules, central.params, central.model_state, central.regularizer, self.sampler)
        book, self.log = self._begin(setting)
        transport = FlowerTransport(grid, setting)
        driver = Driver(
            setting, transport, book, self.save, deadline=self.deadline, weigh=self._weigh,
            forget_after=self.forget_after, pause=PAUSE,
        )  # fmt: skip
        self._wait_for_clients(transport)
        if not self.log or self.log[-1]["round"] != book.round:
            self._record(driver, central, transport, None)
        for measured in driver.run(num_rounds, self.attempts):
            due = measured.book.round % self.evaluate_every == 0 or measured.book.round == num_rounds
            self._record(driver, central, transport, measured, due and not measured.void)
            self.save(driver.book)
        history = self._history(central, setting, driver.book)
        if self.out is not None:
            history.save(self.out / "history.npz")
            history.to_frame().to_csv(self.out / "metrics.csv", index=False)
            treefile.save(self.out / "model.npz", {"params": history.params, "model_state": history.model_state})
            error = driver.invariant_error()
            (self.out / "invariant.json").write_text(json.dumps({"relative_error": error}))
        return history

    def _begin(self, setting: Setting) -> tuple[Book, list[dict[str, Any]]]:
        if self.out is not None:
            path = self.out / "checkpoint"
            self.save = lambda book: save_book(path, setting, book, self.log)
            found = load_book(path, setting)
            if found is not None:
                LOG.info("going on after round %d", found[0].round)
                return found
        return setting.first_book(uuid.uuid4().hex[:12]), []

    def _weigh(self, rows: int) -> float:
        return 1.0 if self.mean_rows is None else rows / self.mean_rows

    def _wait_for_clients(self, transport: FlowerTransport) -> None:
        until = time.monotonic() + self.patience
        while (there := len(list(transport.peers()))) < self.rules.clients_per_round:
            if time.monotonic() > until:
                if there >= self.rules.fewest:
                    LOG.warning("beginning with %d clients: no more came in %.0f s", there, self.patience)
                    return
                raise RefusedError(f"{there} clients came within {self.patience:.0f} s, and a round needs more")
            time.sleep(1)

    def _record(
        self, driver: Driver, central: Central, transport: FlowerTransport, measured: Measured | None, due: bool = True
    ) -> None:
        """Add a line to the log, with metrics where they are due."""
        book, last = driver.book, self.log[-1] if self.log else {}
        line: dict[str, Any] = {"round": book.round, "void": measured.void if measured else ""}
        line["answered"] = list(measured.answered) if measured else []
        for name in ("bytes_up", "bytes_down", "gradients", "seconds"):
            line[name] = last.get(name, 0) + (getattr(measured, name) if measured else 0)
        if due:
            params = driver.setting.model(book)
            line["metrics"] = self._measure(central, transport, params, book.model_state)
            LOG.info("round %d: %s", book.round, ", ".join(f"{k} {v:.4g}" for k, v in line["metrics"].items()))
        self.log.append(line)

    def _measure(self, central: Central, transport: FlowerTransport, params: Any, model_state: Any) -> dict[str, float]:
        found = {}
        if self.evaluate_clients:
            theirs = transport.evaluate(params, model_state, self.deadline)
            rows = sum(m["rows"] for m in theirs.values())
            found["loss"] = sum(m["rows"] * m["loss"] for m in theirs.values()) / rows if rows else float("nan")
        return found | central.evaluate(params, model_state)

    def _history(self, central: Central, setting: Setting, book: Book) -> History:
        lines = [line for line in self.log if "metrics" in line]
        names = lines[-1]["metrics"]
        return History(
            algorithm=self.algorithm.label,
            settings=self.algorithm.settings(),
            task=central.name,
            seed=self.rules.seed,
            rounds=np.array([line["round"] for line in lines], int),
            metrics={name: np.array([line["metrics"].get(name, np.nan) for line in lines]) for name in names},
            bytes_up=np.array([line["bytes_up"] for line in lines], np.int64),
            bytes_down=np.array([line["bytes_down"] for line in lines], np.int64),
            gradients=np.array([line["gradients"] for line in lines], float),
            seconds=np.array([line["seconds"] for line in lines], float),
            params=setting.model(book),
            model_state=book.model_state,
        )


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Hold a folder against another server."""
    try:
        with durable.locked(out):
            yield
    except BlockingIOError:
        raise RefusedError(f"another server runs in {out}: stop it, or give another folder") from None
