"""Files that are written whole or not at all, and folders that one process has to itself."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def write_whole(path: Path, content: bytes | str) -> None:
    """Put a file in the place of what was there; whatever interrupts it, one of both is there afterwards.

    Nobody else may write the same file at the same time: see :func:`locked`.
    """
    temporary = path.with_name(f".{path.name}.new")  # one name, so that killed processes leave no heap of them
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace(source: Path, target: Path) -> None:
    """Rename a file for good."""
    os.replace(source, target)
    _sync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Make a folder for good, with those above it."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes; raise BlockingIOError where one has it."""
    make_folder(folder)
    with open(folder / "lock", "a") as file:
        _hold(file, shared=False)
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder."""
    try:
        with open(folder / "lock") as file:
            _hold(file, shared=True)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _hold(file: IO[Any], *, shared: bool) -> None:
    """Lock an open file until it is closed; raise BlockingIOError where another process has it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from None
    else:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return  # there is no way to, and no need
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
