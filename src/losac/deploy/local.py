"""A federation on one machine, of separate processes that communicate as they would between machines.

A SuperLink with TLS, a SuperExec that starts the ServerApps, and N SuperNodes, each with its own key. All they
keep is below one folder: ``keys/``, ``logs/``, ``pids/``, ``state/I/`` of client I, ``results/``, the SuperLink's
database, and Flower's own files.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from losac._files import is_locked
from losac.deploy import network, runs, startup
from losac.deploy.certificates import node_key, set_aside
from losac.deploy.errors import DeployError
from losac.deploy.folder import CLI, SUPEREXEC, SUPERLINK, FederationFolder, node_name, node_number
from losac.deploy.guard import dismiss, start_guard
from losac.deploy.lock import locked
from losac.deploy.pins import pin
from losac.deploy.processes import ProcessRecord, forget, is_running, kill, read_records, terminate
from losac.deploy.shutdown import PATIENCE, stop_all
from losac.deploy.submissions import Submission, remember, submissions
from losac.federation.checkpoint import members
from losac.federation.owner import release
from losac.federation.requests import ask

_HOST = "127.0.0.1"
_PAUSE = 0.2
_HASTE = 2.0
"""Seconds between SIGTERM and SIGKILL for what a failed start leaves."""


class LocalFederation:
    """The processes of a federation below a folder; also those that an earlier command started there.

    Args:
      folder: where everything is kept.
      nodes: N, the number of SuperNodes; by default that of the folder's last start.
      port: the SuperLink's; by default a free one.
      detached: whether the processes outlive this one, until :meth:`stop`; otherwise they end with it, in any case.
      environment: more variables for all processes, such as ``{"JAX_PLATFORMS": "cpu"}``.
      timeout: seconds that processes have to get ready.

    As a context manager it starts on entry and stops on exit.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        nodes: int | None = None,
        *,
        port: int | None = None,
        detached: bool = False,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.folder = FederationFolder(Path(folder).expanduser().resolve())
        if self.folder.root.is_file():
            raise ValueError(f"{self.folder.root} is a file; give a folder")
        if nodes is not None and nodes < 1:
            raise ValueError(f"nodes={nodes}; a federation needs at least 1")
        self.nodes = self.folder.settings().nodes if nodes is None else nodes
        self._port, self._detached, self._timeout = port, detached, timeout
        self._environment = dict(environment or {})
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def names(self) -> list[str]:
        """The processes' names: superlink, superexec, node-0, node-1, …"""
        return [SUPERLINK, SUPEREXEC, *map(node_name, range(self.nodes))]

    @property
    def node_ids(self) -> dict[str, int]:
        """Flower's id of each SuperNode by name; it stays the same over restarts."""
        known = self.folder.settings().node_ids
        return {name: int(known[name]) for name in self.names if name in known}

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        settings = self.folder.settings()
        return network.address(settings.port, settings.host)

    def start(self) -> Self:
        """Start all processes and return when every node is online; remains of a crash are cleaned up first."""
        with locked(self.folder.root):
            crashed = self._clear()
            startup.prepare(self.folder, self.nodes, _HOST, self._port)
            if not self._detached:
                self._guard = start_guard(self.folder.root)
            try:
                self._launch(SUPERLINK)
                startup.await_healthy(self.folder, SUPERLINK, self._timeout)
                self.register()
                if crashed:
                    self._each(lambda name: startup.take_leave(self.folder, name), self.names[2:])
                for name in self.names[1:]:
                    self._launch(name)
                startup.await_online(self.folder, self.names[2:], self._environment, self._timeout)
                self.folder.write(dataclasses.replace(self.folder.settings(), ready=True))
            except BaseException:
                self.stop(patience=_HASTE)
                raise
        return self

    def stop(self, *, patience: float = PATIENCE) -> list[str]:
        """End all processes, SuperNodes first: SIGTERM, some seconds later SIGKILL; return the names of those ended."""
        ran = stop_all(self.folder, patience=patience)
        if self._guard is not None:
            dismiss(self._guard)
            self._guard = None
        return ran

    def kill(self, name: str) -> None:
        """Kill a process and all that it started (SIGKILL), as a power cut would."""
        record = self._record(name)
        if record is not None:
            kill(record)

    def restart(self, name: str, *, sign_off: bool = True) -> None:
        """Start a process again, ended or not, and return when it is ready; keys, ports and files stay the same.

        A SuperNode that was killed is signed off first. With ``sign_off=False`` it is not, as when a device comes back
        alone, and Flower accepts it after up to a minute.
        """
        record = self._record(name)
        if record is not None:
            terminate([record], patience=PATIENCE)
            forget(record, self.folder.pids)
        is_node = name not in (SUPERLINK, SUPEREXEC)
        if is_node and sign_off:
            startup.take_leave(self.folder, name)
        self._launch(name)
        if is_node:
            startup.await_online(self.folder, [name], self._environment, self._timeout, sign_off=sign_off)
        elif name == SUPERLINK:
            startup.await_healthy(self.folder, name, self._timeout)

    def register(self) -> dict[str, int]:
        """Register the SuperNodes that the SuperLink does not know yet; return the ids of all by name."""
        known = dict(self.folder.settings().node_ids)
        missing = [name for name in self.names[2:] if name not in known]

        def add(name: str) -> str:
            key = self.folder.key(node_number(name)).public
            try:
                return runs.register(self._home, key)
            except DeployError as error:
                if "already in use" not in str(error):
                    raise
                # A start was interrupted before the id was kept, and Flower shows it only once.
                set_aside(key, key.with_suffix(""))
                node_key(self.folder.keys, name)
                return runs.register(self._home, key)

        known.update(zip(missing, self._each(add, missing)))
        self.folder.write(dataclasses.replace(self.folder.settings(), node_ids=known))
        return self.node_ids

    def rotate(self) -> list[Path]:
        """Set all keys, certificates, secrets and tokens aside; return the files. The next start makes new ones.

        Nodes keep their states under their new keys, and runs that continue accept this.
        """
        with locked(self.folder.root):
            if any(self.processes().values()):
                raise DeployError(f"stop the federation first: losac deploy down {self.folder.root}")
            nodes = [each for number in range(self.nodes) for each in self.folder.key(number)]
            old = [*self.folder.authority, *self.folder.server, self.folder.guards.executor, *nodes]
            old = [path for path in (*old, self.folder.guards.submitters) if path.exists()]
            self.folder.write(dataclasses.replace(self.folder.settings(), node_ids={}))
            for number in range(self.nodes):
                release(self.folder.state(number))
            for out in self.folder.results.glob("*/"):
                if (out / "checkpoint").is_file():
                    for name in members(out):
                        ask(out, "rebind", name)
            set_aside(*old)  # last: where this is interrupted before, the next start finds all as it was
        return old

    def submit(self, app: str | os.PathLike[str], run_config: Mapping[str, Any] | None = None) -> str:
        """Pin a Flower app and start a run of it with some of its settings changed; return the run's id.

        Whoever owns the folder owns the nodes, so this decides for both that the app may run.
        """
        path = Path(app).expanduser().resolve()
        settings = runs.checked_settings(path, run_config or {})
        pin(self.folder.guards.apps, path)
        run = runs.submit(self._home, path, settings)
        remember(self.folder.submissions, run, Submission(path, settings))
        return run

    def stop_run(self, run_id: str, timeout: float = 30.0) -> None:
        """End a run and return when its server no longer holds the results; its checkpoint stays."""
        status = self.status(run_id)["status"]
        if status.startswith("finished"):
            raise DeployError(f"run {run_id} does not run: it is {status}")
        runs.stop(self._home, run_id)
        out, end = self.submitted(run_id).out, time.monotonic() + timeout
        while out is not None and is_locked(out):
            if time.monotonic() > end:
                raise DeployError(f"run {run_id} is stopped, but its server still holds {out} after {timeout:g} s")
            time.sleep(_PAUSE)

    def resume(self, run_id: str, run_config: Mapping[str, Any] | None = None) -> str:
        """Continue a run that was stopped or broke off, from its checkpoint, as a new run; return the new id.

        Settings such as ``rounds`` can be changed; what the checkpoint depends on cannot.
        """
        before, status = self.submitted(run_id), self.status(run_id)["status"]
        if not status.startswith("finished"):
            raise DeployError(f"run {run_id} is {status}; stop it first: losac deploy stop {self.folder.root} {run_id}")
        if before.out is None or not (before.out / "checkpoint").is_file():
            raise DeployError(
                f"run {run_id} left no checkpoint to continue from; submit it again: "
                f"losac deploy run {self.folder.root} {before.app}"
            )
        if is_locked(before.out):
            raise DeployError(f"another run writes to {before.out}; see losac deploy status {self.folder.root}")
        return self.submit(before.app, {**before.settings, **(run_config or {})})

    def submitted(self, run_id: str) -> Submission:
        """Return what a run was submitted with."""
        known = submissions(self.folder.submissions)
        if run_id not in known:
            listed = ", ".join(known) or "none"
            raise ValueError(f"no run {run_id!r} was submitted from {self.folder.root}; there are {listed}")
        return known[run_id]

    def status(self, run_id: str) -> dict[str, Any]:
        """Return what Flower knows of a run; ``status`` is pending, starting, running or finished:…"""
        return runs.status(self._home, run_id)

    def wait(self, run_id: str, timeout: float = 3600.0) -> dict[str, Any]:
        """Wait until a run is finished; return its status, ``finished:completed`` if all went well."""
        return runs.wait(self._home, run_id, timeout)

    def log(self, run_id: str) -> str:
        """Return what a run's ServerApp wrote so far."""
        return runs.log(self._home, run_id)

    def runs(self) -> list[dict[str, Any]]:
        """Return what Flower knows of all runs."""
        return runs.list_runs(self._home)

    def online(self) -> dict[str, bool]:
        """Return for each SuperNode whether the SuperLink counts it as online; a killed one counts for a minute."""
        told = {node["node-id"]: node["status"] for node in runs.list_nodes(self._home)}
        return {name: told.get(str(number)) == "online" for name, number in self.node_ids.items()}

    def processes(self) -> dict[str, int | None]:
        """Return each process's pid, None if it does not run."""
        records = read_records(self.folder.pids)
        running = {name: record.pid for name, record in records.items() if is_running(record)}
        return {name: running.get(name) for name in self.names}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _home(self) -> Path:
        return self.folder.home(CLI)

    def _launch(self, name: str) -> None:
        startup.launch(self.folder, name, self._environment)

    def _record(self, name: str) -> ProcessRecord | None:
        if name not in self.names:
            raise ValueError(f"no process is called {name!r}; there are {', '.join(self.names)}")
        return read_records(self.folder.pids).get(name)

    def _each(self, function: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
        """Return a function's values, called in threads: each starts a process that takes a second."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(function, names))

    def _clear(self) -> bool:
        """Refuse a federation that runs; end the remains of one that crashed, and return whether there were any."""
        settings, superlink = self.folder.read(), read_records(self.folder.pids).get(SUPERLINK)
        if settings is not None and settings.ready and superlink is not None and is_running(superlink):
            raise DeployError(
                f"the federation in {self.folder.root} runs already (pid {superlink.pid}); "
                f"stop it with: losac deploy down {self.folder.root}"
            )
        stop_all(self.folder, patience=_HASTE)
        return settings is not None and settings.ready
