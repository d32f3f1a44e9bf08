"""Where a client's state is kept: two records, one of which takes the place of the other in one step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from losac.federation import durable
from losac.federation.durable import Record

LOG = logging.getLogger("losac")


class Vault(Protocol):
    """Two records by name, ``pending`` and ``committed``."""

    def read(self, name: str) -> Record | None:
        """Return a record, or None where there is none, or no whole one."""

    def write(self, name: str, record: Record) -> None:
        """Keep a record in place of the one before."""

    def commit(self) -> None:
        """Let the pending record take the place of the committed one."""


class Folder:
    """A vault in files that survive a crash.

    A damaged file counts as none, and is set aside for whoever wants to look at it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Record | None:
        """Return a record, or None where there is none, or no whole one."""
        path = self.folder / name
        try:
            return durable.read(path)
        except ValueError as error:
            LOG.error("%s; it is set aside as %s", error, durable.set_aside(path).name)
            return None

    def write(self, name: str, record: Record) -> None:
        """Keep a record in place of the one before."""
        durable.write(self.folder / name, record)

    def commit(self) -> None:
        """Let the pending record take the place of the committed one."""
        durable.replace(self.folder / "pending", self.folder / "committed")


class Memory:
    """A vault in memory, for federations within one process."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def read(self, name: str) -> Record | None:
        """Return a record, or None where there is none."""
        return self.records.get(name)

    def write(self, name: str, record: Record) -> None:
        """Keep a record in place of the one before."""
        self.records[name] = record

    def commit(self) -> None:
        """Let the pending record take the place of the committed one."""
        self.records["committed"] = self.records.pop("pending")
