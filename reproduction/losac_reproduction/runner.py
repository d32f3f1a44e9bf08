"""Runs jobs: those without a stored result, here or elsewhere; each result is stored as soon as it is there."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from losac._files import write_whole
from losac.jobs import JobCall, JobOutcome, JobsFailedError, Workers, open_engine
from losac_reproduction.study import Job, JobResult

PROGRAMS = 12
"""Jobs after which a process forgets its compiled programs: some hundreds of them exhaust a process's memory maps."""


class Progress(NamedTuple):
    """How far a run is: jobs done, in all, found from an earlier run; seconds left, None where not known yet.

    The last job is named by ``label``, with what it printed and where it ran.
    """

    done: int
    total: int
    found: int
    left: float | None
    label: str
    log: str = ""
    host: str = ""


Report = Callable[[Progress], None]


def run_jobs(
    jobs: Sequence[Job], folder: Path, workers: Workers | int = 1, report: Report | None = None
) -> list[JobResult]:
    """Return the results of all jobs, from the folder where they are there, else measured and stored in it.

    Args:
      jobs: what to measure.
      folder: where the results are kept, one file each.
      workers: where they run, or how many processes of this machine; with one they run in this process.
      report: called when a job is done.
    """
    workers = workers if isinstance(workers, Workers) else Workers(jobs=workers)
    folder.mkdir(parents=True, exist_ok=True)
    stored = {job.digest: found for job in jobs if (found := _read(folder / f"{job.digest}.json")) is not None}
    missing = list({job.digest: job for job in jobs if job.digest not in stored}.values())
    clock = _Clock(missing, len(stored), workers.jobs or 1)
    here = workers.here or (workers.on == "local" and len(missing) == 1)
    failures: dict[str, Exception] = {}
    for job, outcome in _here(missing) if here else _elsewhere(missing, workers) if missing else ():
        if outcome.error is not None:
            failures[job.label] = outcome.error
        else:
            timing: Timing = outcome.result
            measured = JobResult(job.label, job.arguments, plain(timing.result), timing.seconds, timing.device)
            _write(folder / f"{job.digest}.json", measured)
            stored[job.digest] = measured
        if report is not None:
            report(clock.tick(job, outcome))
    if failures:
        kept = "the others are stored, and the same command continues from there"
        raise JobsFailedError(failures, len(jobs), kept)
    return [stored[job.digest] for job in jobs]


class Timing(NamedTuple):
    """What a job returned, how long it took, and on what."""

    result: Any
    seconds: float
    device: str


class _Clock:
    """Estimates the time left from the cost of what is done."""

    def __init__(self, jobs: Sequence[Job], found: int, workers: int) -> None:
        self.began = time.perf_counter()
        self.costs, self.total = sum(job.cost for job in jobs), len(jobs)
        self.spent, self.done, self.found, self.workers = 0.0, 0, found, workers

    def tick(self, job: Job, outcome: JobOutcome) -> Progress:
        self.done += 1
        self.spent += job.cost
        passed = time.perf_counter() - self.began
        left = passed * (self.costs - self.spent) / self.spent if self.done >= self.workers else None
        return Progress(self.done, self.total, self.found, left, job.label, outcome.log, outcome.host)


def _here(jobs: Sequence[Job]) -> Iterator[tuple[Job, JobOutcome]]:
    for place, job in enumerate(jobs):
        call = JobCall(job.label, _timed, {"job": job, "place": place})
        try:
            yield job, JobOutcome(call, _timed(job, place))
        except Exception as error:
            yield job, JobOutcome(call, error=error)


def _elsewhere(jobs: Sequence[Job], workers: Workers) -> Iterator[tuple[Job, JobOutcome]]:
    """Share the jobs out, the longest first."""
    ordered = sorted(jobs, key=lambda job: -job.cost)
    calls = {
        JobCall(job.label, _timed, {"job": job, "place": place}, reads_data=True): job
        for place, job in enumerate(ordered)
    }
    with open_engine(workers) as engine:
        for outcome in engine.run(calls):
            yield calls[outcome.call], outcome


def _timed(job: Job, place: int) -> Timing:
    began = time.perf_counter()
    result = job.function(**job.arguments)
    seconds = time.perf_counter() - began
    jax = sys.modules.get("jax")
    if jax is not None and place % PROGRAMS == PROGRAMS - 1:
        jax.clear_caches()
    return Timing(result, seconds, "" if jax is None else jax.devices()[0].device_kind)


def _read(path: Path) -> JobResult | None:
    """Return a stored result; a file that was cut off while it was written counts as none."""
    try:
        return JobResult(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None


def _write(path: Path, measured: JobResult) -> None:
    write_whole(path, json.dumps(measured._asdict() | {"arguments": dict(measured.arguments)}))


def plain(value: Any, digits: int = 6) -> Any:
    """Return a result as JSON holds it: numbers with some digits, what is not finite as None.

    >>> plain({"loss": 0.123456789, "rounds": (1, 2), "lost": float("nan")})
    {'loss': 0.123457, 'rounds': [1, 2], 'lost': None}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(entry, digits) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, digits) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
