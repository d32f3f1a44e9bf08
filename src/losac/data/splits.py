"""Train, validation and test parts: rows of every client, whole clients, or rows of all together."""

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from losac import _random
from losac._checks import check_share
from losac._seeds import check_seed
from losac.data.federated import FederatedData, check_data

By = Literal["rows", "clients", "pooled"]
Rows = NDArray[np.int64]


class Split(NamedTuple):
    """The parts of a federation; parts with share 0 are None. `train.test` holds the rows of `test`."""

    train: FederatedData
    validation: FederatedData | None
    test: FederatedData | None


def split(data: FederatedData, *, validation: float = 0.0, test: float = 0.0, by: By = "rows", seed: int = 0) -> Split:
    """Split the clients' rows into train, validation and test.

    `by="rows"` takes a share of every client's rows, to test whether a model works tomorrow at the same clients.
    `by="clients"` takes whole clients, to test whether it works at clients that never took part. `by="pooled"` takes a
    share of all rows, regardless of who holds them. Each training client keeps at least one row. A client too small to
    give a row to a part is not in that part; `part.info["clients"]` lists the clients that are. `FederatedData.split`
    sets validation rows aside as plain arrays.

    Args:
        data: the clients' rows; an existing test part stays, and `test` must then be left out.
        validation: share of the rows, or of the clients, to choose settings by.
        test: share to judge by; its rows become the test part of `train` as well.
        by: what the shares are taken of.
        seed: decides which rows or clients go to which part.

    >>> data = FederatedData.from_clients([(np.ones((10, 2)), np.arange(10.0)) for _ in range(5)])
    >>> train, validation, test = split(data, validation=0.1, test=0.2)
    >>> train.sizes.tolist(), validation.sizes.tolist(), test.sizes.tolist()
    ([7, 7, 7, 7, 7], [1, 1, 1, 1, 1], [2, 2, 2, 2, 2])
    >>> split(data, test=0.4, by="clients").train.num_clients
    3
    """
    check_data(data)
    if by not in get_args(By):
        raise ValueError(f"by={by!r}; give one of {', '.join(map(repr, get_args(By)))}")
    shares = {"validation": validation, "test": test}
    for name, share in shares.items():
        check_share(name, share, least=0)
    if validation + test >= 1 or validation + test == 0:
        raise ValueError(
            f"validation={validation} and test={test} must leave something to train on, and take something"
        )
    if test and data.test is not None:
        raise ValueError(f"{data.name!r} has a test part of {len(data.test[0]):,} rows already; leave test out")
    rng = _random.held_out_generator(check_seed(seed))
    parts = {"rows": _by_rows, "clients": _by_clients, "pooled": _pooled}[by](data, [test, validation], rng)
    held = []
    for (name, share), rows in zip((("test", test), ("validation", validation)), parts[:2]):
        if share and not any(map(len, rows)):
            raise ValueError(
                f"{name}={share} of {data.num_clients} clients with at most {data.sizes.max()} rows, by={by!r}, "
                "rounds to zero; give a larger share"
            )
        held.append(_take(data, rows) if share else None)
    tested, validated = held
    kept = data.test if tested is None else (tested.x, tested.y)
    return Split(replace(_take(data, parts[2]), test=kept), validated, tested)


def _by_rows(data: FederatedData, shares: list[float], rng: np.random.Generator) -> list[list[Rows]]:
    parts: list[list[Rows]] = [[], [], []]
    for start, size in zip(data.offsets, data.sizes):
        order, left = start + rng.permutation(size), int(size)
        for part, share in zip(parts, shares):
            taken = min(round(share * size), left - 1)
            part.append(np.sort(order[left - taken : left]))
            left -= taken
        parts[2].append(np.sort(order[:left]))
    return parts


def _by_clients(data: FederatedData, shares: list[float], rng: np.random.Generator) -> list[list[Rows]]:
    order, left = rng.permutation(data.num_clients), data.num_clients
    fate = np.full(data.num_clients, 2)
    for at, share in enumerate(shares):
        taken = min(round(share * data.num_clients), left - 1)
        fate[order[left - taken : left]] = at
        left -= taken
    own = [np.arange(start, stop) for start, stop in zip(data.offsets, data.offsets[1:])]
    return [[rows if fate[i] == part else rows[:0] for i, rows in enumerate(own)] for part in range(3)]


def _pooled(data: FederatedData, shares: list[float], rng: np.random.Generator) -> list[list[Rows]]:
    """Take rows at random, except for one row that each client keeps."""
    kept = data.offsets[:-1] + rng.integers(0, data.sizes)
    free = rng.permutation(np.setdiff1d(np.arange(len(data)), kept))
    fate = np.full(len(data), 2)
    begin = 0
    for at, share in enumerate(shares):
        taken = min(round(share * len(data)), len(free) - begin)
        fate[free[begin : begin + taken]] = at
        begin += taken
    own = [np.arange(start, stop) for start, stop in zip(data.offsets, data.offsets[1:])]
    return [[rows[fate[rows] == part] for rows in own] for part in range(3)]


def _take(data: FederatedData, parts: list[Rows]) -> FederatedData:
    """Return some rows of some clients, without empty clients; `info["clients"]` holds their old numbers."""
    who = [i for i, rows in enumerate(parts) if len(rows)]
    kept = data.keep([parts[i] for i in who])
    info = dict(kept.info)
    before = info.get("clients", tuple(range(data.num_clients)))
    info["clients"] = tuple(int(before[i]) for i in who)
    if "client_names" in info:
        info["client_names"] = tuple(info["client_names"][i] for i in who)
    return replace(kept, test=None, info=info)
