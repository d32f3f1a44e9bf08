"""Starts a federation's processes: what they need, their commands, and the wait until they are ready."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from losac._files import make_folder
from losac.deploy import commands, network
from losac.deploy.certificates import (
    certificate_authority,
    check_certificate,
    executor_secret,
    node_key,
    server_certificate,
    set_aside,
)
from losac.deploy.errors import DeployError
from losac.deploy.folder import CLI, SUPEREXEC, SUPERLINK, FederationFolder, FederationSettings, node_name, node_number
from losac.deploy.node_settings import own_settings
from losac.deploy.processes import ProcessRecord, is_running, kill, read_records, spawn
from losac.deploy.runs import list_nodes
from losac.deploy.submitters import OWNER, admit, write_credentials

_PAUSE = 0.1
_REFUSED = 75.0
"""Seconds until a killed SuperNode's successor is accepted at the latest: two heartbeats of 30 s, and a margin."""
_REFUSAL = "Failed to activate SuperNode"
_RETRY = 3.0


def prepare(folder: FederationFolder, nodes: int, host: str, port: int | None) -> FederationSettings:
    """Make missing keys, certificates and configuration; choose ports; keep the settings."""
    before = folder.read() or FederationSettings(nodes, host)
    if port is not None:
        network.require_free(port, host)
    if not folder.authority.certificate.exists():
        set_aside(folder.authority.key)  # a start was interrupted between the two
        certificate_authority(folder.keys)
    if not folder.server.certificate.exists():
        set_aside(folder.server.key)
        server_certificate(folder.keys, [host, "localhost"], folder.authority)
    check_certificate(folder.authority.certificate, [])
    check_certificate(folder.server.certificate, [host])
    for number in range(nodes):
        if not folder.key(number).private.exists():
            set_aside(folder.key(number).public)
            node_key(folder.keys, node_name(number))
        make_folder(folder.state(number), private=True)
        write_node_config(folder, number)
    if not folder.guards.executor.exists():
        executor_secret(folder.keys)
    wished = [port or before.port, before.fleet_port, *before.node_ports[:nodes]]
    ports = _ports(wished, nodes + 2, host)
    known = dict(before.node_ids) if folder.database.exists() else {}
    settings = FederationSettings(nodes, host, ports[0], ports[1], tuple(ports[2:]), known)
    address = network.address(ports[0], host)
    commands.write_connection(folder.home(CLI), address, folder.authority.certificate)
    admit(folder.guards.submitters, OWNER, partial(write_credentials, folder.home(CLI), address))
    return folder.write(settings)


def write_node_config(folder: FederationFolder, number: int) -> Path:
    """Write what a SuperNode reads at its start: its place, its state, and its owner's settings."""
    fixed = {"partition-id": number, "state-dir": str(folder.state(number))}
    return commands.write_toml(folder.node_config(number), own_settings(folder.own_settings(number)) | fixed)


def launch(folder: FederationFolder, name: str, extra: Mapping[str, str]) -> ProcessRecord:
    """Start a process of the federation, after ending what is left of an earlier one of the same name.

    The SuperExec of a dead SuperNode may outlive it, and would then serve the next process on the SuperNode's port.
    """
    if (forerunner := read_records(folder.pids).get(name)) is not None:
        kill(forerunner)
    if name not in (SUPERLINK, SUPEREXEC):
        write_node_config(folder, node_number(name))
    return spawn(
        name,
        _command(folder, name),
        commands.environment(folder.home(name), extra),
        pids=folder.pids,
        log=folder.log(name),
    )


def await_healthy(folder: FederationFolder, name: str, timeout: float) -> None:
    """Wait until the SuperLink, or a SuperNode's own server, answers."""
    end = time.monotonic() + timeout
    while not _is_healthy(folder, name):
        _require_running(folder, name)
        if time.monotonic() > end:
            raise DeployError(f"{name} is not ready after {timeout:g} s; see {folder.log(name)}")
        time.sleep(_PAUSE)


def await_online(
    folder: FederationFolder, names: Sequence[str], extra: Mapping[str, str], timeout: float, *, sign_off: bool = True
) -> None:
    """Wait until the SuperLink counts freshly started SuperNodes as online.

    A SuperNode that follows a killed one is refused for a while, and ends. It is started again, and signed off before
    if that is allowed.
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


def take_leave(folder: FederationFolder, name: str) -> bool:
    """Tell the SuperLink that a SuperNode is gone; return whether it accepted (not if the node is offline)."""
    settings = folder.settings()
    command = [sys.executable, "-m", "losac.deploy.signoff", network.address(settings.fleet_port, settings.host)]
    command += [str(folder.authority.certificate), str(folder.key(node_number(name)).private), settings.node_ids[name]]
    environment = commands.environment(folder.home(CLI))
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=60).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _command(folder: FederationFolder, name: str) -> list[str]:
    settings, authority = folder.settings(), folder.authority.certificate
    host, fleet = settings.host, network.address(settings.fleet_port, settings.host)
    if name == SUPERLINK:
        return commands.superlink(host, settings.port, fleet, folder.server, authority, folder.database, folder.guards)
    if name == SUPEREXEC:
        return commands.superexec(network.address(settings.port, host), authority, folder.guards)
    number = node_number(name)
    port, config = settings.node_ports[number], folder.node_config(number)
    return commands.supernode(fleet, authority, folder.key(number), host, port, config, folder.guards.apps)


def _ports(wished: Sequence[int], number: int, host: str) -> list[int]:
    """Return ports: the requested ones if they are free, else others."""
    kept = [port if port and network.is_free(port, host) else None for port in wished[:number]]
    kept += [None] * (number - len(kept))
    fresh = iter([port for port in network.free_ports(2 * number, host) if port not in kept])
    return [next(fresh) if port is None else port for port in kept]


def _is_healthy(folder: FederationFolder, name: str) -> bool:
    settings = folder.settings()
    if name == SUPERLINK:
        return network.is_healthy(settings.port, settings.host, folder.authority.certificate)
    return network.is_healthy(settings.node_ports[node_number(name)], settings.host)


def _came_online(node: Mapping[str, object] | None, *, within: float) -> bool:
    """Whether a node is online and has become so in the last seconds: a killed one counts as online for a while."""
    return node is not None and node["status"] == "online" and float(str(node["online-elapsed"])) <= within


def _require_running(folder: FederationFolder, name: str) -> None:
    if not is_running(read_records(folder.pids)[name]):
        raise DeployError(f"{name} ended at its start: {_last_words(folder.log(name))}; see {folder.log(name)}")


def _require_refusal(folder: FederationFolder, name: str) -> None:
    if _REFUSAL not in _tail(folder.log(name)):
        _require_running(folder, name)


def _last_words(log: Path) -> str:
    """Return a log's last error, or its last line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", _tail(log)).split("For more information")[0]
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.search(r"error", line, re.IGNORECASE)]
    return " ".join(lines[errors[-1] if errors else -1 :])[:500] or "it wrote nothing"


def _tail(log: Path, size: int = 4000) -> str:
    """Return the end of a log."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - size, 0))
        return file.read().decode("utf-8", errors="replace")
