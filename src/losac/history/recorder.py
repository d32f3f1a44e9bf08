"""Collects what an engine measures, and makes histories of it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.history.history import History
from losac.simulation.costs import Costs, random_steps, took_place
from losac.simulation.engine import Engine, Measured
from losac.simulation.members import Members
from losac.simulation.paged import Paged
from losac.trees import Tree


class Header(NamedTuple):
    """What identifies a run and prices its rounds."""

    algorithm: Algorithm
    task: str
    seed: int
    sizes: np.ndarray
    sampled: int
    costs: tuple[Costs, ...]
    steps: np.ndarray  # [phases, N]


def header(engine: Engine | Members | Paged, algorithm: Algorithm, seed: int) -> Header:
    """Return the header of an engine's run, or of one member's."""
    data = engine.task.data
    steps = np.asarray(engine.problem.resident.steps)
    return Header(algorithm, engine.task.name, seed, np.asarray(data.sizes), engine.plan.sampled, engine.costs, steps)


class Recorder:
    """The record of one run while it goes on; what lies beyond a divergence is left out."""

    def __init__(self, header: Header, start: int, earlier: History | None = None) -> None:
        self.header = header
        self.began = time.perf_counter()
        self.last = start
        self.rounds: list[int] = []
        self.metrics: dict[str, list[float]] = {}
        self.totals: list[np.ndarray] = []  # bytes up, bytes down, gradients
        self.seconds: list[float] = []
        self.diverged: int | None = None
        if earlier is not None:
            self._go_on(earlier)

    def _go_on(self, earlier: History) -> None:
        """Continue the record of an earlier part of the run, its time included."""
        mine = (self.header.algorithm.label, self.header.task, self.header.seed, self.last)
        theirs = (earlier.algorithm, earlier.task, earlier.seed, int(earlier.rounds[-1]))
        for name, own, other in zip(("algorithm", "task", "seed", "last round"), mine, theirs):
            if own != other:
                raise ValueError(f"the given history is of another run: its {name} is {other!r}, here it is {own!r}")
        self.rounds = earlier.rounds.tolist()
        self.metrics = {name: series.tolist() for name, series in earlier.metrics.items()}
        self.totals = list(np.stack([earlier.bytes_up, earlier.bytes_down, earlier.gradients], axis=1).astype(float))
        self.seconds = earlier.seconds.tolist()
        self.began -= self.seconds[-1]

    def add(self, measured: Measured) -> None:
        """Take in one call of the program."""
        now = time.perf_counter() - self.began
        for e, (stop, ids) in enumerate(zip(measured.rounds.tolist(), measured.visits)):
            values = {name: series[e] for name, series in measured.metrics.items()}
            for name in values:
                self.metrics.setdefault(name, [])
            if self.diverged is None and 0 <= measured.broken <= stop:
                self.diverged = measured.broken
            if self.diverged is None and any(_not_finite(name, value) for name, value in values.items()):
                self.diverged = stop
            if self.diverged is not None:
                return
            spent = self._spent(ids, self.last, stop - self.last)
            self.totals.append(spent + self.totals[-1] if self.totals else spent)
            self.rounds.append(stop)
            self.seconds.append(now)
            for name, value in values.items():
                self.metrics[name].append(float(value))
            self.last = stop

    def _spent(self, ids: np.ndarray, first: int, rounds: int) -> np.ndarray:
        """Return the bytes up and down and the gradients that some rounds with these visits of clients cost.

        A phase by chance asks all clients or the round's; for the latter the visits are shared out evenly, as they are
        among the rounds where these differ in their number of steps.
        """
        sizes = self.header.sizes
        total = np.zeros(3)
        if not rounds:
            return total
        drawn = random_steps(self.header.algorithm, self.header.seed, first, rounds)
        for index, (phase, cost) in enumerate(zip(self.header.algorithm.phases(), self.header.costs)):
            times = took_place(self.header.algorithm, index, self.header.seed, first, rounds)
            who = np.tile(np.arange(len(sizes)), times) if phase.clients == "all" else ids[: len(ids) * times // rounds]
            draw = phase.draw
            rows = sizes[who] / draw.blocks if draw.batch_size is None else np.minimum(draw.batch_size, sizes[who])
            steps: Any = self.header.steps[index][who]
            if phase is self.header.algorithm and drawn is not None:
                steps = sum(drawn) / rounds
            per_visit = cost.gradients_per_step * steps * rows + cost.full_gradients * sizes[who]
            total += (cost.up * len(who), cost.down * len(who), per_visit.sum())
        return total

    def history(self, params: Tree = None, model_state: Tree = None, state: Any = None) -> History:
        """Return the history so far, with the model where it is given."""
        totals = np.array(self.totals).reshape(-1, 3)
        return History(
            algorithm=self.header.algorithm.label,
            settings=self.header.algorithm.settings(),
            task=self.header.task,
            seed=self.header.seed,
            rounds=np.array(self.rounds, int),
            metrics={name: np.array(series) for name, series in self.metrics.items()},
            bytes_up=totals[:, 0].astype(np.int64),
            bytes_down=totals[:, 1].astype(np.int64),
            gradients=totals[:, 2],
            seconds=np.array(self.seconds),
            params=params,
            model_state=model_state,
            diverged=self.diverged,
            state=state,
        )


def _not_finite(name: str, value: float) -> bool:
    """Whether a metric left the finite numbers; NaN in the training loss may also mean that it was not evaluated."""
    return bool(np.isinf(value) or (np.isnan(value) and name not in ("loss", "objective")))
