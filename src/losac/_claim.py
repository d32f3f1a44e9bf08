"""A folder for one command alone: it is locked, then checked, then cleared, and only then written to.

Everything that writes results goes through here. Nothing heavy is imported: a run is on disk before jax is in memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from losac._files import LOCK, is_locked, locked, replace, sync_folder, write_whole

EXPERIMENT = "experiment.toml"
RUN_FILES = (
    EXPERIMENT, "run.json", "metrics.csv", "metrics.parquet", "clients.json", "log.txt", "history.npz", "checkpoints"
)  # fmt: skip
"""All files that a run writes into its folder, except the lock."""
LEFT_AT_START = {EXPERIMENT, "clients.json", "log.txt", "checkpoints", "runs", LOCK}
"""The files that a folder may hold before its run begins."""
_STAGED, _READY, _OLD = ".new", ".ready", ".old"


class FolderError(OSError):
    """A run could not be written to its folder."""


class FolderClaim:
    """A folder that is locked while the claim lasts.

    Attributes:
      folder: its path.
      results: patterns of what earlier commands may have left in it.
      empty: whether it was empty.
      begun: whether this command has written into it.
    """

    def __init__(self, folder: Path, results: Sequence[str]) -> None:
        self.folder, self.results = folder, results
        self.begun = self.replacing = False
        shutil.rmtree(folder / _STAGED, ignore_errors=True)
        self._put_in_place()
        if not (folder / EXPERIMENT).exists():
            self._put_back()
        self.empty = not holds_anything(folder)

    def begin(self, experiment: str, *, anew: bool = True) -> None:
        """Write the experiment; from here on the run can be resumed. With ``anew``, it replaces what was there.

        What was there is set aside until :meth:`settle`, and comes back if the command ends before that.
        """
        if anew and not self.begun:
            self._set_aside()
        self.begun = True
        write_whole(self.folder / EXPERIMENT, experiment)

    def settle(self) -> None:
        """Give up what the run replaces: it has got going, and no error in its input can end it any more."""
        self.replacing = False
        if (self.folder / _OLD).is_dir():
            replace(self.folder / _OLD, self.folder / _STAGED)
            shutil.rmtree(self.folder / _STAGED)

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove what earlier commands left."""
        self.settle()
        _remove([path for path in self._found() if path.name not in keep], self.folder)

    def _found(self) -> list[Path]:
        """Return what earlier commands left; refuse to touch a run that another process writes."""
        old = [path for pattern in self.results for path in self.folder.glob(pattern)]
        for path in old:
            if path.is_dir() and is_locked(path):
                raise FolderError(f"another run writes into {path}; wait for it, or give another folder")
        return old

    def _set_aside(self) -> None:
        """Move what earlier commands left; a command that is killed meanwhile leaves it to the next to move it back."""
        old, ready = self._found(), self.folder / _READY
        if (self.folder / _OLD).is_dir():  # of a command that was killed: the run that it began had not got going
            _remove(old, self.folder)
            self.replacing = True
        elif old:
            ready.mkdir()
            for path in old:
                moved = ready / path.relative_to(self.folder)
                moved.parent.mkdir(exist_ok=True)
                os.replace(path, moved)
            replace(ready, self.folder / _OLD)
            self.replacing = True

    def _put_back(self) -> None:
        """Put what was set aside in the place of the run that should have replaced it."""
        self.replacing = False
        if (self.folder / _OLD).is_dir():
            _remove(self._found(), self.folder)
            replace(self.folder / _OLD, self.folder / _READY)
            self._put_in_place()

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield a folder for files that appear in this one when all of them are written, or not at all.

        A command that is killed while it moves them leaves them to the next one that claims the folder.
        """
        new = self.folder / _STAGED
        new.mkdir()
        try:
            yield new
            for path in new.iterdir():
                with open(path, "rb+") as file:
                    os.fsync(file.fileno())
            replace(new, self.folder / _READY)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        self.begun = True
        self._put_in_place()

    def _put_in_place(self) -> None:
        ready = self.folder / _READY
        if ready.is_dir():
            _merge(ready, self.folder)
            sync_folder(self.folder)

    def _leave(self, made: bool, had_lock: bool) -> None:
        """Leave nothing in a folder that was empty and where nothing has begun."""
        if not self.folder.is_dir():
            return
        if self.replacing:
            self._put_back()
            self.begun = False
        there = {path.name for path in self.folder.iterdir()}
        if self.empty and there <= LEFT_AT_START and not holds_anything(self.folder / "runs"):
            for name in there - {LOCK}:
                path = self.folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            (self.folder / LOCK).unlink(missing_ok=True)
            if made:
                self.folder.rmdir()
        elif not had_lock and not self.begun:
            (self.folder / LOCK).unlink(missing_ok=True)


def _merge(source: Path, target: Path) -> None:
    """Move all that is in one folder into another."""
    for path in source.iterdir():
        there = target / path.name
        if path.is_dir() and there.is_dir():
            _merge(path, there)
        else:
            os.replace(path, there)
    source.rmdir()


def _remove(old: Collection[Path], folder: Path) -> None:
    """Remove results from a folder. The experiment goes first: without it, nobody could resume the rest of a run."""
    for path in sorted(old, key=lambda path: path.name != EXPERIMENT):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if path.name == EXPERIMENT:
            sync_folder(folder)


@contextlib.contextmanager
def claimed(folder: Path, results: Sequence[str] = RUN_FILES) -> Iterator[FolderClaim]:
    """Lock a folder; refuse if another process has it."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; give a folder")
    made, had_lock = not folder.exists(), (folder / LOCK).exists()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(folder))
        except BlockingIOError:
            raise FolderError(f"another run writes into {folder}; give each run its own folder") from None
        except OSError as error:
            raise FolderError(f"cannot write into {folder}: {error.strerror or error}") from error
        claim = FolderClaim(folder, results)
        try:
            yield claim
        finally:
            claim._leave(made, had_lock)


def holds_anything(folder: Path) -> bool:
    """Whether a folder holds more than a lock."""
    return folder.is_dir() and any(path.name != LOCK for path in folder.iterdir())
