"""`inspect`: what a source holds, which client holds it, and what will go wrong, before any training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from losac.data.columns import Columns, Source, columns, is_missing
from losac.data.encode import FEW_LABELS, MOST_LEVELS, mixed, owners, targets
from losac.data.files import DataError
from losac.data.options import check_encoding, check_size, column_name

Array = NDArray[Any]
_FAR_APART = 1e3
_WIDE = 10_000


@dataclass(frozen=True)
class Column:
    """One column: its dtype, the shape of an entry, missing values, distinct values (None for arrays)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    missing: int
    distinct: int | None

    @property
    def constant(self) -> bool:
        """Whether all values that are not missing are equal."""
        return self.distinct == 1


@dataclass(frozen=True)
class Problem:
    """What `read` refuses (`"error"`), or accepts although it may go wrong (`"warning"`), and what to do."""

    kind: Literal["error", "warning"]
    text: str


@dataclass(frozen=True)
class Inspection:
    """What a source holds.

    Attributes:
        origin: the file or kind of source.
        rows: number of rows.
        columns: what each column holds.
        target, client: these columns, if known.
        clients: names and numbers of rows of the clients.
        labels: the labels; None if the target is numeric or not known.
        label_counts: how often each label occurs at each client [clients, labels].
        problems: what will go wrong, errors first.
    """

    origin: str
    rows: int
    columns: tuple[Column, ...]
    target: str | None
    client: str | None
    clients: dict[str, int]
    labels: tuple[str, ...] | None
    label_counts: NDArray[np.int64] | None
    problems: tuple[Problem, ...]


def inspect(
    source: Source,
    *,
    target: str | None = None,
    client: str | None = None,
    encoding: str = "utf-8",
    size: tuple[int, int] | None = None,
) -> Inspection:
    """Look at a source as `read` would, and list what will go wrong instead of stopping at the first.

    Args:
        source: one of those that `read` takes.
        target: the column to predict; by default `y`, if it exists.
        client: the column with the owner of each row; by default `client`, if it exists.
        encoding: of a CSV file.
        size: (height, width) to resize the images of a folder to.

    Raises:
        DataError: the source cannot be read at all, or a column does not exist.

    >>> found = inspect({"x": np.eye(3), "y": np.array([0, 0, 0])})
    >>> found.problems[0].text
    "the target 'y' of the mapping has one value only, 0: there is nothing to learn; give another target, ..."
    """
    target, client = column_name("target", target), column_name("client", client)
    if target is not None and target == client:
        raise DataError(f"target and client are both {target!r}; give two columns")
    check_size(size)
    check_encoding(encoding)
    table = columns(source, encoding=encoding, size=size)
    if table.rows == 0:
        raise DataError(f"{table.origin} has no rows; give at least one")
    target = table.find(target, "the target") if target is not None else "y" if "y" in table.arrays else None
    client = table.find(client, "the clients") if client is not None else "client" if "client" in table.arrays else None
    seen = tuple(_look(name, array) for name, array in table.arrays.items())
    problems = [*_of_columns(table, seen, target, client)]
    labels, codes = _labels(table, target, problems)
    clients, counts = _clients(table, client, labels, codes)
    problems += _of_clients(clients, counts, table.rows)
    problems.sort(key=lambda problem: problem.kind != "error")
    return Inspection(table.origin, table.rows, seen, target, client, clients, labels, counts, tuple(problems))


def _look(name: str, array: Array) -> Column:
    kind = "text" if array.dtype.kind in "OUS" else str(array.dtype)
    if array.ndim > 1:
        return Column(name, kind, array.shape[1:], int(is_missing(array).sum()), None)
    gone = is_missing(array)
    there = array[~gone]
    if array.dtype.kind == "O" and mixed(array):
        kind = "mixed"
    distinct = len(np.unique(there.astype(str) if array.dtype.kind in "OUS" else there))
    return Column(name, kind, (), int(gone.sum()), distinct)


def _of_columns(table: Columns, seen: tuple[Column, ...], target: str | None, client: str | None) -> Iterator[Problem]:
    inputs = [column for column in seen if column.name not in (target, client)]
    inputs = [column for column in inputs if column.name == "x" and column.shape] or inputs
    arrays = [column for column in inputs if column.shape]
    for column in seen:
        if column.missing:
            yield Problem(
                "error",
                f"column {column.name!r} has {column.missing:,} of {table.rows:,} values missing; fill them in, or "
                "give missing='drop' to leave out such rows",
            )
        array = table.arrays[column.name]
        if array.dtype.kind == "f" and np.isinf(array).any():
            yield Problem("error", f"column {column.name!r} holds infinite numbers; replace them")
    for column in inputs:
        yield from _of_input(column, table.arrays[column.name])
    if arrays and len(inputs) > 1:
        yield Problem("error", f"column {arrays[0].name!r} holds arrays; choose it by features={arrays[0].name!r}")
    if len(inputs) > max(_WIDE, table.rows):
        yield Problem("warning", f"{len(inputs):,} inputs for {table.rows:,} rows; choose some by features=[…]")
    spreads = [s for s in (_spread(table.arrays[c.name]) for c in inputs if not c.shape) if s > 0]
    if spreads and max(spreads) > _FAR_APART * min(spreads):
        yield Problem(
            "warning",
            f"the inputs' deviations reach from {min(spreads):.2g} to {max(spreads):.2g}, so no single step size "
            "suits all; use losac.data.standardize",
        )


def _of_input(column: Column, array: Array) -> Iterator[Problem]:
    name = column.name
    if column.shape and (still := int((array == array[:1]).all(axis=0).sum())):
        whole = int(np.prod(column.shape))
        yield Problem("warning", f"{still:,} of the {whole:,} entries of {name!r} never vary and are no use")
    if column.constant:
        yield Problem("warning", f"column {name!r} has one value only and is no use; leave it out by features=[…]")
    if column.dtype == "mixed" and (found := mixed(array)):
        yield Problem("error", f"column {name!r} mixes numbers and text: {found[1]!r} in row {found[0]}; correct it")
    elif column.dtype == "text" and column.distinct is not None:
        way = "categorical='onehot'" if column.distinct <= MOST_LEVELS else "features=[…] without it"
        yield Problem("error", f"column {name!r} is text with {column.distinct:,} different values; give {way}")
    elif array.dtype.kind in "mM":
        yield Problem("error", f"column {name!r} holds dates; turn them into numbers, or leave it out by features=[…]")


def _spread(array: Array) -> float:
    if array.dtype.kind not in "iuf":
        return 0.0
    there = array[np.isfinite(array)].astype(np.float64)
    return float(there.std()) if len(there) else 0.0


def _labels(table: Columns, target: str | None, problems: list[Problem]) -> tuple[tuple[str, ...] | None, Array | None]:
    """Return the labels and the label of each row (-1: none); both None if there are none."""
    if target is None:
        problems.append(Problem("error", "the column to predict is not known; give the target"))
        return None, None
    array = table.arrays[target]
    gone = is_missing(array)
    try:
        found = targets(array[~gone], target, table.origin, None, table.label_names.get(target))
    except DataError as error:
        problems.append(Problem("error", str(error)))
        return None, None
    if found.num_classes is None:
        distinct = len(np.unique(array[~gone])) if array.ndim == 1 else None
        if distinct is not None and distinct <= FEW_LABELS:
            problems.append(
                Problem(
                    "warning",
                    f"the target {target!r} has {distinct} different numbers; if they are labels, give labels=True",
                )
            )
        return None, None
    names = found.label_names or tuple(map(str, range(found.num_classes)))
    codes = np.full(len(array), -1)
    codes[~gone] = found.y
    rare = [name for name, count in zip(names, np.bincount(found.y, minlength=len(names))) if count < 2]
    if rare:
        problems.append(Problem("warning", f"{len(rare):,} labels have fewer than two rows, such as {rare[0]!r}"))
    return names, codes


def _clients(
    table: Columns, client: str | None, labels: tuple[str, ...] | None, codes: Array | None
) -> tuple[dict[str, int], NDArray[np.int64] | None]:
    if client is None:
        names, owner = np.array(["all rows"]), np.zeros(table.rows, dtype=np.int64)
    else:
        array = table.arrays[client]
        named = np.where(is_missing(array), "(missing)", array.astype(str)) if array.ndim == 1 else array
        ordered = named if is_missing(array).any() else owners(array, client, table.origin)
        names, owner = np.unique(ordered, return_inverse=True)
    sizes = dict(zip(map(str, names.tolist()), np.bincount(owner).tolist()))
    if labels is None or codes is None:
        return sizes, None
    counts = np.zeros((len(names), len(labels)), dtype=np.int64)
    np.add.at(counts, (owner[codes >= 0], codes[codes >= 0]), 1)
    return sizes, counts


def _of_clients(clients: dict[str, int], counts: NDArray[np.int64] | None, rows: int) -> Iterator[Problem]:
    if list(clients) == ["all rows"]:
        yield Problem(
            "warning", "the owners of the rows are not known; give the client column, or clients=N to share them out"
        )
        return
    single = [name for name, size in clients.items() if size == 1]
    if len(clients) == 1:
        yield Problem("warning", f"there is one client only, {next(iter(clients))!r}; a federation has several")
    elif len(clients) > rows / 2:
        yield Problem(
            "warning", f"{len(clients):,} clients for {rows:,} rows; is the client column the number of the row?"
        )
    if single:
        yield Problem(
            "warning",
            f"clients with a single row: {len(single):,}, such as {single[0]!r}; they cannot give a row to a test part",
        )
    if counts is not None:
        one = int(((counts > 0).sum(axis=1) == 1).sum())
        if one:
            yield Problem(
                "warning", f"{one:,} of {len(clients):,} clients hold one label only: clients differ as far as they can"
            )
