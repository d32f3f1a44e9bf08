"""Hold out a part of every client's rows, and group clients for arrays that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from losac import _random
from losac._checks import check_share
from losac._seeds import check_seed
from losac.data import FederatedData
from losac.data.federated import check_data

BUDGET = 2**22
"""About how many numbers the arrays of a group hold."""


def hold_out(data: FederatedData, fraction: float = 0.2, *, seed: int = 0) -> tuple[FederatedData, FederatedData]:
    """Set aside a share of every client's rows, client by client; return (the rest, the rows set aside).

    Each client keeps at least one row and has at least one set aside. Both parts have the same clients in the same
    order, to train on the first and judge on the second, client by client. If rows of one person or recording are near
    copies of each other, hold out whole clients instead, with ``data.subset``.

    Args:
      data: clients with at least two rows each.
      fraction: the share to set aside, rounded to whole rows.
      seed: decides which rows.

    >>> import losac
    >>> train, held = losac.hold_out(losac.data.load("logistic", clients=3, samples=10), 0.25)
    >>> train.sizes, held.sizes
    (array([8, 8, 8]), array([2, 2, 2]))
    """
    check_data(data)
    check_share("fraction", fraction)
    if (single := np.flatnonzero(data.sizes < 2)).size:
        raise ValueError(
            f"client {single[0]} has only one row, which cannot be held out; leave such clients out with "
            "data.subset(np.flatnonzero(data.sizes > 1))"
        )
    rng = _random.held_out_generator(check_seed(seed))
    kept, aside = [], []
    for start, size in zip(data.offsets, data.sizes):
        taken = min(max(round(fraction * size), 1), int(size) - 1)
        order = start + rng.permutation(size)
        aside.append(np.sort(order[:taken]))
        kept.append(np.sort(order[taken:]))
    return data.keep(kept), data.keep(aside)


class Group(NamedTuple):
    """Clients that are processed together; only the first ``real`` of ``ids`` count, the rest repeat the first."""

    ids: np.ndarray
    real: int
    length: int


def groups(sizes: np.ndarray, numbers: int, exact: bool) -> Iterator[Group]:
    """Yield groups of clients; their rows, padded to the same length, fit into the budget.

    Args:
      sizes: the rows of each client.
      numbers: how many numbers a row takes.
      exact: whether all clients of a group must have the same number of rows, without padding.
    """
    if exact:
        lengths = np.asarray(sizes)
    elif len(sizes) * int(sizes.max()) * numbers <= BUDGET:
        lengths = np.full(len(sizes), int(sizes.max()))
    else:
        lengths = 1 << np.ceil(np.log2(sizes)).astype(int)
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        width = min(len(members), max(1, BUDGET // int(length * numbers)))
        for first in range(0, len(members), width):
            ids = members[first : first + width]
            yield Group(np.concatenate([ids, np.full(width - len(ids), ids[0])]), len(ids), int(length))


def padded(data: FederatedData, ids: np.ndarray, length: int) -> tuple[Any, Any, np.ndarray]:
    """Return x and y of some clients [clients, length, …], padded with the last row, and the clients' sizes."""
    sizes = data.sizes[ids]
    rows = data.offsets[ids][:, None] + np.minimum(np.arange(length), sizes[:, None] - 1)
    return data.x[rows], data.y[rows], sizes.astype(np.int32)


def row_numbers(data: FederatedData) -> int:
    """Return how many numbers a row of x has."""
    return int(np.prod(data.x.shape[1:], dtype=int)) or 1
