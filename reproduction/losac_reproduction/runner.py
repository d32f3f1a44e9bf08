"""Runs jobs: those without a stored result, in one process or several; each result is stored as soon as it is there."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NamedTuple

from losac._files import write_whole
from losac_reproduction.study import Job, JobResult

PROGRAMS = 12
"""Jobs after which a process forgets its compiled programs: some hundreds of them exhaust a process's memory maps."""


class Progress(NamedTuple):
    """How far a run is: jobs done, in all, found from an earlier run; seconds left, None where not known yet."""

    done: int
    total: int
    found: int
    left: float | None
    label: str


Report = Callable[[Progress], None]


def run_jobs(jobs: Sequence[Job], folder: Path, workers: int = 1, report: Report | None = None) -> list[JobResult]:
    """Return the results of all jobs, from the folder where they are there, else measured and stored in it.

    Args:
      jobs: what to measure.
      folder: where the results are kept, one file each.
      workers: how many processes; with one the jobs run in this process.
      report: called when a job is done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = {job.digest: found for job in jobs if (found := _read(folder / f"{job.digest}.json")) is not None}
    missing = list({job.digest: job for job in jobs if job.digest not in stored}.values())
    clock = _Clock(missing, len(stored), workers)
    outcomes = _in_processes(missing, workers) if workers > 1 and len(missing) > 1 else _here(missing)
    failures: dict[str, Exception] = {}
    for job, outcome in outcomes:
        if isinstance(outcome, Exception):
            failures[job.label] = outcome
        else:
            measured = JobResult(job.label, job.arguments, plain(outcome.result), outcome.seconds, outcome.device)
            _write(folder / f"{job.digest}.json", measured)
            stored[job.digest] = measured
        if report is not None:
            report(clock.tick(job))
    if failures:
        raise JobsFailedError(failures, len(jobs))
    return [stored[job.digest] for job in jobs]


class JobsFailedError(RuntimeError):
    """Some jobs raised an error; the others' results are stored."""

    def __init__(self, failures: Mapping[str, Exception], total: int) -> None:
        (label, error), *_ = failures.items()
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(
            f"{len(failures)} of {total} jobs failed ({label}: {type(error).__name__}: {error}{more}); the others are "
            "stored, and the same command continues from there"
        )
        self.failures = dict(failures)


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

    def tick(self, job: Job) -> Progress:
        self.done += 1
        self.spent += job.cost
        passed = time.perf_counter() - self.began
        left = passed * (self.costs - self.spent) / self.spent if self.done >= self.workers else None
        return Progress(self.done, self.total, self.found, left, job.label)


def _here(jobs: Sequence[Job]) -> Iterator[tuple[Job, Timing | Exception]]:
    for place, job in enumerate(jobs):
        try:
            yield job, _timed(job, place)
        except Exception as error:
            yield job, error


def _in_processes(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Timing | Exception]]:
    """Share the jobs out, the longest first; this process keeps off the accelerator, which the workers share.

    A GPU's compiler would spend most of the time on trying variants of small matrix products: that is turned off.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    share = {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / workers:.3f}",
        "XLA_FLAGS": flags if "autotune" in flags else f"{flags} --xla_gpu_autotune_level=0".strip(),
        "LOSAC_CPU_DEVICES": "1",
    }
    before = {name: os.environ.get(name) for name in share}
    os.environ.update(share)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_end_with_parent)
    try:
        ordered = sorted(jobs, key=lambda job: -job.cost)
        waiting = {pool.submit(_timed, job, place): job for place, job in enumerate(ordered)}
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                job, error = waiting.pop(future), future.exception()
                yield job, error if isinstance(error, Exception) else future.result()
    finally:
        for process in list((pool._processes or {}).values()):
            if waiting:
                process.terminate()
        pool.shutdown(cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _end_with_parent() -> None:
    """Let a worker end when the process that started it is gone, killed perhaps: it would wait for jobs forever."""
    parent = parent_process()

    def end() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()


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
