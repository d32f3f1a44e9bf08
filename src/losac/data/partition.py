"""Partitions by name or as a callable; every data set is assigned to clients here.

`deal` takes a short text such as `"dirichlet:0.3"`, a value such as `dirichlet(0.3)`, or the user's own
function; see `losac.data.partitioners` for what a partitioner must do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_function, check_list, is_list
from losac.data.names import nearest
from losac.data.partitioners import (
    Partitioner,
    Rows,
    by_group,
    dirichlet,
    iid,
    mixture,
    shards,
    sorted_by_label,
)

__all__ = [
    "Partitioner",
    "by_group",
    "deal",
    "dirichlet",
    "iid",
    "mixture",
    "parse",
    "shards",
    "sorted_by_label",
]

_FORMS: dict[str, tuple[str, Callable[..., Partitioner], type[float] | type[int] | None]] = {
    "iid": ("iid", iid, None),
    "sorted": ("sorted", sorted_by_label, None),
    "mixture": ("mixture:SHARE", mixture, float),
    "dirichlet": ("dirichlet:ALPHA", dirichlet, float),
    "shards": ("shards:PER_CLIENT", shards, int),
    "group": ("group", by_group, None),
}


def parse(text: str) -> Partitioner:
    """Turn a short description, as used on the command line, into a partitioner.

    >>> parse("mixture:0.5")
    mixture(c=0.5)
    >>> parse("shard:2")
    Traceback (most recent call last):
    ...
    ValueError: 'shard:2' is not a partition; ... Did you mean 'shards'?
    """
    name, *values = text.strip().split(":")
    forms = ", ".join(form for form, _, _ in _FORMS.values())
    if name not in _FORMS:
        raise ValueError(f"{text!r} is not a partition; the forms are {forms}.{nearest(name, _FORMS)}")
    form, make, number = _FORMS[name]
    if len(values) != (number is not None):
        raise ValueError(f"{text!r} is not of the form {form}; the forms are {forms}")
    if number is None:
        return make()
    try:
        value = number(values[0])
    except ValueError:
        kind = "a whole number" if number is int else "a number"
        raise ValueError(f"{text!r} is not of the form {form}: {values[0]!r} must be {kind}") from None
    try:
        return make(value)
    except ValueError as error:
        raise ValueError(f"{text!r} is not of the form {form}: {error}") from error


def as_partitioner(partition: Any) -> Partitioner:
    """Return a partitioner given by its name or as a function of (labels, clients, rng, groups)."""
    if isinstance(partition, str):
        return parse(partition)
    check_function("partition", partition, "(labels, clients, rng, groups), or a text such as 'iid'", 4)
    return partition


def deal(
    labels: NDArray[Any],
    clients: int | None,
    partition: str | Partitioner,
    rng: np.random.Generator,
    groups: NDArray[Any] | None = None,
) -> list[Rows]:
    """Apply a partition, given by name or as a callable, and check what it returns.

    >>> parts = deal(np.zeros(5), 2, "iid", np.random.default_rng(0))
    >>> sorted(np.concatenate(parts).tolist())
    [0, 1, 2, 3, 4]
    """
    partitioner = as_partitioner(partition)
    found = check_list("what the partition returns", partitioner(labels, clients, rng, groups), "a list of row numbers")
    if any(not is_list(part) or (len(part) and np.asarray(part).dtype.kind not in "iu") for part in found):
        raise ValueError(f"{partitioner!r} must return an array of whole numbers, the rows, for each client")
    parts = [np.asarray(part, dtype=np.int64) for part in found]
    empty = [client for client, part in enumerate(parts) if len(part) == 0]
    if not parts or empty:
        raise ValueError(f"{partitioner!r} left {f'client {empty[0]}' if empty else 'all'} without rows")
    if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels))):
        raise ValueError(f"{partitioner!r} must use each of the {len(labels)} rows exactly once")
    return parts
