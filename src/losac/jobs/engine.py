"""The interface of all engines: submit calls, yield what is finished, and give a lost job one more try."""

from __future__ import annotations

import hashlib
import socket
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from losac.jobs.travel import JobReply, SentCall, pack, unpack
from losac.jobs.workers import Workers

TRIES = 2
"""How often a job begins at most: a lost node costs it one try."""


@dataclass(frozen=True, eq=False)
class JobCall:
    """A function call that can be made anywhere.

    Args:
      name: what progress lines and errors call it.
      function: at the top of a module.
      arguments: by name.
      shared: further arguments that many calls have in common, such as the data; sent once.
      reads_data: whether it reads data sets itself: their folder must then be on the other machine too.
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)
    reads_data: bool = False


class JobError(RuntimeError):
    """A job raised an error; ``trace`` is its traceback."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class LostJobError(JobError):
    """A job was lost twice, each time with the machine or the process that it ran on."""


class JobsFailedError(RuntimeError):
    """Some jobs raised an error; ``failures`` has the errors by the jobs' names."""

    def __init__(self, failures: Mapping[str, Exception], total: int, kept: str = "the others ended") -> None:
        (name, error), *_ = failures.items()
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        told = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
        super().__init__(f"{len(failures)} of {total} jobs failed ({name}: {told}{more}); {kept}")
        self.failures = dict(failures)


class JobOutcome(NamedTuple):
    """How a job ended: with a result, or with an error; what it printed, and where it ran, if not on this machine."""

    call: JobCall
    result: Any = None
    error: Exception | None = None
    log: str = ""
    host: str = ""


class Lost(NamedTuple):
    """The end of a job without a reply: what is known of why."""

    reason: str
    final: bool = False
    """Whether it would end in the same way again, as by a limit on time or memory."""


class JobEngine(ABC):
    """What runs calls elsewhere. It is a context manager, which ends what still runs.

    An engine starts single messages and waits for replies; the order of calls, shared arguments and the second try
    are the same for all of them.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._stored: dict[int, tuple[Any, str, Any]] = {}

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many jobs may run at once now."""

    @abstractmethod
    def store(self, key: str, content: bytes) -> Any:
        """Put a shared argument where all workers can read it; return what a message holds for it."""

    @abstractmethod
    def start(self, name: str, message: SentCall) -> Any:
        """Start a job; return what stands for it."""

    @abstractmethod
    def ended(self, jobs: Collection[Any]) -> Iterable[tuple[Any, JobReply | Lost]]:
        """Wait until at least one of some jobs has ended; return those with their replies."""

    @abstractmethod
    def stop(self, jobs: Collection[Any]) -> None:
        """End jobs that nobody waits for any more."""

    def close(self) -> None:  # noqa: B027
        """Let go of processes, connections and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, calls: Iterable[JobCall]) -> Iterator[JobOutcome]:
        """Submit calls in their order, as many at once as there is room for; yield each as it ends.

        The calls are read one by one as room becomes free, so they can be made when they are needed.
        """
        waiting, again = iter(calls), deque[tuple[JobCall, int]]()
        running: dict[Any, tuple[JobCall, int]] = {}
        more = True
        try:
            while more or again or running:
                while (more or again) and len(running) < max(1, self.at_once):
                    call, tries = again.popleft() if again else (next(waiting, None), 1)
                    if call is None:
                        more = False
                        break
                    running[self._start(call)] = call, tries
                for job, end in self.ended(running) if running else ():
                    call, tries = running.pop(job)
                    if isinstance(end, Lost) and tries < TRIES and not end.final:
                        again.append((call, tries + 1))
                    else:
                        yield _outcome(call, end, tries)
        finally:
            if running:
                self.stop(running)

    def _start(self, call: JobCall) -> Any:
        shared = {name: self._share(name, value) for name, value in call.shared.items()}
        content = pack((call.function, dict(call.arguments)), call.name)
        return self.start(call.name, SentCall(content, shared, call.reads_data))

    def _share(self, name: str, value: Any) -> tuple[str, Any]:
        """Store a value, once for all calls; return its key and where it is."""
        if id(value) not in self._stored:
            content = pack(value, name)
            key = hashlib.sha256(content).hexdigest()[:20]
            self._stored[id(value)] = value, key, self.store(key, content)
        _, key, place = self._stored[id(value)]
        return key, place


def _outcome(call: JobCall, end: JobReply | Lost, tries: int) -> JobOutcome:
    if isinstance(end, Lost):
        often = "twice" if tries > 1 else "once"
        return JobOutcome(call, error=LostJobError(f"lost {often}, {end.reason}"))
    host = "" if end.host == socket.gethostname() else end.host
    if end.error is not None:
        where = f", on {host}" if host else ""
        return JobOutcome(call, error=JobError(f"{end.error}{where}", end.trace), log=end.log, host=host)
    try:
        return JobOutcome(call, unpack(end.result), log=end.log, host=host)
    except Exception as error:
        return JobOutcome(call, error=JobError(f"its result cannot be read here: {error}"), host=host)


def open_engine(workers: Workers) -> JobEngine:
    """Return the engine of some workers, for a ``with`` statement.

    >>> import math
    >>> with open_engine(Workers(jobs=2)) as engine:  # doctest: +SKIP
    ...     outcomes = list(engine.run(JobCall(f"{n}!", math.factorial, {"n": n}) for n in (3, 4)))
    """
    if workers.on == "ray":
        from losac.jobs.ray import RayEngine

        return RayEngine(workers)
    if workers.on == "slurm":
        from losac.jobs.slurm import SlurmEngine

        return SlurmEngine(workers)
    from losac.jobs.local import LocalEngine

    return LocalEngine(workers)
