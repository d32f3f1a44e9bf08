"""``losac.sweep``: many settings and seeds of one algorithm, as one compiled program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.history.follow import evaluation_rounds
from losac.history.history import History, falls
from losac.history.recorder import Recorder, header
from losac.history.simulate import Dtype, Matmul, TableDtype, check_counts, check_matmul, make_plan
from losac.simulation.engine import precision
from losac.simulation.members import Members, fitting
from losac.simulation.sampling import make_sampler
from losac.simulation.setup import Gradients, Plan
from losac.task import Task

Job = tuple[Algorithm, int]
"""An algorithm and the seed to run it with."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """The histories of all members, in the order of the grid, seeds last; diverged members are marked, not dropped."""

    members: tuple[History, ...]
    grid: Mapping[str, tuple[Any, ...]]
    seeds: tuple[int, ...]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per member with its settings, final metrics and where it diverged."""
        import pandas as pd

        rows = [
            {name: h.settings[name] for name in self.grid}
            | {"seed": h.seed, "rounds": int(h.rounds[-1])}
            | {name: float("nan") if h.diverged is not None else h.final(name) for name in h.metrics}
            | {"diverged": h.diverged}
            for h in self.members
        ]
        return pd.DataFrame(rows)

    def best(self, metric: str) -> dict[str, Any]:
        """Return the settings with the best mean final metric over the seeds; those that diverged do not count.

        Losses and objectives are best when small, everything else when large.
        """
        scores = self.scores(metric)
        if not scores:
            raise ValueError("every member of the sweep diverged: widen the grid towards smaller steps")
        sign = 1 if falls(metric) else -1
        best: tuple[Any, ...] = min(scores.items(), key=lambda item: sign * item[1])[0]
        return dict(zip(self.grid, best))

    def scores(self, metric: str) -> dict[tuple[Any, ...], float]:
        """Return the mean final metric of every grid point none of whose seeds diverged."""
        points: dict[tuple[Any, ...], list[float]] = {}
        for h in self.members:
            point = tuple(h.settings[name] for name in self.grid)
            points.setdefault(point, []).append(float("nan") if h.diverged is not None else h.final(metric))
        means = {point: float(np.mean(values)) for point, values in points.items()}
        return {point: mean for point, mean in means.items() if np.isfinite(mean)}

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        diverged = sum(h.diverged is not None for h in self.members)
        axes = " × ".join([*(f"{len(v)} {k}" for k, v in self.grid.items()), f"{len(self.seeds)} seeds"])
        return f"Sweep({axes}: {len(self)} members, {diverged} diverged)"


def sweep(
    task: Task,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int] = (0,),
    *,
    rounds: int,
    clients_per_round: int | None = None,
    eval_every: int = 1,
    dtype: Dtype = "float32",
    sampling: Any = "uniform",
    loss_every: int | None = None,
    at_once: int | None = None,
    gradients: Gradients = "auto",
    table_dtype: TableDtype | None = None,
    matmul: Matmul | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Run an algorithm with every combination of a grid of settings and seeds.

    Numbers (step sizes, δ, γ, …) and seeds are vectorised in one program; other settings (T, M, …) make a program
    each. As many members run at once as fit into memory.

    Args:
      task, algorithm: as for :func:`losac.simulate`; the grid's settings replace the algorithm's own.
      grid: setting → values to try.
      seeds: every combination is run with each.
      rounds, clients_per_round, eval_every, dtype, sampling, loss_every, gradients, table_dtype, matmul: as for
        :func:`losac.simulate`.
      at_once: how many members run at once; by default as many as memory holds.
      progress: called with (members done, members in all).

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> scaffold = losac.algorithms.scaffold(step_size=1.0, local_steps=4, blocks=5)
    >>> result = losac.sweep(task, scaffold, {"step_size": [1e-4, 1e-3]}, [0, 1], rounds=10, eval_every=10)
    >>> result
    Sweep(2 step_size × 2 seeds: 4 members, 0 diverged)
    >>> result.best("loss")
    {'step_size': 0.001}
    """
    axes = {name: tuple(values) for name, values in grid.items()}
    seeds = tuple(int(s) for s in seeds)
    if not seeds or not all(axes.values()):
        raise ValueError("a sweep needs at least one seed, and at least one value for each setting of its grid")
    points = [algorithm.replace(**dict(zip(axes, values))) for values in itertools.product(*axes.values())]
    members = run_members(
        task,
        [(point, seed) for point in points for seed in seeds],
        rounds=rounds,
        clients_per_round=clients_per_round,
        eval_every=eval_every,
        dtype=dtype,
        sampling=sampling,
        loss_every=loss_every,
        at_once=at_once,
        gradients=gradients,
        table_dtype=table_dtype,
        matmul=matmul,
        progress=progress,
    )
    return Sweep(tuple(members), axes, seeds)


def run_members(
    task: Task,
    jobs: Sequence[Job],
    *,
    rounds: int,
    clients_per_round: int | None = None,
    eval_every: int = 1,
    dtype: Dtype = "float32",
    sampling: Any = "uniform",
    loss_every: int | None = None,
    at_once: int | None = None,
    gradients: Gradients = "auto",
    table_dtype: TableDtype | None = None,
    matmul: Matmul | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[History]:
    """Run any list of (algorithm, seed), those that share a program together; return a history for each, in order.

    Args:
      task: the problem.
      jobs: algorithms that may differ in their settings but not in their class, each with a seed.
      rounds, clients_per_round, eval_every, dtype, sampling, loss_every, at_once, gradients, table_dtype, matmul,
        progress: as for :func:`sweep`.
    """
    prepare_jax()
    check_counts(rounds, eval_every)
    sampled = task.data.num_clients if clients_per_round is None else clients_per_round
    plan = make_plan(task, sampled, dtype, None, None, loss_every, gradients, table_dtype)
    sampler = make_sampler(sampling, task.data.num_clients, sampled, jobs[0][0].partial)
    stops = evaluation_rounds(0, rounds, eval_every)
    found: dict[int, History] = {}
    check_matmul(matmul)
    with precision(plan.dtype, matmul):
        for group in _alike(jobs):
            most = at_once or fitting(task, jobs[group[0]][0], plan)
            for start in range(0, len(group), most):
                part = group[start : start + most]
                found |= zip(part, _together(task, [jobs[j] for j in part], plan, sampler, stops))
                if progress is not None:
                    progress(len(found), len(jobs))
    return [found[j] for j in range(len(jobs))]


def _alike(jobs: Sequence[Job]) -> list[list[int]]:
    """Group the jobs that differ in numbers and seeds only, and so share a program."""
    groups: dict[Any, list[int]] = {}
    for j, (algorithm, _) in enumerate(jobs):
        groups.setdefault(jax.tree.structure(algorithm), []).append(j)
    return list(groups.values())


def _together(task: Task, jobs: Sequence[Job], plan: Plan, sampler: Any, stops: list[int]) -> list[History]:
    algorithms, seeds = [a for a, _ in jobs], [s for _, s in jobs]
    members = Members(task, algorithms, seeds, plan)
    recorders = [Recorder(header(members, a, s), 0) for a, s in jobs]
    for measured in members.run(sampler, stops):
        for recorder, one in zip(recorders, measured):
            recorder.add(one)
    return [recorder.history(*model) for recorder, model in zip(recorders, members.models())]
