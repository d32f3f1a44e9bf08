"""``losac.tune``: the settings with which an algorithm does best, judged on rows that it does not train on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from losac._settings import nearest
from losac.algorithms.contract import Algorithm
from losac.history.simulate import Dtype, check_counts
from losac.history.sweep import run_members
from losac.task import Task
from losac.tuning.draws import draw_points
from losac.tuning.grid import grid_search
from losac.tuning.optuna_search import optuna_search
from losac.tuning.result import Tuning
from losac.tuning.space import Axis, Point, Range, check_space, edge
from losac.tuning.trials import AllDivergedError, Evaluate, Goal, Trial, make_trial, ranked

Search = Literal["grid", "random", "optuna"]
_SEARCHES = ("grid", "random", "optuna")
_TRIALS = 32
_EVALUATIONS = 50


def tune(
    task: Task,
    algorithm: Algorithm,
    space: Mapping[str, Range | Sequence[Any]],
    *,
    rounds: int,
    clients_per_round: int | None = None,
    seeds: Sequence[int] = (0,),
    search: Search = "grid",
    trials: int | None = None,
    metric: str | None = None,
    target: float | None = None,
    validation: float | None = 0.2,
    widen: bool = True,
    most_widenings: int = 4,
    seed: int = 0,
    batch: int = 8,
    eval_every: int | None = None,
    dtype: Dtype = "float32",
    sampling: Any = "uniform",
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Search for the best settings of an algorithm.

    The score is the mean over the seeds of the metric's final value, on a share of every client's rows that is set
    aside and not trained on; the test rows are never looked at. Points run together, as one compiled program.

    Args:
      task, algorithm: as for :func:`losac.simulate`; the points of the space replace the algorithm's own settings.
      space: setting → list of values; for ``"random"`` and ``"optuna"`` also :func:`losac.tuning.log_range` or
        :func:`losac.tuning.uniform`.
      rounds, clients_per_round, dtype, sampling: as for :func:`losac.simulate`.
      seeds: every point is run with each; one that diverges with any of them is never the best.
      search: ``"grid"`` (all combinations), ``"random"``, or ``"optuna"`` (``pip install 'losac[tune]'``).
      trials: how many points ``"random"`` and ``"optuna"`` try; 32 by default.
      metric: ``"loss"`` or one of the task's; by default its accuracy where it has one, else the loss. Losses are
        best when small, everything else when large.
      target: seek the fewest rounds to this value of the metric instead of the best final value; points that do not
        reach it with every seed come after those that do, ordered by their final value.
      validation: the share of the rows that is set aside; None: score on the training rows, by the loss by default.
      widen: whether a grid is continued beyond an edge at which its best point lies.
      most_widenings: how often, at most.
      seed: decides which rows are set aside and which points are drawn.
      batch: how many points Optuna asks for at a time; they run at once.
      eval_every: rounds between evaluations; by default only the last round is evaluated, or with a target every
        fiftieth part of the rounds.
      at_once: how many runs go on at once; by default as many as memory holds.
      progress: called with (runs done, runs planned so far).

    Returns:
      The trials, the best settings, and for each axis whether they lie inside of it; where every point diverges,
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
    axes: Mapping[str, Axis] = check_space(space, algorithm)
    seeds = [int(s) for s in seeds]
    _check(search, trials, seeds, rounds, batch)
    judged = _set_aside(task, validation, seed)
    goal = _goal(judged, metric, target, validation, rounds)
    if eval_every is None:
        eval_every = rounds if target is None else max(1, rounds // _EVALUATIONS)
    options = {
        "rounds": rounds,
        "clients_per_round": clients_per_round,
        "eval_every": eval_every,
        "loss_every": None if validation is None else rounds,
        "dtype": dtype,
        "sampling": sampling,
        "at_once": at_once,
    }
    evaluate = _evaluator(judged, algorithm, seeds, goal, options, progress)
    if search == "grid":
        axes, found, edges = grid_search(axes, evaluate, _allows(algorithm), most_widenings if widen else 0)
    else:
        wanted = _TRIALS if trials is None else trials
        found = _sampled(search, axes, wanted, seed, batch, evaluate)
        edges = {name: edge(axis, ranked(found)[0].settings[name]) for name, axis in axes.items()}
    if all(trial.diverged is not None for trial in found):
        raise AllDivergedError(f"all {len(found)} trials diverged{_smallest_step(found)}; search among smaller steps")
    return Tuning(
        start=algorithm,
        task=task.name,
        search=search,
        space=axes,
        trials=tuple(found),
        edges=edges,
        metric=goal.metric,
        target=target,
        validation=validation,
        seeds=tuple(seeds),
        rounds=rounds,
        clients_per_round=clients_per_round or task.data.num_clients,
        dtype=str(dtype),
    )


def _check(search: str, trials: int | None, seeds: list[int], rounds: int, batch: int) -> None:
    if search not in _SEARCHES:
        hint = nearest(str(search), list(_SEARCHES))
        raise ValueError(f"search={search!r} must be one of {', '.join(map(repr, _SEARCHES))}{hint}")
    if search == "grid" and trials is not None:
        raise ValueError(f"trials={trials} is for search='random' and 'optuna'; a grid runs all its points")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={seeds} must be at least one, and each once")
    check_counts(rounds, 1)
    for name, value in (("trials", trials), ("batch", batch)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 1")


def _set_aside(task: Task, validation: float | None, seed: int) -> Task:
    """Return the task on the rows left to train on, with those set aside, or none, in the place of its test rows."""
    if validation is None:
        return dataclasses.replace(task, test=None)
    if not 0 < validation < 1:
        raise ValueError(f"validation={validation!r} must be a share between 0 and 1, such as 0.2, or None")
    train, aside = task.data.split(validation, seed)
    return dataclasses.replace(task, data=train, test=aside)


def _goal(task: Task, metric: str | None, target: float | None, validation: float | None, rounds: int) -> Goal:
    own = "objective" if task.is_composite and validation is None else "loss"
    if metric is None:
        metric = "accuracy" if "accuracy" in task.metrics and validation is not None else own
    known = ["loss", *([own] if own != "loss" else []), *task.metrics]
    if metric not in known:
        raise ValueError(f"metric={metric!r} must be one of {', '.join(known)}{nearest(metric, known)}")
    aside = {} if validation is None else {"loss": "test_loss"}
    return Goal(metric, aside.get(metric, metric), aside.get(own, own), target, rounds)


def _evaluator(
    task: Task,
    algorithm: Algorithm,
    seeds: list[int],
    goal: Goal,
    options: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> Evaluate:
    """Return what runs points together and scores them."""
    done = 0

    def evaluate(points: Sequence[Point]) -> list[Trial]:
        nonlocal done
        before, each = done, len(seeds)
        jobs = [(method, seed) for method in [algorithm.replace(**point) for point in points] for seed in seeds]
        told = None if progress is None else lambda finished, planned: progress(before + finished, before + planned)
        runs = run_members(task, jobs, progress=told, **options)
        done += len(runs)
        return [make_trial(point, runs[i * each : (i + 1) * each], goal) for i, point in enumerate(points)]

    return evaluate


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
    steps = [trial.settings["step_size"] for trial in trials if "step_size" in trial.settings]
    return f", even with step_size={min(steps):g}" if steps else ""
