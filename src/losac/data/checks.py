"""What `FederatedData` requires of its arrays; errors name the client that breaks it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from losac._checks import check_count, check_list, described, is_list, is_whole, shown

Array = NDArray[Any]
Offsets = NDArray[np.int64]
_PIECE = 2**22


def stack_clients(clients: Iterable[tuple[ArrayLike, ArrayLike]]) -> tuple[Array, Array, Offsets]:
    """Join one (x, y) pair per client into flat arrays of the common dtype, and their offsets."""
    if isinstance(clients, str | Mapping) or not isinstance(clients, Iterable):
        raise TypeError(f"clients must be a list of (x, y), one pair for each client, not {described(clients)}")
    pairs = [(as_array(x, f"x of client {i}"), as_array(y, f"y of client {i}")) for i, (x, y) in _in_pairs(clients)]
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


def as_array(values: Any, what: str) -> Array:
    """Return values as an array; refuse rows of different lengths, masked entries and sparse matrices."""
    check_dense(values, what)
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{what} has rows of different lengths; give all rows the same shape") from None


def check_dense(values: Any, what: str) -> None:
    """Refuse what NumPy takes for something else: masked entries, whose numbers it would use, and sparse matrices."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = int(np.asarray(values.mask).sum())
        raise ValueError(
            f"{what} is a masked array with {masked} masked entries; drop such rows, or fill them in with "
            "array.filled(value)"
        )
    if type(values).__module__.startswith("scipy.sparse"):
        raise ValueError(f"{what} is a sparse {type(values).__name__}; give a dense array, such as matrix.toarray()")


def _in_pairs(clients: Iterable[Any]) -> Iterable[tuple[int, tuple[Any, Any]]]:
    for i, client in enumerate(clients):
        if isinstance(client, str | Mapping) or not hasattr(client, "__len__") or len(client) != 2:
            raise TypeError(f"client {i} is {described(client)}; give a pair (x, y) for each client")
        yield i, (client[0], client[1])


def check_parts(parts: Sequence[NDArray[np.integer[Any]]], x: Array, y: Array) -> tuple[NDArray[np.int64], Offsets]:
    """Join the row indices of each client, of the pooled rows x and y; return them with the offsets."""
    for letter, array in (("x", x), ("y", y)):
        _check_is_array(array, letter, "the pooled rows")
    x_rows, y_rows = len(x), len(y)
    parts = check_list("parts", parts, "a list of arrays of row numbers, one for each client")
    if x_rows != y_rows:
        raise ValueError(f"x has {x_rows} rows but y has {y_rows}; they belong together")
    if len(parts) == 0:
        raise ValueError("no clients were given; give at least one array of row indices")
    for i, part in enumerate(parts):
        if not is_list(part):
            raise TypeError(f"parts[{i}] must be an array of row numbers, not {described(part)}")
        if len(part) == 0:
            raise ValueError(f"client {i} has no rows; leave it out, or give it at least one row")
        if np.asarray(part).dtype.kind not in "iu" or np.ndim(part) != 1:
            raise ValueError(f"parts[{i}]={shown(part)} must hold whole numbers, the rows of client {i}")
        if np.min(part) < 0 or np.max(part) >= x_rows:
            raise ValueError(f"client {i} asks for a row outside 0 to {x_rows - 1}")
    offsets = np.cumsum([0] + [len(part) for part in parts], dtype=np.int64)
    return np.concatenate(parts).astype(np.int64), offsets


def check_offsets(offsets: Offsets, rows: int) -> None:
    """Offsets are whole numbers, start at 0, end at the number of rows, and leave no client empty."""
    if not isinstance(offsets, np.ndarray) or offsets.ndim != 1 or (offsets.dtype.kind not in "iu" and len(offsets)):
        raise ValueError(
            f"offsets={shown(offsets)} must be an array of whole numbers [N + 1]; try FederatedData.from_clients"
        )
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != rows:
        raise ValueError(
            f"offsets must run from 0 to the {rows} rows, but are {offsets}; try FederatedData.from_clients"
        )
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if len(empty):
        raise ValueError(f"client {empty[0]} has no rows; leave it out, or give it at least one row")


def check_arrays(x: Array, y: Array, offsets: Offsets, owner: str = "client") -> None:
    """Rows of x and y match, are numbers, and are finite."""
    for letter, array in (("x", x), ("y", y)):
        _check_is_array(array, letter, f"{owner} data")
    if len(x) != len(y):
        raise ValueError(f"{owner} data has {len(x)} rows of x but {len(y)} of y; they belong together")
    for letter, array in (("x", x), ("y", y)):
        check_numeric(array, letter, f"{owner} data")
        bad = _first_infinite(array) if array.dtype.kind == "f" else None
        if bad is not None:
            where = _place(bad[0], offsets, owner)
            raise ValueError(f"{where} holds {array[bad]} in {letter}; drop such rows, or fill in missing values")


def _check_is_array(array: Any, letter: str, owner: str) -> None:
    check_dense(array, f"{letter} of {owner}")
    if not hasattr(array, "dtype") or np.ndim(array) == 0:
        raise TypeError(f"{letter} of {owner} is {described(array)}; give an array with one row per example")


def _first_infinite(array: Array) -> tuple[int, ...] | None:
    """Return the position of the first number that is not finite; read in pieces, because rows may be on a disk."""
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


def check_test(test: Any, x: Array, y: Array) -> tuple[Array, Array]:
    """Return a test part (x, y) as arrays: rows like the clients' own, at least one, and finite."""
    if isinstance(test, str | Mapping) or not hasattr(test, "__getitem__") or len(test) != 2:
        raise ValueError(f"test is {described(test)}; give a pair (x, y) of arrays, or None for no test part")
    found = as_array(test[0], "x of test"), as_array(test[1], "y of test")
    check_arrays(*found, np.array([0, len(found[0]) if np.ndim(found[0]) else 0]), owner="test")
    if len(found[0]) == 0:
        raise ValueError("test has no rows; give at least one, or None for no test part")
    for letter, mine, other in zip("xy", (x, y), found):
        if mine.shape[1:] != other.shape[1:]:
            raise ValueError(
                f"test {letter} has rows of shape {other.shape[1:]}, the clients' {mine.shape[1:]}; "
                "prepare both in the same way"
            )
    return found


def check_label_names(names: Any, num_classes: int | None) -> None:
    """Label names are one string for each class."""
    check_list("label_names", names, "a tuple of texts, one for each class")
    if num_classes is not None and len(names) != num_classes:
        raise ValueError(f"label_names has {len(names)} names for num_classes={num_classes}; give one for each class")


def check_client(client: Any, clients: int) -> int:
    """Return the number of an existing client."""
    if not is_whole(client) or not 0 <= client < clients:
        raise ValueError(f"client {shown(client)} does not exist; the clients are 0 to {clients - 1}")
    return int(client)


def check_labels(y: Array, num_classes: int, offsets: Offsets, owner: str = "client") -> None:
    """Labels are one whole number per row, from 0 to num_classes - 1."""
    check_count("num_classes", num_classes)
    if y.ndim != 1 or y.dtype.kind not in "biu":
        raise ValueError(
            f"num_classes={num_classes} needs one whole-number label per row, "
            f"but y is {y.dtype} of shape {y.shape}; leave num_classes out for regression"
        )
    outside = np.flatnonzero((y < 0) | (y >= num_classes))
    if len(outside):
        raise ValueError(
            f"{_place(int(outside[0]), offsets, owner)} has the label {y[outside[0]]}; "
            f"num_classes={num_classes} allows 0 to {num_classes - 1}"
        )


def _place(row: int, offsets: Offsets, owner: str) -> str:
    if owner != "client":
        return f"{owner} row {row}"
    client = int(np.searchsorted(offsets, row, side="right")) - 1
    return f"client {client}, row {row - offsets[client]},"
