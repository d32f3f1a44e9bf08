"""The result of one point of the space, and the order of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from losac.history import History
from losac.metrics import falls
from losac.tuning.space import Point


class AllDivergedError(ValueError):
    """Every point of the space diverged."""


class Goal(NamedTuple):
    """The goal: a metric of the histories, and, if given, a value to reach in few rounds."""

    metric: str
    recorded: str
    """The metric's name in the histories, where the validation rows are the test rows."""
    tie_break: str
    target: float | None
    rounds: int
    sustained: int = 1


@dataclass(frozen=True)
class Trial:
    """One point of the space, run with all seeds.

    Attributes:
      settings: the point.
      values: the final metric of each seed; NaN if it diverged.
      diverged: the first round at which a seed diverged; None if none did.
      rounds_to: the mean round at which the target is reached; None without one, or if a seed never gets there.
      cost: the value to compare, smaller is better; infinite if a seed diverged or the metric is undefined.
      loss: the mean final loss on the same rows, which decides between equal costs.
    """

    settings: Point
    values: tuple[float, ...]
    diverged: int | None
    rounds_to: float | None
    cost: float
    loss: float

    @property
    def score(self) -> float:
        """The mean over the seeds; NaN if one diverged."""
        return float(np.mean(self.values))

    @property
    def spread(self) -> float:
        """The standard deviation over the seeds; 0 for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def record(self) -> dict[str, Any]:
        """Return the trial as a row of a table."""
        reached = {"score": self.score, "spread": self.spread, "rounds_to": self.rounds_to}
        return {**self.settings, **reached, "diverged": self.diverged}


Evaluate = Callable[[Sequence[Point]], list[Trial]]


def make_trial(settings: Point, runs: Sequence[History], goal: Goal) -> Trial:
    """Return the trial of one point from its runs, one for each seed."""
    ends = [run.diverged for run in runs if run.diverged is not None]
    values = tuple(math.nan if run.diverged is not None else run.final(goal.recorded) for run in runs)
    firsts: list[int | None] = []
    if goal.target is not None and not ends:
        firsts = [run.rounds_to(goal.recorded, goal.target, sustained=goal.sustained) for run in runs]
    reached = [float(first) for first in firsts if first is not None]
    rounds_to = float(np.mean(reached)) if reached and len(reached) == len(runs) else None
    cost = math.inf if ends else _cost(float(np.mean(values)), rounds_to, goal)
    loss = math.inf if ends else float(np.mean([run.final(goal.tie_break) for run in runs]))
    return Trial(settings, values, min(ends) if ends else None, rounds_to, cost, loss)


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials, the best first and diverged ones last."""
    return sorted(trials, key=lambda trial: (trial.cost, trial.loss))


def _cost(score: float, rounds_to: float | None, goal: Goal) -> float:
    """Return the metric, negated if large is best, or the rounds to the target (above all others if missed)."""
    if math.isnan(score):
        return math.inf
    signed = score if falls(goal.metric) else -score
    if goal.target is None:
        return signed
    return goal.rounds + 2 + math.atan(signed) if rounds_to is None else rounds_to
