# ruff: noqa: N801
"""The built-in partitioners, which assign the rows of one data set to clients.

A partitioner is any callable `(labels, clients, rng, groups=None)` that returns one array of row
indices per client. Those here are immutable values, such as `mixture(0.5)`. Each uses every row exactly once, leaves no
client empty, and depends only on its arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from losac._checks import is_number, is_whole, shown

Rows = NDArray[np.int64]


class Partitioner(Protocol):
    """The interface of every partitioner, built in or your own."""

    def __call__(
        self,
        labels: NDArray[Any],
        clients: int | None,
        rng: np.random.Generator,
        groups: NDArray[Any] | None = None,
    ) -> Sequence[NDArray[np.integer[Any]]]:
        """Return the row indices of each client."""
        ...


class _OverClients:
    """The common part of partitioners that take any number of clients."""

    def __call__(
        self,
        labels: NDArray[Any],
        clients: int | None,
        rng: np.random.Generator,
        groups: NDArray[Any] | None = None,
    ) -> list[Rows]:
        """Return the row indices of each client."""
        return self.deal(labels, _check(labels, clients), rng)

    def deal(self, labels: NDArray[Any], count: int, rng: np.random.Generator) -> list[Rows]:
        """Return the row indices of each of ``count`` clients."""
        raise NotImplementedError


@dataclass(frozen=True)
class mixture(_OverClients):
    """A share `c` of the rows goes to clients by label, the rest at random (the paper's heterogeneity).

    The rows are shuffled; the first share `c` is sorted by label and cut into contiguous equal pieces,
    one per client; the others are distributed IID. Client sizes differ by at most one, and a client's rows are in
    random order, so its fixed blocks are similar.

    >>> labels = np.array([0, 1, 2] * 4)
    >>> parts = mixture(1.0)(labels, 3, np.random.default_rng(0))
    >>> [labels[rows].tolist() for rows in parts]
    [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]]
    """

    c: float

    def __post_init__(self) -> None:
        if not is_number(self.c) or not 0 <= self.c <= 1:
            raise ValueError(f"mixture(c={self.c}): c is a share, give a number from 0 (IID) to 1 (sorted)")

    def deal(self, labels: NDArray[Any], count: int, rng: np.random.Generator) -> list[Rows]:
        """Return the row indices of each of ``count`` clients."""
        rows = rng.permutation(len(labels))
        share = round(self.c * len(labels))
        by_label = rows[:share][np.argsort(labels[rows[:share]], kind="stable")]
        sorted_sizes = _sizes(share, count)
        other_sizes = _sizes(len(labels), count) - sorted_sizes
        pairs = zip(_cut(by_label, sorted_sizes), _cut(rows[share:], other_sizes))
        return [rng.permutation(np.concatenate(pair)) for pair in pairs]


@dataclass(frozen=True)
class iid(_OverClients):
    """Shuffled rows in equal pieces: every client sees the same distribution."""

    def deal(self, labels: NDArray[Any], count: int, rng: np.random.Generator) -> list[Rows]:
        """Return the row indices of each of ``count`` clients."""
        return mixture(0.0).deal(labels, count, rng)


@dataclass(frozen=True)
class sorted_by_label(_OverClients):
    """Rows sorted by label in equal pieces, in random order within a label: the most skewed split."""

    def deal(self, labels: NDArray[Any], count: int, rng: np.random.Generator) -> list[Rows]:
        """Return the row indices of each of ``count`` clients."""
        return mixture(1.0).deal(labels, count, rng)


@dataclass(frozen=True)
class dirichlet(_OverClients):
    """Each class is divided among the clients in Dirichlet(alpha) proportions (label skew).

    A small `alpha` gives clients few classes and very unequal sizes. A client without rows gets one, drawn at random
    from the largest client. After Hsu, Qi and Brown, arXiv:1909.06335.
    """

    alpha: float

    def __post_init__(self) -> None:
        if not is_number(self.alpha) or not 0 < self.alpha < np.inf:
            raise ValueError(f"dirichlet(alpha={self.alpha}): give a positive number, such as 0.3")

    def deal(self, labels: NDArray[Any], count: int, rng: np.random.Generator) -> list[Rows]:
        """Return the row indices of each of ``count`` clients."""
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            share = np.cumsum(rng.dirichlet(np.full(count, self.alpha)))[:-1]
            owner[rows] = np.searchsorted(np.rint(share * len(rows)), np.arange(len(rows)), side="right")
        sizes = np.bincount(owner, minlength=count)
        for client in np.flatnonzero(sizes == 0):
            giver = int(np.argmax(sizes))
            owner[rng.choice(np.flatnonzero(owner == giver))] = client
            sizes[giver] -= 1
            sizes[client] = 1
        return [rng.permutation(np.flatnonzero(owner == client)) for client in range(count)]


@dataclass(frozen=True)
class shards(_OverClients):
    """Rows sorted by label, cut into `per_client` shards for each client, assigned at random (FedAvg's)."""

    per_client: int = 2

    def __post_init__(self) -> None:
        if not is_whole(self.per_client) or self.per_client < 1:
            raise ValueError(f"shards(per_client={self.per_client}): give each client at least one shard")

    def deal(self, labels: NDArray[Any], count: int, rng: np.random.Generator) -> list[Rows]:
        """Return the row indices of each of ``count`` clients."""
        total = count * self.per_client
        if total > len(labels):
            raise ValueError(
                f"{count} clients x {self.per_client} shards need at least {total} rows, "
                f"but there are {len(labels)}; use fewer clients or shards"
            )
        rows = rng.permutation(len(labels))
        pieces = np.array_split(rows[np.argsort(labels[rows], kind="stable")], total)
        hands = rng.permutation(total).reshape(count, self.per_client)
        return [rng.permutation(np.concatenate([pieces[shard] for shard in hand])) for hand in hands]


@dataclass(frozen=True)
class by_group:
    """One client per distinct group: a person, a device, a recording."""

    def __call__(
        self,
        labels: NDArray[Any],
        clients: int | None,
        rng: np.random.Generator,
        groups: NDArray[Any] | None = None,
    ) -> list[Rows]:
        """Return the row indices of each client, in the order of the sorted groups."""
        if groups is None:
            raise ValueError("partition 'group' needs data with groups; use another partition, such as 'iid'")
        names = np.unique(groups)
        if clients not in (None, len(names)):
            raise ValueError(
                f"clients={clients}, but the data has {len(names)} groups; leave clients out or give {len(names)}"
            )
        return [np.flatnonzero(groups == name) for name in names]


def _check(labels: NDArray[Any], clients: Any) -> int:
    if labels.ndim != 1:
        raise ValueError(f"labels have shape {labels.shape}; give one label per row")
    if not is_whole(clients) or clients < 1:
        raise ValueError(f"clients={shown(clients)}; give a number of clients of at least 1")
    if clients > len(labels):
        raise ValueError(
            f"clients={clients}, but there are only {len(labels)} rows, so some client would be empty; "
            f"use at most {len(labels)} clients"
        )
    return int(clients)


def _sizes(rows: int, clients: int) -> NDArray[np.int64]:
    """Return equal sizes that add up to `rows`, the first ones larger by the remainder."""
    return np.full(clients, rows // clients) + (np.arange(clients) < rows % clients)


def _cut(rows: Rows, sizes: NDArray[np.int64]) -> list[Rows]:
    return np.split(rows, np.cumsum(sizes)[:-1])
