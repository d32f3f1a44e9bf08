"""The command lines and the environment of Flower's programs, and ``flwr`` called for its JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from losac._files import make_folder, write_whole
from losac.deploy.certificates import Certified, NodeKey
from losac.deploy.errors import DeployError

CONNECTION = "losac"
"""The name of the connection to the SuperLink in Flower's configuration."""

SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Else the SuperLink installs the app's dependencies from the package index at every run.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "PYTHONUNBUFFERED": "1",
}
"""What all of Flower's programs are told."""


class Guards(NamedTuple):
    """The files that say who may submit, which apps may run, and how an executor proves itself."""

    submitters: Path
    apps: Path
    executor: Path


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a Flower program whose files are below a folder."""
    make_folder(home, private=True)
    given = {**os.environ, **SETTINGS, **(extra or {}), "FLWR_HOME": str(home)}
    given["PATH"] = os.pathsep.join([str(_programs()), os.environ.get("PATH", os.defpath)])
    for name in ("NO_PROXY", "no_proxy"):
        given[name] = ",".join(filter(None, [given.get(name), "127.0.0.1", "localhost", "::1"]))
    return given


def program(name: str) -> str:
    """Return the path of one of Flower's programs, preferably from this Python's environment."""
    path = shutil.which(name, path=os.pathsep.join([str(_programs()), os.environ.get("PATH", os.defpath)]))
    if path is None:
        raise DeployError(f"{name} is not there; install Flower with: pip install 'losac[flower]'")
    return path


def superlink(
    host: str, port: int, fleet_address: str, server: Certified, authority: Path, database: Path, guards: Guards
) -> list[str]:
    """Return the command of a SuperLink with TLS that knows its SuperNodes by key and keeps its runs in a file.

    Clients are served at the fleet's address alone; submitters and executors at host and port.
    """
    return [
        *(sys.executable, "-m", "losac.deploy.superlink", "--fleet-address", fleet_address),
        *("--submitters", str(guards.submitters), "--apps", str(guards.apps)),
        *("--superexec-auth-secret-file", str(guards.executor)),
        *("--host", host, "--port", str(port), "--database", str(database)),
        *("--ssl-ca-certfile", str(authority), "--ssl-certfile", str(server.certificate)),
        *("--ssl-keyfile", str(server.key), "--enable-supernode-auth", "--isolation", "process"),
    ]


def superexec(superlink_address: str, authority: Path, guards: Guards) -> list[str]:
    """Return the command of the process that starts ServerApps; a run survives the SuperLink's death by it."""
    return [
        program("flower-superexec"),
        *("--runtime-api-address", superlink_address, "--root-certificates", str(authority)),
        *("--superexec-auth-secret-file", str(guards.executor)),
    ]


def supernode(
    superlink_address: str, authority: Path, key: NodeKey, host: str, port: int, node_config: Path, apps: Path
) -> list[str]:
    """Return the command of a SuperNode that runs pinned apps only; its configuration is a TOML file."""
    return [
        *(sys.executable, "-m", "losac.deploy.supernode", "--apps", str(apps)),
        *("--superlink", superlink_address, "--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key.private), "--host", host, "--port", str(port)),
        *("--node-config", str(node_config)),
    ]


def write_connection(home: Path, superlink_address: str, authority: Path) -> None:
    """Tell ``flwr`` where the SuperLink is."""
    write_toml(
        home / "config.toml",
        {
            "superlink": {"default": CONNECTION},
            f"superlink.{CONNECTION}": {"address": superlink_address, "root-certificates": str(authority)},
        },
    )


def flwr(home: Path, *arguments: str, timeout: float = 180) -> dict[str, Any]:
    """Call ``flwr`` and return its JSON answer; raise an error if it refuses."""
    answer = call(home, *arguments, "--format", "json", timeout=timeout)
    begin = answer.stdout.find("{")
    try:
        told: dict[str, Any] = json.loads(answer.stdout[begin:]) if begin >= 0 else {}
    except ValueError:
        told = {}
    if answer.returncode or not told.get("success"):
        why: str = told.get("error-message") or answer.stdout.strip() or answer.stderr.strip() or "no answer"
        if "SuperLink is unavailable" in why:
            raise DeployError("the SuperLink does not answer; start the federation with: losac deploy up")
        # The text before the JSON is chatter about the request.
        text = re.sub(r"^.*(?=\[code: )", "", " ".join(why.split()))
        raise DeployError(f"flwr {' '.join(arguments[:2])}: {text}")
    return told


def call(home: Path, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Call ``flwr`` and return what it wrote."""
    try:
        return subprocess.run(
            [program("flwr"), *arguments],
            env=environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise DeployError(f"flwr {' '.join(arguments[:2])} gave no answer in {timeout:g} s") from None


def write_toml(path: Path, content: Mapping[str, Any]) -> Path:
    """Write numbers, booleans, texts, and sections of them as TOML."""
    lines = []
    for name, value in content.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {toml_value(each)}" for key, each in value.items())]
        else:
            lines.append(f"{name} = {toml_value(value)}")
    make_folder(path.parent, private=True)
    write_whole(path, "\n".join(lines).lstrip() + "\n", private=True)
    return path


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it.

    >>> toml_value(True), toml_value(1e-5), toml_value('a "b"')
    ('true', '1e-05', '"a \\\\"b\\\\""')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    raise ValueError(f"{value!r} cannot be configured in Flower; give a number, a truth value or a text")


def _programs() -> Path:
    return Path(sys.executable).parent
