"""The states of many clients outside the device: in memory, or in memory-mapped files.

A client gets the next free slot when its state is first written. Clients never written cost one number, and read as
the state that all start from. The files are sparse: slots not in use take no disk.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import jax
import numpy as np

from losac.trees import Tree

NOT_RESERVED = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python's mmap does not name everywhere: memory is allocated when it is written, not before."""

LAG = 4
"""After this many further writes, one is assumed to be on the disk."""


class Spill:
    """One row for each of N clients, a tree of arrays; the client's slot is the index.

    Args:
      first: the row of a client that was never written, a tree of NumPy arrays.
      clients: N.
      folder: for the files, one per leaf, which have no names and vanish with this object. In memory if None.
    """

    def __init__(self, first: Tree, clients: int, folder: Path | None = None) -> None:
        self.first: list[np.ndarray] = [np.asarray(leaf) for leaf in jax.tree.leaves(first)]
        self.structure: Any = jax.tree.structure(first)
        self.folder = folder
        self.slot = np.full(clients, -1, np.int32)
        self.used = 0
        self._maps: list[Leaf] = [Leaf(leaf, clients, folder) for leaf in self.first]

    @property
    def row_bytes(self) -> int:
        """The bytes of one client's row."""
        return sum(leaf.nbytes for leaf in self.first)

    @property
    def disk_bytes(self) -> int:
        """The bytes that the files take on the disk."""
        return sum(leaf.disk_bytes for leaf in self._maps)

    def written(self, clients: np.ndarray) -> np.ndarray:
        """Return whether each of these clients has been written."""
        return self.slot[clients] >= 0

    def read(self, clients: np.ndarray, out: Tree) -> None:
        """Copy the rows of clients that have been written to the beginning of given arrays."""
        slots = self.slot[clients]
        for leaf in self._maps:
            leaf.expect(slots)
        for leaf, mine in zip(self._maps, jax.tree.leaves(out)):
            np.take(leaf.array, slots, axis=0, out=mine[: len(slots)], mode="clip")
            leaf.forget()

    def write(self, clients: np.ndarray, rows: Tree) -> None:
        """Keep the rows of some clients, the first rows of each array."""
        new = clients[~self.written(clients)]
        start, self.used = self.used, self.used + len(new)
        self.slot[new] = np.arange(start, self.used)
        slots = self.slot[clients]
        for leaf, row in zip(self._maps, jax.tree.leaves(rows)):
            leaf.put(slots, row)
            leaf.settle(start, self.used)

    def everything(self) -> Tree:
        """Return the rows of all N clients as ordinary arrays."""
        who = np.flatnonzero(self.slot >= 0)
        found = []
        for leaf, first in zip(self._maps, self.first):
            out = np.empty((len(self.slot), *first.shape), first.dtype)
            out[:] = first
            out[who] = leaf.array[self.slot[who]]
            found.append(out)
        return jax.tree.unflatten(self.structure, found)

    def adopt(self, rows: Tree, at_once: int = 4096) -> None:
        """Write the rows of all N clients that differ from the first."""
        leaves = jax.tree.leaves(rows)
        for start in range(0, len(self.slot) if leaves else 0, at_once):
            part = [np.ascontiguousarray(a[start : start + at_once], f.dtype) for a, f in zip(leaves, self.first)]
            who = np.flatnonzero(np.any([_bytes(a) != _bytes(f[None]) for a, f in zip(part, self.first)], axis=0))
            if len(who):
                self.write(start + who, jax.tree.unflatten(self.structure, [mine[who] for mine in part]))


def _bytes(rows: np.ndarray) -> np.ndarray:
    """Return each row's bytes as one comparable item."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return flat.view(np.dtype((np.void, max(1, flat.shape[1] * flat.itemsize)))).ravel()


class Leaf:
    """One array [N, …] over mapped memory, anonymous or of a file without a name.

    The file is read through the map but written by ordinary writes. The system shows both the same content, a write to
    a new page is several times cheaper, and a full disk is an error where a mapped write would end the process.
    """

    def __init__(self, first: np.ndarray, clients: int, folder: Path | None) -> None:
        self.row_bytes = first.nbytes
        size = max(1, clients * first.nbytes)
        self._file: int | None = None
        if folder is None:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NOT_RESERVED)
            _advise(self._map, "MADV_HUGEPAGE")
        else:
            with tempfile.TemporaryFile(dir=folder, prefix="losac-") as file:
                self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)
            os.truncate(self._file, size)
            self._map = mmap.mmap(self._file, size, access=mmap.ACCESS_READ)
            _advise(self._map, "MADV_RANDOM")
        self.array: np.ndarray = np.ndarray((clients, *first.shape), first.dtype, buffer=self._map)

    @property
    def disk_bytes(self) -> int:
        """The bytes that the file takes on the disk."""
        return 0 if self._file is None else 512 * os.fstat(self._file).st_blocks

    def expect(self, slots: np.ndarray) -> None:
        """Start reading the pages of some slots from the disk, all at once."""
        if self._file is not None and self.row_bytes >= mmap.PAGESIZE:
            for start, stop in runs(slots):
                first = start * self.row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
                _advise(self._map, "MADV_WILLNEED", first, stop * self.row_bytes - first)

    def put(self, slots: np.ndarray, rows: np.ndarray) -> None:
        """Write the first rows to slots."""
        if self._file is None:
            self.array[slots] = rows[: len(slots)]
            return
        done = 0
        for start, stop in runs(slots):
            part = np.ascontiguousarray(rows[done : done + stop - start]).reshape(-1).view(np.uint8)
            _write(self._file, part, start * self.row_bytes)
            done += stop - start

    def settle(self, start: int, stop: int) -> None:
        """Start writing new slots to the disk, and free the memory of the slots before them, written by now.

        The file therefore never fills the machine's memory, neither with changed pages nor with others.
        """
        if self._file is not None and stop > start and hasattr(os, "posix_fadvise"):
            first = max(0, start - LAG * (stop - start))
            offset, size = first * self.row_bytes, (stop - first) * self.row_bytes
            os.posix_fadvise(self._file, offset, size, os.POSIX_FADV_DONTNEED)

    def forget(self) -> None:
        """Free the mapped pages of a file; the system keeps them as long as it has room."""
        if self._file is not None:
            _advise(self._map, "MADV_DONTNEED")


def _advise(memory: mmap.mmap, advice: str, *where: int) -> None:
    """Give the system advice, if it takes any."""
    if hasattr(mmap, advice):
        memory.madvise(getattr(mmap, advice), *where)


def _write(file: int, content: np.ndarray, offset: int) -> None:
    """Write bytes to an offset of a file, in as many calls as it takes."""
    done = 0
    while done < len(content):
        done += os.pwrite(file, content[done:].data, offset + done)


def runs(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Return the stretches of successive numbers, in their order, as (first, one beyond the last).

    >>> runs(np.array([3, 4, 5, 9, 1, 2]))
    [(3, 6), (9, 10), (1, 3)]
    """
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    starts, ends = np.concatenate([[0], cuts]), np.concatenate([cuts, [len(numbers)]])
    return [(int(numbers[a]), int(numbers[b - 1]) + 1) for a, b in zip(starts, ends)]
