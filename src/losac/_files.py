"""Files that are written whole or not at all, and locks on folders."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LOCK = "lock"

_WINDOWS = sys.platform == "win32"
_PATIENCE = 0.3
"""Seconds to try for a lock: a process that only checks whether a folder is locked holds it for a moment."""


def write_whole(path: Path, content: bytes | str, *, private: bool = False) -> None:
    """Replace a file atomically: after an interruption either the old or the new file is there, whole.

    Of two processes that write the same file, one waits for the other. Only its owner can read a private file.
    """
    path = Path(os.path.realpath(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.new")  # always the same name: killed processes leave at most one
    with _sole_writer(temporary) as file:
        try:
            if private and not _WINDOWS:
                os.fchmod(file.fileno(), 0o600)
            file.truncate(0)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            if not _WINDOWS:
                replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    if _WINDOWS:
        replace(temporary, path)  # there an open file cannot be renamed


@contextlib.contextmanager
def editing(path: Path) -> Iterator[None]:
    """Read a file and replace it while nobody else does: others wait."""
    lock = path.with_name(f".{path.name}.lock")
    with _sole_writer(lock):
        try:
            yield
        finally:
            if not _WINDOWS:  # there an open file cannot be removed
                lock.unlink()


def write_picture(figure: Any, path: Path, **options: Any) -> None:
    """Write a matplotlib figure whole or not at all, in the format of the file's ending."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], **options)
    write_whole(path, content.getvalue())


@contextlib.contextmanager
def _sole_writer(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that nobody else writes; after waiting for another, open it again, since it has been renamed."""
    while True:
        with open(path, "ab") as file:
            if not _WINDOWS:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            if _WINDOWS or _is_at(file, path):
                yield file
                return


def _is_at(file: IO[Any], path: Path) -> bool:
    """Whether an open file is still the one of its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def replace(source: Path, target: Path) -> None:
    """Rename a file durably."""
    os.replace(source, target)
    sync_folder(target.parent)


def make_folder(folder: Path, *, private: bool = False) -> None:
    """Make a folder for good, with those above it; only its owner can enter a private one."""
    if not folder.exists():
        make_folder(folder.parent, private=private)
        folder.mkdir(exist_ok=True, mode=0o700 if private else 0o777)
        sync_folder(folder.parent)


@contextlib.contextmanager
def locked(folder: Path, *, private: bool = False) -> Iterator[None]:
    """Hold a folder against other processes; raise BlockingIOError where one has it."""
    make_folder(folder, private=private)
    last = time.monotonic() + _PATIENCE
    while True:
        with open(folder / LOCK, "a", opener=_private if private else None) as file:
            try:
                _hold(file, shared=False)
            except BlockingIOError:
                if time.monotonic() >= last:
                    raise
                time.sleep(_PATIENCE / 10)
                continue
            if _WINDOWS or _is_at(file, folder / LOCK):
                yield
                return


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder."""
    try:
        with open(folder / LOCK) as file:
            _hold(file, shared=True)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _hold(file: IO[Any], *, shared: bool) -> None:
    """Lock an open file until it is closed; raise BlockingIOError if another process has it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(*error.args) from None
    else:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def sync_folder(folder: Path) -> None:
    """Make renames and deletions in a folder durable."""
    if sys.platform == "win32":
        return  # not possible there, and not needed
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
