"""The states of many clients outside the device: in memory, or in memory-mapped files.

A client gets a slot when its state is first written, the next one free: clients never written cost one number, and
read as the one state that all start from. The files are sparse: what lies beyond the slots in use takes no disk.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from losac.trees import Tree

NOT_RESERVED = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python's mmap does not name everywhere: memory is taken when it is written, not before."""


class Spill:
    """One row for each of N clients, a tree of arrays; rows go by the client's slot.

    Args:
      first: the row of a client that was never written, a tree of NumPy arrays.
      clients: N.
      folder: where the files lie, one for each leaf; they have no names and vanish with this object. In memory if None.
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
        """Return which of these clients have been written."""
        return self.slot[clients] >= 0

    def rows(self, clients: np.ndarray, room: int) -> Tree:
        """Return the rows of some clients in new arrays with room for more, whose content means nothing."""
        known = self.written(clients)
        order = np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])
        in_order = bool((order == np.arange(len(clients))).all())
        slots, number = self.slot[clients[known]], int(known.sum())
        for leaf in self._maps:
            leaf.expect(slots)
        found = []
        for leaf, first in zip(self._maps, self.first):
            out = np.empty((room, *first.shape), first.dtype)
            if in_order:
                np.take(leaf.array, slots, axis=0, out=out[:number], mode="clip")
                out[number : len(clients)] = first
            else:
                out[: len(clients)][known] = leaf.array[slots]
                out[: len(clients)][~known] = first
            leaf.forget()
            found.append(out)
        return jax.tree.unflatten(self.structure, found)

    def write(self, clients: np.ndarray, rows: Tree) -> None:
        """Keep the rows of some clients, the first so many of each array."""
        new = clients[~self.written(clients)]
        if len(new):
            for leaf in self._maps:
                leaf.reserve(self.used, self.used + len(new))
            self.slot[new] = np.arange(self.used, self.used + len(new))
            self.used += len(new)
        slots = self.slot[clients]
        for leaf, row in zip(self._maps, jax.tree.leaves(rows)):
            leaf.put(slots, row)
            if len(new):
                leaf.settle(self.used - len(new), self.used)
            leaf.forget()

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
    """Return each row's bytes as one thing that compares."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return flat.view(np.dtype((np.void, max(1, flat.shape[1] * flat.itemsize)))).ravel()


class Leaf:
    """One array [N, …] over mapped memory, anonymous or of a file without a name."""

    def __init__(self, first: np.ndarray, clients: int, folder: Path | None) -> None:
        self.row_bytes = first.nbytes
        size = max(1, clients * first.nbytes)
        self._file: Any = None
        if folder is None:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NOT_RESERVED)
        else:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="losac-")  # noqa: SIM115
            os.truncate(self._file.fileno(), size)
            self._map = mmap.mmap(self._file.fileno(), size)
            self._map.madvise(mmap.MADV_RANDOM)
        self.array: np.ndarray = np.ndarray((clients, *first.shape), first.dtype, buffer=self._map)

    @property
    def disk_bytes(self) -> int:
        """The bytes that the file takes on the disk."""
        return 0 if self._file is None else 512 * os.fstat(self._file.fileno()).st_blocks

    def reserve(self, start: int, stop: int) -> None:
        """Take disk for some slots: a full disk is an error here, but would end the process in a mapped write."""
        if self._file is not None and self.row_bytes:
            os.posix_fallocate(self._file.fileno(), start * self.row_bytes, (stop - start) * self.row_bytes)

    def expect(self, slots: np.ndarray) -> None:
        """Have the pages of some slots read ahead, all at a time."""
        if self._file is not None and self.row_bytes >= mmap.PAGESIZE:
            for start, stop in runs(slots):
                self._advise(mmap.MADV_WILLNEED, start, stop)

    def put(self, slots: np.ndarray, rows: np.ndarray) -> None:
        """Write rows to slots."""
        if self.row_bytes < mmap.PAGESIZE:
            self.array[slots] = rows[: len(slots)]
            return
        done = 0
        for start, stop in runs(slots):
            self.array[start:stop] = rows[done : done + stop - start]
            done += stop - start

    def settle(self, start: int, stop: int) -> None:
        """Bring some slots to the disk now, so that changed pages never pile up in memory."""
        if self._file is not None and self.row_bytes:
            first = start * self.row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.flush(first, stop * self.row_bytes - first)

    def forget(self) -> None:
        """Let go of the mapped pages; the system keeps them as long as it has room."""
        if self._file is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def _advise(self, advice: int, start: int, stop: int) -> None:
        first = start * self.row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(advice, first, stop * self.row_bytes - first)


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
