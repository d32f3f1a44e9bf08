"""Where a client's state is kept: two records; one replaces the other in one step."""

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
        """Return a record, or None if there is none or it is damaged."""

    def write(self, name: str, record: Record) -> None:
        """Keep a record instead of the one before."""

    def commit(self) -> None:
        """Replace the committed record by the pending one."""


class Folder:
    """A vault in files that survive a crash.

    A damaged file counts as none, and is set aside for inspection.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> Record | None:
        """Return a record, or None if there is none or it is damaged."""
        path = self.folder / name
        try:
            return durable.read(path)
        except ValueError as error:
            LOG.error("%s; it is set aside as %s", error, durable.set_aside(path).name)
            return None

    def write(self, name: str, record: Record) -> None:
        """Keep a record instead of the one before."""
        durable.write(self.folder / name, record)

    def commit(self) -> None:
        """Replace the committed record by the pending one."""
        durable.replace(self.folder / "pending", self.folder / "committed")


class Memory:
    """A vault in memory, for federations within one process."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def read(self, name: str) -> Record | None:
        """Return a record, or None if there is none."""
        return self.records.get(name)

    def write(self, name: str, record: Record) -> None:
        """Keep a record instead of the one before."""
        self.records[name] = record

    def commit(self) -> None:
        """Replace the committed record by the pending one."""
        self.records["committed"] = self.records.pop("pending")
