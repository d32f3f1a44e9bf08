"""Where the jobs of a command run: the options, and runs of simulations as jobs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from losac.cli.errors import FAILED, debugging, fail, say
from losac.experiment.options import with_options
from losac.experiment.words import words

if TYPE_CHECKING:
    from losac._claim import FolderClaim
    from losac.algorithms import Algorithm
    from losac.history import History
    from losac.jobs import JobCall, JobOutcome, Workers
    from losac.task import Task

JOBS = "Jobs"
"""The panel of a command's help."""


@dataclass(frozen=True)
@with_options(words().get("workers", ()), JOBS)
class Where:
    """Where jobs run: an option for each field of :class:`losac.jobs.Workers`."""

    def workers(self) -> Workers:
        """Return the workers that the options name."""
        from losac.jobs import Workers

        told = asdict(self)
        return Workers(**told | {"slurm": tuple(part for part in told["slurm"].split(",") if part)})


class RunJob(NamedTuple):
    """One run: what to run, and the folder that keeps it, with the sections of its file."""

    name: str
    task: Task
    method: Algorithm
    options: Mapping[str, Any]
    sections: Mapping[str, Mapping[str, Any]]
    folder: Path | None


def collect(
    runs: Iterable[RunJob], total: int, workers: Workers, claim: FolderClaim | None, *, shown: bool
) -> tuple[dict[str, History], bool]:
    """Run on workers; return what ended, by the runs' names, and whether it was interrupted.

    The command fails if a run did, after the others have ended.
    """
    from losac.jobs import JobsFailedError

    found: dict[str, History] = {}
    try:
        for name, history in run_apart(runs, total, workers, shown=shown):
            found[name] = history
            if claim is not None:
                claim.settle()
    except KeyboardInterrupt:
        return found, True
    except JobsFailedError as error:
        fail(str(error), FAILED)
    return found, False


def run_apart(runs: Iterable[RunJob], total: int, workers: Workers, *, shown: bool) -> Iterator[tuple[str, History]]:
    """Run on workers; yield each run's name and history as it ends, after its folder is in place.

    Runs that have ended before are only read. When all others have ended, those that failed raise
    :class:`losac.jobs.JobsFailedError`.
    """
    from losac.jobs import JobsFailedError, open_engine
    from losac.jobs.recorded import unpack_folder

    there: list[tuple[str, History]] = []
    folders: dict[str, Path | None] = {}
    failures: dict[str, Exception] = {}
    waiting = _not_ended(runs, there)
    first = next(waiting, None)
    if first is not None:
        with open_engine(workers) as engine:
            calls = (_call(run, folders) for run in itertools.chain([first], waiting))
            for done, outcome in enumerate(engine.run(calls), 1):
                name = outcome.call.name
                tell(outcome, f"{done + len(there)} of {total}", shown=shown)
                if outcome.error is not None:
                    failures[name] = outcome.error
                    continue
                history, packed = outcome.result
                if (folder := folders[name]) is not None:
                    unpack_folder(packed, folder)
                yield name, history
    yield from there
    if failures:
        kept = "those that ended are kept, and --resume continues" if any(folders.values()) else "nothing is kept"
        raise JobsFailedError(failures, total, kept)


def _not_ended(runs: Iterable[RunJob], there: list[tuple[str, History]]) -> Iterator[RunJob]:
    """Yield the runs that are left; the others go into ``there``."""
    from losac.jobs.recorded import ended_history

    for run in runs:
        history = (
            None if run.folder is None else ended_history(run.task, run.method, run.folder, run.options, run.sections)
        )
        if history is None:
            yield run
        else:
            there.append((run.name, history))


def _call(run: RunJob, folders: dict[str, Path | None]) -> JobCall:
    from losac.jobs import JobCall
    from losac.jobs.recorded import pack_folder, run_job

    folders[run.name] = run.folder
    kept = {} if run.folder is None else {"sections": run.sections, "begun": pack_folder(run.folder)}
    return JobCall(run.name, run_job, {"algorithm": run.method, "options": run.options, **kept}, {"task": run.task})


def tell(outcome: JobOutcome, done: str, *, shown: bool) -> None:
    """Say that a job has ended, where, and what it printed."""
    name = outcome.call.name
    if shown:
        where = f" on {outcome.host}" if outcome.host else ""
        say(f"{done}{where}: {name}{'' if outcome.error is None else f' failed: {outcome.error}'}")
        for line in outcome.log.splitlines():
            say(f"  {name}: {line}")
    if outcome.error is not None and debugging():
        say(getattr(outcome.error, "trace", ""))
