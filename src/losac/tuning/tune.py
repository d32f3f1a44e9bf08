"""``losac.tune``: find the best settings of an algorithm, judged on rows not used for training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from losac._checks import check_count, check_function, check_kind, is_number, nearest
from losac._seeds import check_seeds
from losac.algorithms.contract import Algorithm
from losac.history import History
from losac.simulation.options import (
    ComputeOptions,
    RunOptions,
    check_keywords,
    names,
    read_options,
    takes_options,
)
from losac.simulation.program.setup import check_algorithm
from losac.task import Task, check_task
from losac.tuning.draws import draw_points
from losac.tuning.grid import grid_search
from losac.tuning.members import members_on
from losac.tuning.options import SearchOptions, TuneKeywords
from losac.tuning.optuna_search import optuna_search
from losac.tuning.refine import refine_search
from losac.tuning.result import Tuning
from losac.tuning.space import Axis, Edge, Point, Range, check_space, edge
from losac.tuning.trials import AllDivergedError, Evaluate, Goal, Trial, make_trial, ranked

NOT_TUNED = ("layout", "store", "until")
"""Options of a single run: points run together, and are laid out and kept together."""
_TRIALS = 32
_EVALUATIONS = 50


@takes_options(RunOptions, ComputeOptions, SearchOptions, without=NOT_TUNED)
def tune(
    task: Task,
    algorithm: Algorithm,
    space: Mapping[str, Range | Sequence[Any]],
    run: RunOptions | None = None,
    compute: ComputeOptions | None = None,
    how: SearchOptions | None = None,
    *,
    seeds: Sequence[int] = (0,),
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[TuneKeywords],
) -> Tuning:
    """Search for the best settings of an algorithm.

    The score is the mean over the seeds of the metric's final value, on a share of every client's rows that is set
    aside from training; the test rows are never used. Points run together, as one compiled program.

    Args:
      task, algorithm: as for :func:`losac.simulate`; points of the space replace the algorithm's own settings.
      space: setting → list of values; for ``"random"`` and ``"optuna"`` also :func:`losac.tuning.log_range` or
        :func:`losac.tuning.uniform`.
      run, compute, how: the options as values, which can be passed on whole (:class:`losac.simulation.RunOptions`,
        :class:`losac.simulation.ComputeOptions`, :class:`losac.tuning.SearchOptions`); keywords replace their fields.
      seeds: every point runs with all seeds; a point that diverges with any seed is never the best.
      at_once: how many runs to compute at once; by default as many as fit into memory.
      progress: called with (runs done, runs planned so far).
      options: the fields of these values as keywords. Those of the runs are as for :func:`losac.simulate`, but:

        - ``seed``: decides which rows are set aside and which points are drawn.
        - ``eval_every``: by default only the last round is evaluated, or with a target every fiftieth part of the
          rounds.

        And of the search:

        - ``search``: ``"grid"`` (all combinations); ``"refine"`` (the first axis, then the neighbours of the best
          points: between two values, or beyond an end); ``"random"``; or ``"optuna"`` (``pip install 'losac[tune]'``).
        - ``trials``: how many points the others than ``"grid"`` try; 32 by default.
        - ``metric``: ``"loss"`` or one of the task's; by default its accuracy if it has one, else the loss. Losses
          are best when small, everything else when large.
        - ``target``: seek the fewest rounds to this value of the metric instead of the best final value; points that
          do not reach it with every seed come after those that do, ordered by their final value.
        - ``sustained``: how many evaluations in a row must be at the target; the first of them counts.
        - ``validation``: the share of the rows that is set aside; None: score on the training rows, by the loss by
          default.
        - ``widen``: whether a grid is extended if its best point is at an edge.
        - ``most_widenings``: how often, at most.
        - ``batch``: how many points ``"refine"`` and ``"optuna"`` choose at a time; they run at once.
        - ``kept``: a folder that keeps every run that has ended; a search that was stopped continues if it is called
          again with the same folder.
        - ``on``: where they run, a :class:`losac.jobs.Workers`; by default here. Points that run at once are divided
          among the workers, each part as one compiled program.

    Returns:
      The trials, the best settings, and for each axis where they lie on it. If every point diverges,
      :class:`losac.tuning.AllDivergedError` is raised.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> scaffold = losac.algorithms.scaffold(step_size=1.0, local_steps=4, blocks=5)
    >>> tuning = losac.tune(task, scaffold, {"step_size": [1e-4, 1e-3, 1e-2, 1e-1]}, rounds=10, clients_per_round=5)
    >>> tuning.best, tuning.edges
    ({'step_size': 0.01}, {'step_size': 'inside'})
    >>> tuning.algorithm
    scaffold(step_size=0.01, local_steps=4, blocks=5)
    """
    check_task(task)
    axes: Mapping[str, Axis] = check_space(space, check_algorithm(algorithm))
    chosen = run is not None or options.get("eval_every") is not None
    run, compute, how = _read(run, compute, how, options)
    seeds = check_seeds(seeds)
    if not seeds:
        raise ValueError(f"seeds={seeds} must be at least one, and each once")
    check_count("rounds", run.rounds)
    if progress is not None:
        check_function("progress", progress, "(runs done, runs planned)", 2)
    judged = _set_aside(task, how.validation, run.seed)
    goal = _goal(judged, how, run.rounds)
    if not chosen:
        run = replace(run, eval_every=run.rounds if how.target is None else max(1, run.rounds // _EVALUATIONS))
    if how.validation is not None and run.loss_every is None:
        run = replace(run, loss_every=run.rounds)
    with members_on(how.on, how.kept, judged) as run_all:
        runs = partial(run_all, run=run, compute=compute, at_once=at_once)
        axes, found, edges = _search(axes, _evaluator(runs, algorithm, seeds, goal, progress), algorithm, run.seed, how)
    if all(trial.diverged is not None for trial in found):
        raise AllDivergedError(f"all {len(found)} trials diverged{_smallest_step(found)}; search among smaller steps")
    if all(trial.diverged is not None or math.isnan(trial.score) for trial in found):
        raise ValueError(f"{goal.metric!r} is undefined (NaN) on the rows that it is measured on, after every trial")
    return Tuning(
        start=algorithm,
        task=task.name,
        search=how.search,
        space=axes,
        trials=tuple(found),
        edges=edges,
        metric=goal.metric,
        target=how.target,
        validation=how.validation,
        seeds=tuple(seeds),
        rounds=run.rounds,
        clients_per_round=run.clients_per_round or task.data.num_clients,
        dtype=compute.dtype,
    )


def _read(
    run: RunOptions | None, compute: ComputeOptions | None, how: SearchOptions | None, keywords: Mapping[str, Any]
) -> tuple[RunOptions, ComputeOptions, SearchOptions]:
    """Return the options of runs, computation and search; keywords win, except an interval of None."""
    if how is not None:
        check_kind("how", how, SearchOptions, "such as losac.tuning.SearchOptions(search='random')")
    own = names(SearchOptions)
    known = [*names(RunOptions, NOT_TUNED), *names(ComputeOptions, NOT_TUNED), *own]
    check_keywords(tune, keywords, known)
    plain = {k: v for k, v in keywords.items() if k not in own and (k, v) != ("eval_every", None)}
    run, compute = read_options(tune, run, compute, plain, NOT_TUNED)
    search = {name: keywords[name] for name in own if name in keywords}
    return run, compute, replace(how or SearchOptions(), **search)


def _set_aside(task: Task, validation: float | None, seed: int) -> Task:
    """Return the task on the remaining training rows, with the rows set aside (or none) as its test rows."""
    if validation is None:
        return replace(task, test=None)
    train, aside = task.data.split(validation, seed)
    return replace(task, data=train, test=aside)


def _goal(task: Task, how: SearchOptions, rounds: int) -> Goal:
    metric, validation = how.metric, how.validation
    own = "objective" if task.is_composite and validation is None else "loss"
    if metric is None:
        metric = "accuracy" if "accuracy" in task.metrics and validation is not None else own
    known = ["loss", *([own] if own != "loss" else []), *task.metrics]
    if metric not in known:
        raise ValueError(f"metric={metric!r} must be one of {', '.join(known)}{nearest(metric, known)}")
    aside = {} if validation is None else {"loss": "test_loss"}
    return Goal(metric, aside.get(metric, metric), aside.get(own, own), how.target, rounds, how.sustained)


def _evaluator(
    run: Callable[..., list[History]],
    algorithm: Algorithm,
    seeds: list[int],
    goal: Goal,
    progress: Callable[[int, int], None] | None,
) -> Evaluate:
    """Return a function that runs points together and scores them."""
    done = 0

    def evaluate(points: Sequence[Point]) -> list[Trial]:
        nonlocal done
        before, each = done, len(seeds)
        jobs = [(method, seed) for method in [algorithm.replace(**point) for point in points] for seed in seeds]
        told = None if progress is None else lambda finished, planned: progress(before + finished, before + planned)
        runs = run(jobs=jobs, progress=told)
        done += len(runs)
        return [make_trial(point, runs[i * each : (i + 1) * each], goal) for i, point in enumerate(points)]

    return evaluate


def _search(
    axes: Mapping[str, Axis], evaluate: Evaluate, algorithm: Algorithm, seed: int, how: SearchOptions
) -> tuple[Mapping[str, Axis], list[Trial], Mapping[str, Edge]]:
    """Return the axes as they have grown, the trials, and where the best point lies on each axis."""
    allows = _allows(algorithm)
    if how.search == "grid":
        return grid_search(axes, evaluate, allows, how.most_widenings if how.widen else 0)
    wanted = _TRIALS if how.trials is None else how.trials
    if how.search == "refine":
        axes, found = refine_search(axes, evaluate, allows, wanted, how.batch)
    else:
        found = _sampled(how.search, axes, wanted, seed, how.batch, evaluate)
    return axes, found, {name: edge(axis, ranked(found)[0].settings[name]) for name, axis in axes.items()}


def _sampled(
    search: str, axes: Mapping[str, Axis], trials: int, seed: int, batch: int, evaluate: Evaluate
) -> list[Trial]:
    if search == "random":
        return evaluate(draw_points(axes, trials, seed))
    return optuna_search(axes, trials, seed, batch, evaluate)


def _allows(algorithm: Algorithm) -> Callable[[Point], bool]:
    def allows(point: Point) -> bool:
        try:
            algorithm.replace(**point)
        except ValueError:
            return False
        return True

    return allows


def _smallest_step(trials: Sequence[Trial]) -> str:
    steps = [float(trial.settings["step_size"]) for trial in trials if is_number(trial.settings.get("step_size"))]
    return f", even with step_size={min(steps):g}" if steps else ""
