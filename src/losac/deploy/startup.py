"""The start of a federation's processes: what they need, their commands, and the wait until they are ready."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from losac.deploy import commands, network
from losac.deploy.certificates import certificate_authority, check_certificate, node_key, server_certificate
from losac.deploy.errors import DeployError
from losac.deploy.folder import CLI, SUPEREXEC, SUPERLINK, Folder, Settings, node_name, node_number
from losac.deploy.processes import Record, is_running, kill, read_records, spawn
from losac.deploy.runs import list_nodes

_PAUSE = 0.1
_REFUSED = 75.0
"""Seconds after which a killed SuperNode's successor is taken at the latest: two heartbeats of 30 s, and a margin."""
_REFUSAL = "Failed to activate SuperNode"
_RETRY = 3.0


def prepare(folder: Folder, nodes: int, host: str, port: int | None) -> Settings:
    """Make keys, certificates and configuration so far as they are not there; choose ports; keep the settings."""
    before = folder.read() or Settings(nodes, host)
    if port is not None:
        network.require_free(port, host)
    if not folder.authority.certificate.exists():
        certificate_authority(folder.keys)
    if not folder.server.certificate.exists():
        server_certificate(folder.keys, [host, "localhost"], folder.authority)
    check_certificate(folder.authority.certificate, [])
    check_certificate(folder.server.certificate, [host])
    for number in range(nodes):
        if not folder.key(number).private.exists():
            node_key(folder.keys, node_name(number))
        folder.state(number).mkdir(parents=True, exist_ok=True, mode=0o700)
        commands.write_toml(
            folder.node_config(number), {"partition-id": number, "state-dir": str(folder.state(number))}
        )
    wished = [port or before.port, *before.node_ports[:nodes]]
    ports = _ports(wished, nodes + 1, host)
    known = dict(before.node_ids) if folder.database.exists() else {}
    settings = Settings(nodes, host, ports[0], tuple(ports[1:]), known)
    commands.write_connection(folder.home(CLI), network.address(ports[0], host), folder.authority.certificate)
    return folder.write(settings)


def launch(folder: Folder, name: str, extra: Mapping[str, str]) -> Record:
    """Start a process of the federation, after the last of what a forerunner of the same name left.

    The SuperExec of a dead SuperNode may outlive it, and then serves whoever listens on the SuperNode's port next.
    """
    if (forerunner := read_records(folder.pids).get(name)) is not None:
        kill(forerunner)
    return spawn(
        name,
        _command(folder, name),
        commands.environment(folder.home(name), extra),
        pids=folder.pids,
        log=folder.log(name),
    )


def await_healthy(folder: Folder, name: str, timeout: float) -> None:
    """Wait until the SuperLink, or a SuperNode's own server, answers."""
    end = time.monotonic() + timeout
    while not _is_healthy(folder, name):
        _require_running(folder, name)
        if time.monotonic() > end:
            raise DeployError(f"{name} is not ready after {timeout:g} s; see {folder.log(name)}")
        time.sleep(_PAUSE)


def await_online(
    folder: Folder, names: Sequence[str], extra: Mapping[str, str], timeout: float, *, sign_off: bool = True
) -> None:
    """Wait until the SuperLink counts freshly started SuperNodes as online.

    A SuperNode whose forerunner was killed is refused for a while, and ends. It is started again, and signed off before
    where that is allowed.
    """
    began = time.monotonic()
    ids = folder.settings().node_ids
    waiting, refused = set(names), False
    while waiting:
        if time.monotonic() - began > (timeout + _REFUSED if refused else timeout):
            raise DeployError(f"{', '.join(sorted(waiting))} not online after {timeout:g} s; see {folder.logs}")
        time.sleep(_PAUSE)
        for name in waiting:
            if not is_running(read_records(folder.pids)[name]):
                _require_refusal(folder, name)
                refused = True
                if not (sign_off and take_leave(folder, name)):
                    time.sleep(_RETRY)
                launch(folder, name, extra)
        if all(_is_healthy(folder, name) for name in waiting):
            told = {node["node-id"]: node for node in list_nodes(folder.home(CLI))}
            elapsed = time.monotonic() - began + 1.0
            waiting -= {n for n in waiting if _came_online(told.get(ids[n]), within=elapsed)}


def take_leave(folder: Folder, name: str) -> bool:
    """Tell the SuperLink that a SuperNode is gone; return whether it took note (an offline one it does not)."""
    settings = folder.settings()
    command = [sys.executable, "-m", "losac.deploy.signoff", network.address(settings.port, settings.host)]
    command += [str(folder.authority.certificate), str(folder.key(node_number(name)).private), settings.node_ids[name]]
    environment = commands.environment(folder.home(CLI))
    return subprocess.run(command, env=environment, capture_output=True, timeout=60).returncode == 0


def _command(folder: Folder, name: str) -> list[str]:
    settings, authority = folder.settings(), folder.authority.certificate
    superlink = network.address(settings.port, settings.host)
    if name == SUPERLINK:
        return commands.superlink(settings.host, settings.port, folder.server, authority, folder.database)
    if name == SUPEREXEC:
        return commands.superexec(superlink, authority)
    number = node_number(name)
    port = settings.node_ports[number]
    return commands.supernode(superlink, authority, folder.key(number), settings.host, port, folder.node_config(number))


def _ports(wished: Sequence[int], number: int, host: str) -> list[int]:
    """Return ports: those wished for where they are free, and others."""
    kept = [port if port and network.is_free(port, host) else None for port in wished[:number]]
    kept += [None] * (number - len(kept))
    fresh = iter([port for port in network.free_ports(2 * number, host) if port not in kept])
    return [next(fresh) if port is None else port for port in kept]


def _is_healthy(folder: Folder, name: str) -> bool:
    settings = folder.settings()
    if name == SUPERLINK:
        return network.is_healthy(settings.port, settings.host, folder.authority.certificate)
    return network.is_healthy(settings.node_ports[node_number(name)], settings.host)


def _came_online(node: Mapping[str, object] | None, *, within: float) -> bool:
    """Whether a node is online and has become so in the last seconds: a killed one counts as online for a while."""
    return node is not None and node["status"] == "online" and float(str(node["online-elapsed"])) <= within


def _require_running(folder: Folder, name: str) -> None:
    if not is_running(read_records(folder.pids)[name]):
        raise DeployError(f"{name} ended at its start: {_last_words(folder.log(name))}; see {folder.log(name)}")


def _require_refusal(folder: Folder, name: str) -> None:
    if _REFUSAL not in _tail(folder.log(name)):
        _require_running(folder, name)


def _last_words(log: Path) -> str:
    """Return a log's last error, or its last line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", _tail(log)).split("For more information")[0]
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [place for place, line in enumerate(lines) if re.search(r"error", line, re.IGNORECASE)]
    return " ".join(lines[errors[-1] if errors else -1 :])[:500] or "it wrote nothing"


def _tail(log: Path, size: int = 4000) -> str:
    """Return the end of a log."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - size, 0))
        return file.read().decode("utf-8", errors="replace")
