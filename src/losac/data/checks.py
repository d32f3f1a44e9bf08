"""What `FederatedData` promises about its arrays, and errors that name the client that breaks it."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Offsets = NDArray[np.int64]
_PIECE = 2**22


def stack_clients(clients: Iterable[tuple[ArrayLike, ArrayLike]]) -> tuple[Array, Array, Offsets]:
    """Join one (x, y) pair per client into flat arrays of the common dtype, and their offsets."""
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in clients]
    if not pairs:
        raise ValueError("no clients were given; give at least one (x, y) pair")
    for i, (x, y) in enumerate(pairs):
        if x.ndim == 0 or y.ndim == 0 or len(x) == 0:
            raise ValueError(f"client {i} has no rows; leave it out, or give it at least one row")
        if len(x) != len(y):
            raise ValueError(f"client {i} has {len(x)} rows of x but {len(y)} of y; they belong together")
        for letter, mine, first in zip("xy", (x, y), pairs[0]):
            if mine.shape[1:] != first.shape[1:]:
                raise ValueError(
                    f"client {i} has rows of {letter} of shape {mine.shape[1:]}, client 0 of shape "
                    f"{first.shape[1:]}; give all clients the same shape"
                )
            check_numeric(mine, letter, f"client {i}")
    offsets = np.cumsum([0] + [len(x) for x, _ in pairs], dtype=np.int64)
    xs, ys = zip(*pairs)
    return np.concatenate(xs), np.concatenate(ys), offsets


def check_parts(
    parts: Sequence[NDArray[np.integer[Any]]], x_rows: int, y_rows: int
) -> tuple[NDArray[np.int64], Offsets]:
    """Join the row indices of each client; return them with the offsets."""
    if x_rows != y_rows:
        raise ValueError(f"x has {x_rows} rows but y has {y_rows}; they belong together")
    if len(parts) == 0:
        raise ValueError("no clients were given; give at least one array of row indices")
    for i, part in enumerate(parts):
        if len(part) == 0:
            raise ValueError(f"client {i} has no rows; leave it out, or give it at least one row")
        if np.min(part) < 0 or np.max(part) >= x_rows:
            raise ValueError(f"client {i} asks for a row outside 0 to {x_rows - 1}")
    offsets = np.cumsum([0] + [len(part) for part in parts], dtype=np.int64)
    return np.concatenate(parts).astype(np.int64), offsets


def check_offsets(offsets: Offsets, rows: int) -> None:
    """Offsets start at 0, end at the number of rows, and leave no client empty."""
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != rows:
        raise ValueError(
            f"offsets must run from 0 to the {rows} rows, but are {offsets}; try FederatedData.from_clients"
        )
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if len(empty):
        raise ValueError(f"client {empty[0]} has no rows; leave it out, or give it at least one row")


def check_arrays(x: Array, y: Array, offsets: Offsets, owner: str = "client") -> None:
    """Rows of x and y match, are numbers, and are finite."""
    if len(x) != len(y):
        raise ValueError(f"{owner} data has {len(x)} rows of x but {len(y)} of y; they belong together")
    for letter, array in (("x", x), ("y", y)):
        check_numeric(array, letter, f"{owner} data")
        bad = _first_infinite(array) if array.dtype.kind == "f" else None
        if bad is not None:
            place = _place(bad[0], offsets, owner)
            raise ValueError(f"{place} holds {array[bad]} in {letter}; drop such rows, or fill in missing values")


def _first_infinite(array: Array) -> tuple[int, ...] | None:
    """Return where the first number is that is not finite; a piece at a time, since the rows may lie on a disk."""
    step = max(1, _PIECE // max(1, int(np.prod(array.shape[1:]))))
    for start in range(0, len(array), step):
        finite = np.isfinite(array[start : start + step])
        if not finite.all():
            row, *column = (int(i) for i in np.argwhere(~finite)[0])
            return (start + row, *column)
    return None


def check_numeric(array: Array, letter: str, owner: str) -> None:
    """An array holds booleans, whole numbers or floats."""
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{letter} of {owner} has dtype {array.dtype}; give numbers "
            "(encode text as numbers first; rows must all have the same length)"
        )


def check_labels(y: Array, num_classes: int, offsets: Offsets) -> None:
    """Labels are one whole number per row, from 0 to num_classes - 1."""
    if y.ndim != 1 or y.dtype.kind not in "biu":
        raise ValueError(
            f"num_classes={num_classes} needs one whole-number label per row, "
            f"but y is {y.dtype} of shape {y.shape}; leave num_classes out for regression"
        )
    outside = np.flatnonzero((y < 0) | (y >= num_classes))
    if len(outside):
        raise ValueError(
            f"{_place(int(outside[0]), offsets, 'client')} has the label {y[outside[0]]}; "
            f"num_classes={num_classes} allows 0 to {num_classes - 1}"
        )


def _place(row: int, offsets: Offsets, owner: str) -> str:
    if owner != "client":
        return f"{owner} row {row}"
    client = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"client {client}, row {row - offsets[client]},"
