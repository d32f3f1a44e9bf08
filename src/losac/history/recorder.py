"""Collects what an engine measures, and makes histories of it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.history.history import History
from losac.simulation.engine import Engine, Measured
from losac.simulation.members import Members
from losac.simulation.program import Costs
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


def header(engine: Engine | Members, algorithm: Algorithm, seed: int) -> Header:
    """Return the header of an engine's run, or of one member's."""
    data = engine.task.data
    steps = np.asarray(engine.problem.resident.steps)
    return Header(algorithm, engine.task.name, seed, np.asarray(data.sizes), engine.plan.sampled, engine.costs, steps)


class Recorder:
    """The record of one run while it goes on; what lies beyond a divergence is left out."""

    def __init__(self, header: Header, start: int, metrics: dict[str, np.ndarray]) -> None:
        self.header = header
        self.began = time.perf_counter()
        self.rounds = [np.array([start])]
        self.metrics = [{k: np.asarray(v)[None] for k, v in metrics.items()}]
        self.totals = [np.zeros((1, 3))]  # bytes up, bytes down, gradients
        self.seconds = [np.zeros(1)]
        self.diverged: int | None = None

    def add(self, measured: Measured) -> None:
        """Take in one call of the program."""
        if self.diverged is not None:
            return
        rounds, metrics, keep = measured.rounds, measured.metrics, len(measured.rounds)
        if measured.broken >= 0:
            self.diverged = measured.broken
            keep = int(np.searchsorted(rounds, measured.broken))
        bad = np.any([_not_finite(name, values) for name, values in metrics.items()], axis=0)
        if bad[:keep].any():
            keep = int(np.argmax(bad))
            self.diverged = int(rounds[keep])
        if keep:
            spent = np.array([self._spent(ids, r) for ids, r in zip(measured.visits, self._lengths(rounds))])[:keep]
            self.totals.append(self.totals[-1][-1:] + np.cumsum(spent, axis=0))
            self.rounds.append(rounds[:keep])
            self.metrics.append({k: v[:keep] for k, v in metrics.items()})
            self.seconds.append(np.full(keep, time.perf_counter() - self.began))

    def _lengths(self, rounds: np.ndarray) -> np.ndarray:
        return np.diff([self.rounds[-1][-1], *rounds])

    def _spent(self, ids: np.ndarray, rounds: int) -> np.ndarray:
        """Return the bytes up and down and the gradients that some rounds with these visits of clients cost."""
        sizes = self.header.sizes
        total = np.zeros(3)
        for index, (phase, cost) in enumerate(zip(self.header.algorithm.phases(), self.header.costs)):
            who = np.tile(np.arange(len(sizes)), rounds) if phase.clients == "all" else ids
            draw = phase.draw
            rows = sizes[who] / draw.blocks if draw.batch_size is None else np.minimum(draw.batch_size, sizes[who])
            per_visit = (
                cost.gradients_per_step * self.header.steps[index][who] * rows + cost.full_gradients * sizes[who]
            )
            total += (cost.up * len(who), cost.down * len(who), per_visit.sum())
        return total

    def history(self, params: Tree = None, model_state: Tree = None, state: Any = None) -> History:
        """Return the history so far, with the model where it is given."""
        totals = np.concatenate(self.totals)
        return History(
            algorithm=self.header.algorithm.label,
            settings=self.header.algorithm.settings(),
            task=self.header.task,
            seed=self.header.seed,
            rounds=np.concatenate(self.rounds),
            metrics={k: np.concatenate([m[k] for m in self.metrics]) for k in self.metrics[0]},
            bytes_up=totals[:, 0].astype(np.int64),
            bytes_down=totals[:, 1].astype(np.int64),
            gradients=totals[:, 2],
            seconds=np.concatenate(self.seconds),
            params=params,
            model_state=model_state,
            diverged=self.diverged,
            state=state,
        )


def _not_finite(name: str, values: np.ndarray) -> np.ndarray:
    """Whether a metric left the finite numbers; NaN in the training loss may also mean that it was not evaluated."""
    return np.isinf(values) | (np.isnan(values) & (name not in ("loss", "objective")))
