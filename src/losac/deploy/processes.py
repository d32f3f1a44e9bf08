"""Processes that outlive the command that started them, found again by pid files.

Each is the leader of its own session: the processes that it starts can be found and ended even after it has died. A pid
counts only if the process has the recorded command and start: by now the number may belong to another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from losac._files import make_folder, write_whole

_PAUSE = 0.05
_DRIFT = 60.0
"""Seconds by which a start time may differ: it is computed from the clock, which may have been set since."""

_ORPHANS = 2.0
"""Seconds for the children of an ended process to notice it: they check every 0.2 s."""

_LAST_THREADS = 2.0

_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Processes that this one started and must wait for, or they would remain as zombies."""


@dataclass(frozen=True)
class ProcessRecord:
    """A pid file: the process, its start and its command."""

    name: str
    pid: int
    started: float
    command: tuple[str, ...]

    def save(self, folder: Path) -> None:
        """Write the pid file, whole or not at all."""
        make_folder(folder, private=True)
        write_whole(folder / f"{self.name}.json", json.dumps(asdict(self), indent=2) + "\n", private=True)


def spawn(name: str, command: Sequence[str], environment: Mapping[str, str], *, pids: Path, log: Path) -> ProcessRecord:
    """Start a process in its own session, with its output appended to the log, and write its pid file.

    All files that it makes are its owner's alone."""
    make_folder(log.parent, private=True)
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
        )
    _CHILDREN[child.pid] = child
    record = ProcessRecord(name, child.pid, *_identity(child))
    record.save(pids)
    return record


def read_records(pids: Path) -> dict[str, ProcessRecord]:
    """Return the pid files of a folder by name; remove damaged ones."""
    records = {}
    for path in sorted(pids.glob("*.json")):
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            record = ProcessRecord(
                fields["name"], int(fields["pid"]), float(fields["started"]), tuple(fields["command"])
            )
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
            continue
        records[record.name] = record
    return records


def forget(record: ProcessRecord, pids: Path) -> None:
    """Remove the pid file."""
    (pids / f"{record.name}.json").unlink(missing_ok=True)


def is_running(record: ProcessRecord) -> bool:
    """Whether the recorded process itself runs."""
    _reap(record)
    try:
        process = psutil.Process(record.pid)
        return process.status() != psutil.STATUS_ZOMBIE and _is_recorded(process, record)
    except psutil.Error:
        return False


def members(record: ProcessRecord) -> list[psutil.Process]:
    """Return the running processes of the recorded one's session, itself included; none if the pid is another's now."""
    _reap(record)
    found = [process for process in psutil.process_iter() if _in_session(process, record)]
    leader = next((process for process in found if process.pid == record.pid), None)
    if leader is not None and _command(leader):  # a process that is ending has none any more, but its children stay
        with contextlib.suppress(psutil.Error):
            return found if _is_recorded(leader, record) else []
    return found if any(_is_flower(process) for process in found) else []


def terminate(records: Sequence[ProcessRecord], *, patience: float) -> None:
    """Ask processes to end (SIGTERM), all at once; after the timeout kill what is left of their sessions."""
    for record in records:
        if is_running(record):
            _signal(record.pid, signal.SIGTERM)
    _wait_while(lambda: any(is_running(record) for record in records), patience)
    _wait_while(lambda: any(members(record) for record in records), min(patience, _ORPHANS))
    for record in records:
        kill(record)


def kill(record: ProcessRecord, *, patience: float = 10.0) -> None:
    """Kill a process and all of its session (SIGKILL), and return when they are gone."""
    end = time.monotonic() + patience
    while left := members(record):
        for process in left:
            _signal(process.pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise TimeoutError(f"{record.name} (pid {record.pid}) does not end, even by SIGKILL")
        time.sleep(_PAUSE)
    if (child := _CHILDREN.get(record.pid)) is not None:
        # Its threads may take a moment longer, and until then it remains as a zombie.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_LAST_THREADS)


def _identity(child: subprocess.Popen[bytes]) -> tuple[float, tuple[str, ...]]:
    """Return a new process's start and its command as the system shows it, with the interpreter of a script."""
    started, command = time.time(), ()
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(child.pid)
        started = process.create_time()
        # For a moment after its start, a process has no command line.
        while not command and child.poll() is None:
            command = tuple(process.cmdline())
    return started, command


def _wait_while(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while condition() and time.monotonic() < end:
        time.sleep(_PAUSE)


def _is_recorded(process: psutil.Process, record: ProcessRecord) -> bool:
    same_start = abs(process.create_time() - record.started) < _DRIFT
    return same_start and tuple(process.cmdline()) == record.command


def _is_flower(process: psutil.Process) -> bool:
    """Whether SuperNode or SuperExec started a process; only sessions that have such a process are losac's."""
    return any(Path(word).name.startswith(("flower-", "flwr-")) for word in _command(process)[:3])


def _command(process: psutil.Process) -> list[str]:
    """Return a process's command; nothing while it ends."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _in_session(process: psutil.Process, record: ProcessRecord) -> bool:
    try:
        return os.getsid(process.pid) == record.pid and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap(record: ProcessRecord) -> None:
    child = _CHILDREN.get(record.pid)
    if child is not None:
        child.poll()
