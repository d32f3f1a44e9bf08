"""Files that keep a federation of several machines running: systemd units, a Dockerfile and compose files.

Their commands are those of :mod:`losac.deploy.commands`, for a server with its files below one folder.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

import losac
from losac._files import make_folder, write_whole
from losac.deploy import commands
from losac.deploy.certificates import Certified, NodeKey
from losac.deploy.network import address

PORT = 8001
"""Where submitters and executors are served, on the server itself."""
HERE = "127.0.0.1"
IMAGE_HOME = Path("/srv/losac")
IMAGE_PROGRAMS = Path("/usr/local/bin")
UNITS = ("losac-superlink.service", "losac-superexec.service", "losac-metrics.service", "losac-supernode.service")
CONTAINERS = ("Dockerfile", "compose.server.yaml", "compose.node.yaml")
HARDENING = """User={user}
WorkingDirectory={home}
{environment}
UMask=0077
Restart=on-failure
RestartSec=5
TimeoutStopSec=60
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
ReadWritePaths={home}"""


class Place(NamedTuple):
    """Where a server's or node's files and programs are, and who the clients' server is."""

    home: Path
    programs: Path
    server: str
    fleet_port: int

    def superlink(self) -> list[str]:
        """Return the command of the SuperLink."""
        keys = self.home / "keys"
        guards = self._guards()
        server = Certified(keys / "server.crt", keys / "server.key")
        fleet, database = address(self.fleet_port, "0.0.0.0"), self.home / "superlink.db"
        return self._own(commands.superlink(HERE, PORT, fleet, server, keys / "ca.crt", database, guards))

    def superexec(self) -> list[str]:
        """Return the command of the SuperExec."""
        return self._own(commands.superexec(address(PORT, HERE), self.home / "keys" / "ca.crt", self._guards()))

    def supernode(self) -> list[str]:
        """Return the command of a SuperNode."""
        key = NodeKey(self.home / "node.key", self.home / "node.key.pub")
        files = self.home / "ca.crt", key, HERE, 9094, self.home / "node-config.toml", self.home / "apps.txt"
        return self._own(commands.supernode(address(self.fleet_port, self.server), *files))

    def metrics(self) -> list[str]:
        """Return the command that serves the state of runs."""
        return [str(self.programs / "losac"), "deploy", "metrics", str(self.home)]

    def _guards(self) -> commands.Guards:
        keys = self.home / "keys"
        return commands.Guards(keys / "submitters.json", self.home / "apps.txt", keys / "executor.secret")

    def _own(self, command: Sequence[str]) -> list[str]:
        """Return a command with the programs of this place."""
        name = "python" if command[1] == "-m" else Path(command[0]).name
        return [str(self.programs / name), *command[1:]]


def write_units(folder: Path, place: Place, user: str) -> list[Path]:
    """Write systemd units; return the files."""
    environment = "\n".join(f"Environment={name}={value}" for name, value in _environment(place).items())
    values = {
        "home": str(place.home), "port": str(PORT), "fleet_port": str(place.fleet_port),
        "common": HARDENING.format(user=user, home=place.home, environment=environment),
    }  # fmt: skip
    values |= {name: _unit_words(getattr(place, name)()) for name in _PROGRAMS}
    files = [_write(folder / name, values) for name in UNITS]
    return [*files, _write(folder / "node-config.toml", values)]


def write_containers(folder: Path, place: Place) -> list[Path]:
    """Write a Dockerfile and compose files; return the files."""
    inside = place._replace(home=IMAGE_HOME, programs=IMAGE_PROGRAMS)
    check = (
        "import ssl, urllib.request; urllib.request.urlopen("
        f"'https://{HERE}:{PORT}/health', context=ssl.create_default_context(cafile='{IMAGE_HOME}/keys/ca.crt'))"
    )
    values = {
        "home": str(IMAGE_HOME), "port": str(PORT), "fleet_port": str(place.fleet_port), "version": losac.__version__,
        "environment": json.dumps(_environment(inside)), "healthy": json.dumps(["CMD", "python", "-c", check]),
    }  # fmt: skip
    values |= {name: json.dumps(getattr(inside, name)()) for name in _PROGRAMS}
    files = [_write(folder / name, values) for name in CONTAINERS]
    return [*files, _write(folder / "node-config.toml", values)]


_PROGRAMS = ("superlink", "superexec", "supernode", "metrics")


def _environment(place: Place) -> dict[str, str]:
    path = ":".join(dict.fromkeys([str(place.programs), "/usr/local/bin", "/usr/bin", "/bin"]))
    folders = {"FLWR_HOME": f"{place.home}/flwr", "LOSAC_CACHE": f"{place.home}/cache"}
    return {**commands.SETTINGS, **folders, "PATH": path}


def _unit_words(command: Sequence[str]) -> str:
    """Return a command as systemd reads it, where percent and dollar signs have a meaning."""
    return shlex.join(command).replace("%", "%%").replace("$", "$$")


def _write(path: Path, values: dict[str, str]) -> Path:
    if path.exists():
        raise ValueError(f"{path} exists and is not overwritten; give another folder")
    text = (resources.files("losac.deploy") / "templates" / "services" / f"{path.name}.txt").read_text(encoding="utf-8")
    make_folder(path.parent)
    write_whole(path, Template(text).substitute(values))
    return path
