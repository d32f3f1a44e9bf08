"""Where the runs of a search are computed: here as sweeps, or elsewhere as jobs of one compiled sweep each.

Runs that a folder keeps are not computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import losac
from losac._checks import check_path
from losac.history import History
from losac.history.conditions import conditions, of_algorithm
from losac.history.history import plain_settings
from losac.jobs import JobCall, JobEngine, JobsFailedError, Workers, open_engine
from losac.simulation.engines.resident import precision
from losac.simulation.options import ComputeOptions, RunOptions, SimulationOptions
from losac.simulation.sweep import Job, Keep, alike, run_members
from losac.task import Task

RunAll = Callable[..., list[History]]
"""Runs a list of (algorithm, seed): :func:`losac.simulation.sweep.run_members` with its task."""


@contextlib.contextmanager
def members_on(workers: Workers, kept: str | None, task: Task) -> Iterator[RunAll]:
    """Yield the function that runs lists of (algorithm, seed) on some workers.

    Args:
      workers: where.
      kept: a folder with runs that have ended, to which others are added; None: none are kept.
      task: the problem.
    """
    with contextlib.ExitStack() as held:
        run_all: RunAll = partial(run_members, task)
        if not workers.here:
            run_all = partial(_run_apart, held.enter_context(open_engine(workers)), task)
        yield run_all if kept is None else partial(_run_missing, run_all, check_path("kept", kept), task)


def _run_apart(
    engine: JobEngine,
    task: Task,
    jobs: Sequence[Job],
    run: RunOptions,
    compute: ComputeOptions | None = None,
    *,
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    keep: Keep | None = None,
) -> list[History]:
    """Divide the runs among the workers; the arguments are those of ``run_members``."""
    each = -(-len(jobs) // max(1, engine.at_once))
    parts = [group[start : start + each] for group in alike(jobs) for start in range(0, len(group), each)]
    options = {"run": run, "compute": compute, "at_once": at_once}
    calls = {
        JobCall(_name(mine), run_members, {"jobs": mine, **options}, {"task": task}): part
        for part in parts
        for mine in [[jobs[j] for j in part]]
    }
    found: dict[int, History] = {}
    failures: dict[str, Exception] = {}
    for outcome in engine.run(calls):
        if outcome.error is not None:
            failures[outcome.call.name] = outcome.error
            continue
        part = calls[outcome.call]
        found |= zip(part, outcome.result)
        if keep is not None:
            keep(part, outcome.result)
        if progress is not None:
            progress(len(found), len(jobs))
    if failures:
        told = "nothing is kept" if keep is None else "the others are kept, and the same command continues from there"
        raise JobsFailedError(failures, len(calls), told)
    return [found[j] for j in range(len(jobs))]


def _name(jobs: Sequence[Job]) -> str:
    """Return what a job is called: the first of its runs, and how many more there are."""
    algorithm, seed = jobs[0]
    return f"{algorithm!r} seed {seed}" + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else "")


def _run_missing(
    run_all: RunAll,
    folder: Path,
    task: Task,
    jobs: Sequence[Job],
    run: RunOptions,
    compute: ComputeOptions | None = None,
    *,
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[History]:
    """Run those that the folder does not have, and keep each as soon as it has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.npz" for name in _names(task, jobs, run, compute)]
    found = {j: History.load(path) for j, path in enumerate(paths) if path.is_file()}
    missing = [j for j in range(len(jobs)) if j not in found]
    before = len(found)

    def keep(places: Sequence[int], histories: Sequence[History]) -> None:
        for place, history in zip(places, histories):
            replace(history, params=None, model_state=None).save(paths[missing[place]])

    def told(done: int, planned: int) -> None:
        if progress is not None:
            progress(before + done, before + planned)

    if missing:
        new = run_all([jobs[j] for j in missing], run, compute, at_once=at_once, progress=told, keep=keep)
        found |= zip(missing, new)
    elif progress is not None:
        progress(before, before)
    return [found[j] for j in range(len(jobs))]


def _names(task: Task, jobs: Sequence[Job], run: RunOptions, compute: ComputeOptions | None) -> Iterator[str]:
    """Yield a digest of all that decides a run's numbers."""
    options = SimulationOptions.of(task, run, compute)
    with precision(options.dtype, options.compute.matmul):
        problem = [losac.__version__, task.name, run.rounds, conditions(task, options.conditions())]
        for algorithm, seed in jobs:
            method = [algorithm.label, plain_settings(algorithm.settings()), of_algorithm(algorithm), seed]
            yield hashlib.sha256(json.dumps([problem, method], default=str).encode()).hexdigest()[:20]
