"""Records that survive a crash: written whole or not at all, and checked when they are read.

A record is a few plain values and lists of arrays. It goes into a temporary file in the same folder, with a checksum
in front; the file is forced to the disk before it replaces the old one, and the folder after that.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from losac._files import locked, make_folder, replace, write_whole

__all__ = ["DamagedError", "Record", "locked", "make_folder", "read", "replace", "set_aside", "write"]

MAGIC = b"losac record 1\n"


class DamagedError(ValueError):
    """A file is not a record, or not a whole one."""


class Record(NamedTuple):
    """Plain values, and arrays by name."""

    values: Mapping[str, Any]
    arrays: Mapping[str, Sequence[np.ndarray]]


def write(path: Path, record: Record) -> None:
    """Replace a record; after any interruption the file holds either the old record or the new.

    Nobody else may write the same record at the same time: see :func:`locked`. Folder and file are their owner's alone.
    """
    body = _encode(record)
    make_folder(path.parent, private=True)
    write_whole(path, MAGIC + hashlib.sha256(body).digest() + body, private=True)


def read(path: Path) -> Record | None:
    """Return a record, or None if there is no file; raise DamagedError if it is not whole."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    head = len(MAGIC) + 32
    if content[: len(MAGIC)] != MAGIC or hashlib.sha256(content[head:]).digest() != content[len(MAGIC) : head]:
        raise DamagedError(f"{path} is damaged: its checksum is not that of its content")
    return _decode(content[head:])


def set_aside(path: Path) -> Path:
    """Move a damaged file out of the way, for inspection; at most one is kept."""
    aside = path.with_name(path.name + ".damaged")
    with contextlib.suppress(FileNotFoundError):
        replace(path, aside)
    return aside


def _encode(record: Record) -> bytes:
    names = {name: len(arrays) for name, arrays in record.arrays.items()}
    flat = {f"{name}/{k}": np.asarray(a) for name, arrays in record.arrays.items() for k, a in enumerate(arrays)}
    values = json.dumps({"values": dict(record.values), "arrays": names})
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, values=np.array(values), **flat)
    return buffer.getvalue()


def _decode(body: bytes) -> Record:
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        head = json.loads(str(file["values"]))
        arrays = {name: [file[f"{name}/{k}"] for k in range(count)] for name, count in head["arrays"].items()}
    return Record(head["values"], arrays)
