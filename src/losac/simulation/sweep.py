"""``losac.sweep``: many settings and seeds of one algorithm, as one compiled program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import jax
import numpy as np

from losac._checks import check_count, check_function, check_list, shown
from losac._devices import prepare_jax
from losac._seeds import check_seed, check_seeds
from losac._settings import check_numbers
from losac.algorithms.contract import Algorithm
from losac.history.conditions import conditions
from losac.history.history import History
from losac.history.recorder import Recorder
from losac.metrics import falls
from losac.simulation.engines.intervals import evaluation_rounds
from losac.simulation.engines.resident import precision
from losac.simulation.engines.swept import SweptEngine, fitting, member_shape
from losac.simulation.follow import header
from losac.simulation.options import (
    ComputeOptions,
    RunOptions,
    SimulationOptions,
    SweepKeywords,
    read_options,
    takes_options,
)
from losac.simulation.program.setup import check_algorithm
from losac.simulation.sampling import make_sampler
from losac.task import Task

Job = tuple[Algorithm, int]
"""An algorithm and the seed to run it with."""
Keep = Callable[[Sequence[int], Sequence[History]], None]
"""Receives runs as they end: their places in the list of jobs, and their histories."""
ONE_RUN_ONLY = ("seed", "layout", "store", "until")
"""The options of a single run: many runs at once have their own seeds, and share layout and store."""


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
        """Return the settings with the best mean final metric over the seeds; points that diverged do not count.

        Losses and objectives are best when small, everything else when large.
        """
        scores = self.scores(metric)
        if not scores:
            if any(member.diverged is None for member in self.members):
                raise ValueError(f"{metric!r} is undefined (not finite) after every member of the sweep")
            raise ValueError("every member of the sweep diverged: widen the grid towards smaller steps")
        sign = 1 if falls(metric) else -1
        best: tuple[Any, ...] = min(scores.items(), key=lambda item: sign * item[1])[0]
        return dict(zip(self.grid, best))

    def scores(self, metric: str) -> dict[tuple[Any, ...], float]:
        """Return the mean final metric of every grid point that diverged with none of its seeds."""
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


@takes_options(RunOptions, ComputeOptions, without=ONE_RUN_ONLY)
def sweep(
    task: Task,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int] = (0,),
    run: RunOptions | None = None,
    compute: ComputeOptions | None = None,
    *,
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SweepKeywords],
) -> Sweep:
    """Run an algorithm with every combination of a grid of settings and seeds.

    Numbers (step sizes, δ, γ, …) and seeds are vectorised in one program; other settings (T, M, …) make a separate
    program each. As many members run at once as fit into memory.

    Args:
      task, algorithm: as for :func:`losac.simulate`; the grid's settings replace the algorithm's own.
      grid: setting → values to try.
      seeds: every combination is run with each.
      run, compute: the options as values, as for :func:`losac.simulate`, except ``seed``, ``layout``, ``store`` and
        ``until``.
      at_once: how many members run at once; by default as many as memory holds.
      progress: called with (members done, members in all).
      options: the fields of ``run`` and ``compute`` as keywords; ``rounds`` must be among them.

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
    check_algorithm(algorithm)
    axes = _axes(grid)
    seeds = tuple(check_seeds(seeds))
    if not seeds or not all(axes.values()):
        raise ValueError("a sweep needs at least one seed, and at least one value for each setting of its grid")
    points = [algorithm.replace(**dict(zip(axes, values))) for values in itertools.product(*axes.values())]
    jobs = [(point, seed) for point in points for seed in seeds]
    members = run_members(
        task, jobs, *read_options(sweep, run, compute, options, ONE_RUN_ONLY), at_once=at_once, progress=progress
    )
    return Sweep(tuple(members), axes, seeds)


def _axes(grid: Any) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting of a grid; each is there once."""
    if not isinstance(grid, Mapping) or not all(isinstance(name, str) for name in grid):
        raise TypeError(
            f"grid must map settings to lists of values, such as {{'step_size': [1e-4, 1e-3]}}, not {shown(grid)}"
        )
    axes = {name: tuple(check_list(f"the grid's {name}", values, "a list of values")) for name, values in grid.items()}
    for name, values in axes.items():
        if (
            twice := next((v for k, v in enumerate(values) if any(v is w or v == w for w in values[:k])), None)
        ) is not None:
            raise ValueError(f"the grid's {name} has {shown(twice)} twice; give each value once")
    return axes


def run_members(
    task: Task,
    jobs: Sequence[Job],
    run: RunOptions,
    compute: ComputeOptions | None = None,
    *,
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    keep: Keep | None = None,
) -> list[History]:
    """Run any list of (algorithm, seed), those that share a program together; return a history for each, in order.

    Args:
      task: the problem.
      jobs: algorithms that may differ in their settings but not in their class, each with a seed.
      run, compute, at_once, progress: as for :func:`sweep`.
      keep: receives runs as they end.
    """
    prepare_jax()
    jobs = [(algorithm, check_seed(seed)) for algorithm, seed in jobs]
    check_count("rounds", run.rounds)
    options = SimulationOptions.of(task, run, compute)
    for algorithm, _ in jobs:
        check_numbers(algorithm, 0, run.rounds, options.dtype)
    sampler = make_sampler(run.sampling, task.data.num_clients, options.sampled, jobs[0][0].partial)
    stops = evaluation_rounds(0, run.rounds, run.eval_every)
    found: dict[int, History] = {}
    if at_once is not None:
        check_count("at_once", at_once)
    if progress is not None:
        check_function("progress", progress, "(members done, members in all)", 2)
    about = conditions(task, options.conditions())
    with precision(options.dtype, options.compute.matmul):
        for group in alike(jobs):
            shape = member_shape(task, jobs[group[0]][0], options)
            most = at_once or fitting(task, jobs[group[0]][0], options, shape)
            for start in range(0, len(group), most):
                part = group[start : start + most]
                algorithms, seeds = zip(*(jobs[j] for j in part))
                members = SweptEngine(task, algorithms, seeds, options, shape)
                ended = _together(members, sampler, stops, about)
                found |= zip(part, ended)
                if keep is not None:
                    keep(part, ended)
                if progress is not None:
                    progress(len(found), len(jobs))
    return [found[j] for j in range(len(jobs))]


def alike(jobs: Sequence[Job]) -> list[list[int]]:
    """Group the jobs that differ in numbers and seeds only, and so share a program."""
    groups: dict[Any, list[int]] = {}
    for j, (algorithm, _) in enumerate(jobs):
        groups.setdefault(jax.tree.structure(algorithm), []).append(j)
    return list(groups.values())


def _together(members: SweptEngine, sampler: Any, stops: Sequence[int], about: Mapping[str, Any]) -> list[History]:
    steps = members.problem.resident.steps
    recorders = [
        Recorder(header(members, algorithm, seed, steps, about), 0, stops[-1])
        for algorithm, seed in zip(members.algorithms, members.seeds)
    ]
    for measured in members.run(sampler, stops):
        for recorder, one in zip(recorders, measured):
            recorder.add(one)
    return [recorder.history(*model) for recorder, model in zip(recorders, members.models())]
