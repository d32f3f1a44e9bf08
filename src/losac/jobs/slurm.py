"""Jobs on Slurm, through submitit."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from losac._extras import need
from losac._files import write_whole
from losac._folders import cache_dir
from losac.jobs.engine import JobEngine, Lost
from losac.jobs.travel import JobReply, SentCall, sender, serve
from losac.jobs.workers import Workers

_AT_ONCE = 16
_MINUTES = 24 * 60
_SECONDS_BETWEEN_QUEUES = 5.0
_PATIENCE = 15.0
"""Seconds that a disk shared over the network may take to show a file."""
_ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
}  # fmt: skip
_FINAL = {
    "CANCELLED": "somebody cancelled it",
    "DEADLINE": "it did not end before its deadline",
    "OUT_OF_MEMORY": "it needs more memory: mem=16G",
    "TIMEOUT": "it needs more time: time=MINUTES",
}
"""States in which a second try would end too."""


class SlurmEngine(JobEngine):
    """A Slurm cluster that this machine can submit to; the jobs' files lie in a folder that its nodes share."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        self.submitit: Any = need("submitit", "on='slurm'", "slurm")
        root = cache_dir() / "jobs" if workers.shared is None else Path(workers.shared).expanduser()
        self.folder = root.resolve() / uuid.uuid4().hex[:12]
        self.folder.mkdir(parents=True)
        self.cpus = workers.cpus or 1
        self.sender = sender(self.cpus)
        self.executor: Any = self._executor()
        self.states: Mapping[str, tuple[str, str]] = {}
        self.looked, self.blind = 0.0, False
        self.gone: dict[Any, float] = {}
        self.failed = False

    def _executor(self) -> Any:
        try:
            executor = self.submitit.SlurmExecutor(self.folder, max_num_timeout=0)
            given = {"time": _MINUTES, "cpus_per_task": self.cpus, **self.workers.sbatch}
            if self.workers.gpus:
                given["gpus_per_node"] = self.workers.gpus
            known = executor._valid_parameters()
            other = {name: value for name, value in given.items() if name not in known} | {"no_requeue": True}
            own = {name: value for name, value in given.items() if name in known}
            executor.update_parameters(**own, additional_parameters=other)
        except (RuntimeError, ValueError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ValueError(f"on='slurm': {' '.join(str(error).split())}") from error
        return executor

    @property
    def at_once(self) -> int:
        """How many jobs are in the queue at most."""
        return self.workers.jobs or _AT_ONCE

    def store(self, key: str, content: bytes) -> str:
        """Write a shared argument to a file on the shared disk."""
        path = self.folder / f"{key}.shared"
        write_whole(path, content)
        return str(path)

    def start(self, name: str, message: SentCall) -> Any:
        """Submit a job under its name."""
        self.executor.update_parameters(job_name=re.sub(r"\W+", "-", f"losac {name}")[:60])
        try:
            return self.executor.submit(serve, self.sender, *message)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            told = " ".join(str(getattr(error, "stderr", None) or error).split())
            raise ValueError(f"Slurm refuses {name}: {told}") from error

    def ended(self, jobs: Collection[Any]) -> Iterable[tuple[Any, JobReply | Lost]]:
        """Wait for the file of a job's result, or for Slurm to say that it has ended without one."""
        found: list[tuple[Any, JobReply | Lost]] = []
        pause = 0.1
        while not found:
            there = [job for job in jobs if job.paths.result_pickle.exists()]
            found += [(job, self._reply(job)) for job in there]
            found += [(job, lost) for job in jobs if job not in there and (lost := self._lost(job, jobs)) is not None]
            if not found:
                time.sleep(pause)
                pause = min(1.0, 1.5 * pause)
        return found

    def _reply(self, job: Any) -> JobReply | Lost:
        try:
            return job.result()
        except self.submitit.core.utils.UncompletedJobError as error:
            return Lost(_last_line(str(error)))
        except self.submitit.core.utils.FailedJobError as error:
            return JobReply(error=f"the worker cannot read the job: {_last_line(str(error))}", host="a node of Slurm")

    def _lost(self, job: Any, jobs: Collection[Any]) -> Lost | None:
        """Return why a job has ended without a result; None while it may still write one."""
        if time.monotonic() - self.looked > _SECONDS_BETWEEN_QUEUES:
            states = self.queue([each.job_id for each in jobs])
            self.states, self.looked = self.states if states is None else states, time.monotonic()
            self.blind = states is None
        if self.blind:
            return None
        state, node = self.states.get(job.job_id, ("", ""))
        if state and state not in _ENDED:
            self.gone.pop(job, None)
            return None
        since = self.gone.setdefault(job, time.monotonic())
        wait = 0.0 if state in ("NODE_FAIL", "BOOT_FAIL", *_FINAL) else _PATIENCE
        if time.monotonic() - since < wait:
            return None
        self.failed = True
        where = f"on the node {node}" if node else "on a node of Slurm"
        told = _last_line(job.stderr() or "")
        told = f"; its log ends with: {told}" if told else f"; can the node see {self.folder}? Choose it by shared"
        return Lost(f"{where} (state {state or 'unknown'}; {_FINAL.get(state, 'no result')}){told}", state in _FINAL)

    def queue(self, ids: Collection[str]) -> Mapping[str, tuple[str, str]] | None:
        """Return the state and the nodes of jobs, of those that Slurm still knows; None while it does not answer."""
        command = ["squeue", "--noheader", "--states=all", "--format=%i|%T|%N", f"--jobs={','.join(ids)}"]
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode and "Invalid job id" not in said.stderr:
            return None
        rows = [line.strip().split("|") for line in said.stdout.splitlines()]
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}

    def stop(self, jobs: Collection[Any]) -> None:
        """Cancel jobs."""
        for job in jobs:
            job.cancel(check=False)

    def close(self) -> None:
        """Remove the jobs' files, unless a log in them says why a job was lost."""
        if not self.failed:
            shutil.rmtree(self.folder, ignore_errors=True)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip(" -")), "")
