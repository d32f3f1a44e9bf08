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
from typing import Any

from losac.deploy.certificates import Certified, NodeKey
from losac.deploy.errors import DeployError

CONNECTION = "losac"
"""What the connection to the SuperLink is called in Flower's configuration."""

_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    # Else the SuperLink installs the app's dependencies from the package index at every run.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "PYTHONUNBUFFERED": "1",
}


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a Flower program whose files are below a folder."""
    home.mkdir(parents=True, exist_ok=True)
    given = {**os.environ, **_SETTINGS, **(extra or {}), "FLWR_HOME": str(home)}
    given["PATH"] = os.pathsep.join([str(_programs()), os.environ.get("PATH", os.defpath)])
    for name in ("NO_PROXY", "no_proxy"):
        given[name] = ",".join(filter(None, [given.get(name), "127.0.0.1", "localhost", "::1"]))
    return given


def program(name: str) -> str:
    """Return the path of one of Flower's programs, of this Python's environment before any other."""
    path = shutil.which(name, path=os.pathsep.join([str(_programs()), os.environ.get("PATH", os.defpath)]))
    if path is None:
        raise DeployError(f"{name} is not there; install Flower with: pip install 'losac[flower]'")
    return path


def superlink(host: str, port: int, server: Certified, authority: Path, database: Path) -> list[str]:
    """Return the command of a SuperLink with TLS that knows its SuperNodes by key and keeps its runs in a file."""
    return [
        program("flower-superlink"),
        *("--host", host, "--port", str(port), "--database", str(database)),
        *("--ssl-ca-certfile", str(authority), "--ssl-certfile", str(server.certificate)),
        *("--ssl-keyfile", str(server.key), "--enable-supernode-auth", "--isolation", "process"),
    ]


def superexec(superlink_address: str, authority: Path) -> list[str]:
    """Return the command of the process that starts ServerApps; a run survives the SuperLink's death by it."""
    return [
        program("flower-superexec"),
        *("--runtime-api-address", superlink_address, "--root-certificates", str(authority)),
    ]


def supernode(
    superlink_address: str, authority: Path, key: NodeKey, host: str, port: int, node_config: Path
) -> list[str]:
    """Return the command of a SuperNode; its configuration is a TOML file."""
    return [
        program("flower-supernode"),
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


def flwr(home: Path, *arguments: str, timeout: float = 60) -> dict[str, Any]:
    """Call ``flwr`` and return its JSON answer; what it refuses is an error."""
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
        # What comes before the code is chatter about what was asked.
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
    """Write numbers, truth values and texts, and sections of them, as TOML."""
    lines = []
    for name, value in content.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]", *(f"{key} = {toml_value(each)}" for key, each in value.items())]
        else:
            lines.append(f"{name} = {toml_value(value)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).lstrip() + "\n", encoding="utf-8")
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
