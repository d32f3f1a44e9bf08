"""losac: the simulator, or one sweep where the job has many members."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
from protocol import Job, serve
from simulator import Simulator, make_algorithm, make_task, mean_loss

import losac
from losac_reproduction.lowrank import one_thread_each


class Rounds:
    """One run on the compiled simulator."""

    plan = "clients and batches"

    def __init__(self, job: Job) -> None:
        self.job, self.task, self.algorithm = job, task_of(job), make_algorithm(job)
        self.simulator = Simulator(self.task, self.algorithm, job.sampled)
        self.about = "LAPACK kept to one thread, as in `losac reproduce fig7`" if job.model == "matrix" else ""

    def run(self, rounds: int) -> float:
        with one_thread_each() if self.job.model == "matrix" else nullcontext():
            return self.simulator.run(rounds)

    def check(self, rounds: int) -> float:
        self.run(rounds)
        return self._loss(self.simulator)

    def more(self) -> dict[str, Any]:
        """Return the losses with other clients and blocks, where somebody draws his own."""
        if "flower" not in self.job.contenders:
            return {}
        others = [Simulator(self.task, self.algorithm, self.job.sampled, seed=seed) for seed in range(1, 6)]
        for one in others:
            one.run(self.job.check)
        return {"other_seeds": [self._loss(one) for one in others]}

    def _loss(self, simulator: Simulator) -> float:
        return mean_loss(self.task, simulator.params(), self.job.judged())


class Sweep:
    """All members as one program."""

    plan, about = "clients and batches", "one program"

    def __init__(self, job: Job) -> None:
        self.job, self.task = job, task_of(job)

    def members(self, rounds: int) -> Any:
        return losac.sweep(
            self.task,
            make_algorithm(self.job),
            {"step_size": self.job.swept_steps},
            self.job.swept_seeds,
            rounds=rounds,
            eval_every=rounds,
            clients_per_round=self.job.sampled,
        ).members

    def check(self, rounds: int) -> float:
        return of_the_planned(self.job, self.members(rounds))

    def run(self, rounds: int) -> float:
        began = time.perf_counter()
        self.members(rounds)
        return time.perf_counter() - began


def of_the_planned(job: Job, members: Any) -> float:
    """Return the final loss of the member with the job's own step size and the seed of the plan."""
    return next(h.final("loss") for h in members if h.seed == 0 and np.isclose(h.settings["step_size"], job.step))


def task_of(job: Job) -> losac.Task:
    """Return the problem on the exported data."""
    return make_task(job, losac.FederatedData(job.x, job.y, np.asarray(job.offsets)), job.weights)


if __name__ == "__main__":
    serve(lambda job: Sweep(job) if job.members > 1 else Rounds(job))
