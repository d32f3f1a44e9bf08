"""Jobs in processes of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path

from losac.jobs.engine import JobEngine, Lost
from losac.jobs.travel import JobReply, SentCall, sender, serve
from losac.jobs.workers import Workers


class LocalEngine(JobEngine):
    """Processes of this machine; this one keeps off the accelerator, which they share.

    A GPU's compiler would spend most of the time on trying variants of small matrix products: that is turned off.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        self.sender = sender(1)
        self.folder: Path | None = None
        self.free: list[ProcessPoolExecutor] = []
        self.busy: dict[Future[JobReply], ProcessPoolExecutor] = {}
        flags = os.environ.get("XLA_FLAGS", "")
        share = {
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / self.at_once:.3f}",
            "XLA_FLAGS": flags if "autotune" in flags else f"{flags} --xla_gpu_autotune_level=0".strip(),
            "LOSAC_CPU_DEVICES": "1",
        }
        self.before = {name: os.environ.get(name) for name in share}
        os.environ.update(share)

    @property
    def at_once(self) -> int:
        """How many processes there are."""
        return self.workers.jobs or 1

    def store(self, key: str, content: bytes) -> str:
        """Write a shared argument to a file."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="losac-jobs-"))
        path = self.folder / key
        path.write_bytes(content)
        return str(path)

    def start(self, name: str, message: SentCall) -> Future[JobReply]:
        """Give a job to a free process."""
        process = self.free.pop() if self.free else _process()
        try:
            job = process.submit(serve, self.sender, *message)
        except BrokenProcessPool:  # killed while it had nothing to do
            process = _process()
            job = process.submit(serve, self.sender, *message)
        self.busy[job] = process
        return job

    def ended(self, jobs: Collection[Future[JobReply]]) -> Iterable[tuple[Future[JobReply], JobReply | Lost]]:
        """Wait for a process; only the job of a process that was killed is lost."""
        finished, _ = wait(jobs, return_when=FIRST_COMPLETED)
        found: list[tuple[Future[JobReply], JobReply | Lost]] = []
        for job in finished:
            process = self.busy.pop(job)
            try:
                found.append((job, job.result()))
                self.free.append(process)
            except BrokenProcessPool:
                found.append((job, Lost("with a process of this machine that was killed, perhaps for its memory")))
                process.shutdown()
        return found

    def stop(self, jobs: Collection[Future[JobReply]]) -> None:
        """End the processes that work on jobs."""
        for job in jobs:
            if job in self.busy:
                for process in list((self.busy[job]._processes or {}).values()):
                    process.terminate()

    def close(self) -> None:
        """End the processes, and leave the environment as it was."""
        for process in [*self.free, *self.busy.values()]:
            process.shutdown(cancel_futures=True)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        for name, value in self.before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Let a worker end when the process that started it is gone, killed perhaps: it would wait for jobs forever."""
    parent = parent_process()

    def end() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()
