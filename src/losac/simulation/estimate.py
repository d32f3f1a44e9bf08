"""``losac.estimate``: how long a run will take, from its first rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Unpack

from losac._checks import check_count
from losac._units import human_seconds
from losac.algorithms.contract import Algorithm
from losac.simulation.options import (
    ComputeOptions,
    RunOptions,
    SimulateKeywords,
    read_options,
    takes_options,
)
from losac.simulation.simulate import simulate
from losac.task import Task


class RunEstimate(NamedTuple):
    """What a run of some rounds will take: seconds before its first round, and seconds per round with evaluations."""

    rounds: int
    start: float
    per_round: float

    @property
    def seconds(self) -> float:
        """The duration of the run."""
        return self.start + self.rounds * self.per_round

    def __str__(self) -> str:
        each = f"{self.per_round:.3g} s" if self.per_round >= 1 else f"{1000 * self.per_round:.3g} ms"
        return (
            f"{self.rounds} rounds take about {human_seconds(self.seconds)}: {human_seconds(self.start)} to start, "
            f"{each} per round"
        )


@takes_options(RunOptions, ComputeOptions)
def estimate(
    task: Task,
    algorithm: Algorithm,
    run: RunOptions | None = None,
    compute: ComputeOptions | None = None,
    **options: Unpack[SimulateKeywords],
) -> RunEstimate:
    """Return how long :func:`losac.simulate` will take with these arguments, by running to its first evaluation.

    Rounds are timed after the program is compiled; a machine that others use too gives no more than the order.

    >>> import losac
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), losac.data.load("digits", clients=10))
    >>> algorithm = losac.algorithms.losac(step_size=1e-3, local_steps=4, blocks=5)
    >>> str(estimate(task, algorithm, rounds=2000, eval_every=10))
    '2000 rounds take about ...: ... to start, ... per round'
    """
    run, compute = read_options(estimate, run, compute, options)
    rounds = check_count("rounds", run.rounds)
    tried = min(rounds, int(run.eval_every))
    history = simulate(task, algorithm, replace(run, rounds=tried, until=None), compute)
    start, end = history.seconds[0], history.seconds[-1]
    return RunEstimate(rounds, float(start), float(end - start) / tried)
