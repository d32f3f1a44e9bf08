"""A Flower server from any algorithm: a strategy with its own loop.

Flower's own loop averages all that came back and keeps nothing; here a round counts only once it is on the disk, and
every order says what the server has accepted (docs/protocol.md). The strategy therefore drives the grid itself.
"""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from flwr.serverapp import Grid

from losac._costs import COSTS, SPENT, by_name
from losac.algorithms.contract import Algorithm
from losac.federation import durable
from losac.federation.book import Book, RefusedError, Rules
from losac.federation.central import Central, central_of
from losac.federation.checkpoint import load_book, save_book
from losac.federation.drive import Driver, MeasuredRound
from losac.federation.requests import carry_out, take_check
from losac.federation.setting import Setting
from losac.federation.status import Reporter
from losac.flower.transport import FlowerTransport
from losac.history import treefile
from losac.history.history import History
from losac.simulation.options import check_keywords, names, takes_options
from losac.simulation.sampling import make_sampler
from losac.task import Task

LOG = logging.getLogger("losac")

PAUSE = 1.0
"""Seconds to wait after a round that did not count, at first."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a server waits for clients.

    Args:
      deadline: seconds for each phase of a round; None waits until every client has answered or failed, perhaps
        without end.
      patience: seconds to wait for clients at the start.
      attempts: give up after this many rounds in a row that did not count.
      forget_after: remove clients that were absent for this many rounds; None keeps them.
    """

    deadline: float | None = 600.0
    patience: float = 300.0
    attempts: int = 20
    forget_after: int | None = None


class LimitKeywords(TypedDict, total=False):
    """The fields of :class:`Limits` as keywords."""

    deadline: float | None
    patience: float
    attempts: int
    forget_after: int | None


class Strategy:
    """Runs one algorithm on Flower's grid.

    Args:
      algorithm: the method.
      rules: see :class:`losac.federation.book.Rules`.
      limits: see :class:`Limits`; each of its fields can also be given as a keyword, which wins.
      out: a folder for the checkpoint and the results; a run with a checkpoint there continues. None keeps nothing.
      sampling: as for :func:`losac.simulate`.
      mean_rows: if given, clients count by their rows over this number; else all count equally.
      evaluate_every: rounds between two evaluations.
      evaluate_clients: whether the clients evaluate too, on their own data.
      node_keys: whether names are bound to the keys of nodes. Without registered keys, Flower makes a new one at each
        start of a node: then it must be False, and anyone who can connect can take any name.
    """

    @takes_options(Limits)
    def __init__(
        self, algorithm: Algorithm, rules: Rules, *, limits: Limits | None = None, out: str | Path | None = None,
        sampling: Any = None, mean_rows: float | None = None, evaluate_every: int = 1, evaluate_clients: bool = False,
        node_keys: bool = True, **keywords: Unpack[LimitKeywords],
    ) -> None:  # fmt: skip
        check_keywords(type(self), keywords, names(Limits))
        self.algorithm, self.rules = algorithm, rules
        self.limits = replace(limits or Limits(), **keywords)
        self.out = None if out is None else Path(out)
        self.sampler = make_sampler(sampling, rules.clients, rules.clients_per_round, algorithm.partial)
        self.mean_rows, self.node_keys = mean_rows, node_keys
        self.evaluate_every, self.evaluate_clients = evaluate_every, evaluate_clients
        if evaluate_clients and rules.secure is not None:
            raise RefusedError(
                "evaluate_clients: each client would send a loss on its own data, which secure aggregation does not "
                "hide; measure on the server's data"
            )
        self.log: list[dict[str, Any]] = []
        self.save: Callable[[Book], None] = lambda book: None

    def start(self, grid: Grid, central: Central | Task, num_rounds: int) -> History:
        """Run, or continue, until this many rounds are accepted; return what was measured.

        Only the first model, the regulariser and the test data of a task are used.
        """
        with contextlib.nullcontext() if self.out is None else _held(self.out):
            about = {"algorithm": self.algorithm.label, "rounds": num_rounds, "places": self.rules.clients}
            with Reporter(self.out, about) as reporter:
                return self._start(grid, central, num_rounds, reporter)

    def _start(self, grid: Grid, central: Central | Task, num_rounds: int, reporter: Reporter) -> History:
        rules = self.rules
        if isinstance(central, Task):
            central = central_of(central, rules.seed, rules.dtype)
        setting = Setting(
            self.algorithm, rules, central.params, central.model_state, central.regularizer, self.sampler,
            central.frozen,
        )  # fmt: skip
        book, self.log = self._begin(setting)
        transport = FlowerTransport(grid, setting, node_keys=self.node_keys)
        driver = _driver_of(rules)(
            setting, transport, book, self.save, deadline=self.limits.deadline, weigh=self._weigh,
            forget_after=self.limits.forget_after, pause=PAUSE, requests=self._requests(setting),
        )  # fmt: skip
        reporter.write(run=book.run, round=book.round)
        self._wait_for_clients(transport)
        driver.gather()
        if not self.log or self.log[-1]["round"] != book.round:
            self._record(driver, central, transport, None)
        reporter.follow(driver, self.log)
        for measured in driver.run(num_rounds, self.limits.attempts):
            due = measured.book.round % self.evaluate_every == 0 or measured.book.round == num_rounds
            self._record(driver, central, transport, measured, due and not measured.void)
            self.save(driver.book)
            reporter.follow(driver, self.log)
            if self.out is not None and take_check(self.out):
                self._check(driver, reporter)
        history = self._history(central, setting, driver.book)
        if self.out is not None:
            history.save(self.out / "history.npz")
            history.to_frame().to_csv(self.out / "metrics.csv", index=False)
            self._write_answered(self.out / "answered.csv")
            treefile.save(self.out / "model.npz", {"params": history.params, "model_state": history.model_state})
            self._check(driver, reporter)
            for path in self.out.iterdir():
                if path.is_file():
                    path.chmod(0o600)
        return history

    def _check(self, driver: Driver, reporter: Reporter) -> None:
        """Measure how far the server's sums are from what the clients hold."""
        assert self.out is not None
        error = driver.invariant_error()
        (self.out / "invariant.json").write_text(json.dumps({"relative_error": error}))
        LOG.info("the server's sums and what the clients hold differ by %.1e", error)
        reporter.write(invariant={"round": driver.book.round, "relative_error": error})

    def _begin(self, setting: Setting) -> tuple[Book, list[dict[str, Any]]]:
        if self.out is not None:
            path = self.out / "checkpoint"
            self.save = lambda book: save_book(path, setting, book, self.log)
            found = load_book(path, setting)
            if found is not None:
                LOG.info("continuing after round %d", found[0].round)
                return found
        return setting.first_book(uuid.uuid4().hex[:12]), []

    def _requests(self, setting: Setting) -> Callable[[Book], Book]:
        """Return what carries out an operator's requests."""
        out, save = self.out, self.save
        return (lambda book: book) if out is None else lambda book: carry_out(out, setting, book, save)

    def _weigh(self, rows: int) -> float:
        return 1.0 if self.mean_rows is None else rows / self.mean_rows

    def _wait_for_clients(self, transport: FlowerTransport) -> None:
        until = time.monotonic() + self.limits.patience
        while (there := len(list(transport.peers()))) < self.rules.clients_per_round:
            if time.monotonic() > until:
                if there >= self.rules.fewest:
                    LOG.warning("starting with %d clients: no more came in %.0f s", there, self.limits.patience)
                    return
                raise RefusedError(f"{there} clients came within {self.limits.patience:.0f} s, and a round needs more")
            time.sleep(1)

    def _record(
        self,
        driver: Driver,
        central: Central,
        transport: FlowerTransport,
        measured: MeasuredRound | None,
        due: bool = True,
    ) -> None:
        """Add a line to the log, with metrics if they are due.

        Without a measured round it is that of the start, or of a round that was accepted just before the server was
        killed: its book still says who answered.
        """
        book, last = driver.book, self.log[-1] if self.log else {}
        line: dict[str, Any] = {"round": book.round, "void": measured.void if measured else ""}
        line["answered"] = list(measured.answered if measured else book.answered)
        line["asked"] = list(measured.asked if measured else book.answered)
        spent = {**measured.costs, "seconds": measured.seconds} if measured else {}
        line |= {name: last.get(name, 0) + spent.get(name, 0) for name in SPENT}
        if due:
            params = driver.setting.model(book)
            line["metrics"] = self._measure(central, transport, book, params)
            line["metrics"]["answered"] = float(len(line["answered"]))
            told = ", ".join(f"{name} {value:.4g}" for name, value in line["metrics"].items())
            LOG.info("measured: %s", told, extra={"round": book.round})
        self.log.append(line)

    def _measure(self, central: Central, transport: FlowerTransport, book: Book, params: Any) -> dict[str, float]:
        found, model_state, members = {}, book.model_state, book.members
        if self.evaluate_clients:
            theirs = transport.evaluate(members, params, model_state, self.limits.deadline)
            rows = sum(members[name].rows for name in theirs)
            losses = sum(members[name].rows * loss for name, loss in theirs.items())
            found["loss"] = losses / rows if rows else float("nan")
        return found | central.evaluate(params, model_state)

    def _write_answered(self, path: Path) -> None:
        """Write who was asked and who answered, attempt by attempt, and why those void do not count."""
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["round", "asked", "answered", "void"])
            for line in self.log[1:]:
                told = (" ".join(map(json.dumps, line.get(part, []))) for part in ("asked", "answered"))
                table.writerow([line["round"], *told, line["void"]])

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
            costs=by_name([[line[name] for name in COSTS] for line in lines]),
            seconds=np.array([line["seconds"] for line in lines], float),
            params=setting.model(book),
            model_state=book.model_state,
        )


def _driver_of(rules: Rules) -> type[Driver]:
    """Return the server's loop."""
    if rules.secure is None:
        return Driver
    from losac.federation.secure.drive import SecureDriver

    return SecureDriver


@contextlib.contextmanager
def _held(out: Path) -> Iterator[None]:
    """Lock a folder against another server."""
    try:
        with durable.locked(out, private=True):
            yield
    except BlockingIOError:
        raise RefusedError(f"another server runs in {out}: stop it, or give another folder") from None
