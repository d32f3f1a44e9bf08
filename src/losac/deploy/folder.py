"""The folder of a federation: all its paths, and what is needed to find the processes again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from losac._files import make_folder, write_whole
from losac.deploy.certificates import Certified, NodeKey
from losac.deploy.commands import Guards

SUPERLINK, SUPEREXEC, CLI = "superlink", "superexec", "cli"


def node_name(number: int) -> str:
    """Return the name of a SuperNode.

    >>> node_name(3)
    'node-3'
    """
    return f"node-{number}"


def node_number(name: str) -> int:
    """Return the number of a SuperNode's name.

    >>> node_number("node-3")
    3
    """
    return int(name.removeprefix("node-"))


@dataclass(frozen=True)
class FederationSettings:
    """What a federation was started with; ``ready`` once all of its nodes were online."""

    nodes: int
    host: str = "127.0.0.1"
    port: int = 0
    fleet_port: int = 0
    node_ports: tuple[int, ...] = ()
    node_ids: Mapping[str, str] = field(default_factory=dict)
    ready: bool = False


@dataclass(frozen=True)
class FederationFolder:
    """The paths below one folder."""

    root: Path

    @property
    def keys(self) -> Path:
        """Keys and certificates."""
        return self.root / "keys"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.root / "logs"

    @property
    def pids(self) -> Path:
        """One pid file for each process."""
        return self.root / "pids"

    @property
    def results(self) -> Path:
        """What runs write, each in its own folder."""
        return self.root / "results"

    @property
    def database(self) -> Path:
        """The SuperLink's memory."""
        return self.root / "superlink.db"

    @property
    def authority(self) -> Certified:
        """The authority that all trust."""
        return Certified(self.keys / "ca.crt", self.keys / "ca.key")

    @property
    def server(self) -> Certified:
        """The SuperLink's certificate."""
        return Certified(self.keys / "server.crt", self.keys / "server.key")

    @property
    def guards(self) -> Guards:
        """The files that say who may do what; this machine's nodes share the list of apps."""
        return Guards(self.root / "submitters.json", self.root / "apps.txt", self.keys / "executor.secret")

    @property
    def submissions(self) -> Path:
        """What was submitted, by run."""
        return self.root / "runs.json"

    def own_settings(self, number: int) -> Path:
        """Return the file of a node's own settings, which ``up`` reads and never writes."""
        return self.root / "nodes" / f"{node_name(number)}.toml"

    def log(self, name: str) -> Path:
        """Return a process's log."""
        return self.logs / f"{name}.log"

    def home(self, name: str) -> Path:
        """Return where Flower keeps a process's files; with separate folders, none waits for another."""
        return self.root / "flwr" / name

    def key(self, number: int) -> NodeKey:
        """Return a SuperNode's key."""
        return NodeKey(self.keys / node_name(number), self.keys / f"{node_name(number)}.pub")

    def state(self, number: int) -> Path:
        """Return the folder of a client's state between rounds."""
        return self.root / "state" / str(number)

    def node_config(self, number: int) -> Path:
        """Return the file with a SuperNode's configuration."""
        return self.home(node_name(number)) / "node-config.toml"

    def fresh_results(self) -> Path:
        """Make and return the folder of a new run's results: the next number."""
        numbers = [int(path.name) for path in self.results.glob("*") if path.name.isdecimal()]
        path = self.results / str(max(numbers, default=0) + 1)
        make_folder(self.results, private=True)
        path.mkdir(mode=0o700)
        return path

    def read(self) -> FederationSettings | None:
        """Return what the federation was started with, None if there is none yet."""
        path = self.root / "federation.json"
        if not path.exists():
            return None
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return FederationSettings(**{**fields, "node_ports": tuple(fields["node_ports"])})
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"{path} is damaged; remove it, and start the federation again") from None

    def settings(self) -> FederationSettings:
        """Return what the federation was started with; there must be one."""
        settings = self.read()
        if settings is None:
            raise ValueError(f"{self.root} holds no federation; start one with: losac deploy up {self.root}")
        return settings

    def write(self, settings: FederationSettings) -> FederationSettings:
        """Keep what the federation was started with."""
        make_folder(self.root, private=True)
        write_whole(self.root / "federation.json", json.dumps(asdict(settings), indent=2) + "\n", private=True)
        return settings
