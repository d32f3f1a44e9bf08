"""Where the runs of a search are computed: here as sweeps, or elsewhere as jobs of one compiled sweep each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from losac.history import History
from losac.jobs import JobCall, JobEngine, JobsFailedError, Workers, open_engine
from losac.simulation.options import ComputeOptions, RunOptions
from losac.simulation.sweep import Job, alike, run_members
from losac.task import Task

RunAll = Callable[..., list[History]]
"""Runs a list of (algorithm, seed): :func:`losac.simulation.sweep.run_members` with its task."""


@contextlib.contextmanager
def members_on(workers: Workers, task: Task) -> Iterator[RunAll]:
    """Yield the function that runs lists of (algorithm, seed) on some workers."""
    if workers.here:
        yield partial(run_members, task)
        return
    with open_engine(workers) as engine:
        yield partial(_run_apart, engine, task)


def _run_apart(
    engine: JobEngine,
    task: Task,
    jobs: Sequence[Job],
    run: RunOptions,
    compute: ComputeOptions | None = None,
    *,
    at_once: int | None = None,
    progress: Callable[[int, int], None] | None = None,
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
        found |= zip(calls[outcome.call], outcome.result)
        if progress is not None:
            progress(len(found), len(jobs))
    if failures:
        raise JobsFailedError(failures, len(calls))
    return [found[j] for j in range(len(jobs))]


def _name(jobs: Sequence[Job]) -> str:
    """Return what a job is called: the first of its runs, and how many more there are."""
    algorithm, seed = jobs[0]
    return f"{algorithm!r} seed {seed}" + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else "")
