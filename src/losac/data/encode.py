"""From named columns to training data: an array of inputs, labels or numbers to predict, and owners."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from losac.data.columns import Columns, is_missing
from losac.data.files import DataError

Array = NDArray[Any]
Categorical = Literal["refuse", "onehot", "drop"]
Missing = Literal["refuse", "drop"]
FEW_LABELS = 20
"""Whole numbers with at most this many values are labels, unless the user says otherwise."""
MOST_LEVELS = 1000
"""The most values of a text column that becomes one-hot columns."""


@dataclass(frozen=True)
class Targets:
    """Labels 0, 1, … with their names, or numbers."""

    y: Array
    num_classes: int | None
    label_names: tuple[str, ...] | None


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a word that a setting does not take."""
    if value not in get_args(choices):
        raise ValueError(f"{name}={value!r}; give one of {', '.join(map(repr, get_args(choices)))}")


def keep_complete(columns: Columns, names: Sequence[str], missing: Missing) -> NDArray[np.int64]:
    """Return the rows without missing values; with `missing="refuse"` all rows must be complete."""
    bad = np.zeros(columns.rows, dtype=bool)
    for name in names:
        gone = is_missing(columns.arrays[name])
        if missing == "refuse" and gone.any():
            raise DataError(
                f"column {name!r} of {columns.origin} has {gone.sum():,} missing values (NaN), the first in row "
                f"{np.argmax(gone)}; fill them in, leave the column out, or give missing='drop' to leave out such rows"
            )
        bad |= gone
    if bad.all():
        raise DataError(f"no row of {columns.origin} is complete: each has a missing value in {', '.join(names[:8])}")
    return np.flatnonzero(~bad)


def inputs(
    columns: Columns, names: Sequence[str], categorical: Categorical, dtype: DTypeLike
) -> tuple[Array, list[str]]:
    """Return x, and the names along its last axis if each column holds one number per row.

    One column of arrays (images, embeddings) is x itself; bytes with three or more axes are pixels, scaled to [0, 1].
    """
    arrays = {name: columns.arrays[name] for name in names}
    wide = [name for name, array in arrays.items() if array.ndim > 1]
    if wide:
        if len(arrays) > 1:
            raise DataError(
                f"column {wide[0]!r} of {columns.origin} holds arrays and cannot be combined with {len(arrays) - 1} "
                f"other columns; choose one by features={wide[0]!r}"
            )
        return _whole(arrays[wide[0]], wide[0], columns.origin, np.dtype(dtype)), []
    parts: list[Array] = []
    titles: list[str] = []
    for name, array in arrays.items():
        if array.dtype.kind in "biuf":
            _refuse_infinite(array, name, columns.origin)
            parts.append(array.astype(dtype)[:, None])
            titles.append(name)
        elif categorical != "drop" or array.dtype.kind != "O":
            levels, codes = _levels(array, name, columns.origin, categorical)
            parts.append((codes[:, None] == np.arange(len(levels))).astype(dtype))
            titles += [f"{name}={level}" for level in levels]
    if not parts:
        raise DataError(f"{columns.origin} has no columns of numbers for the inputs; give categorical='onehot'")
    return np.concatenate(parts, axis=1), titles


def mixed(array: Array) -> tuple[int, Any] | None:
    """Return where a column of mostly numbers has something else, and what; None if it has not."""
    values = array.tolist()
    odd = [at for at, value in enumerate(values) if value is not None and not _is_number(value)]
    there = sum(value is not None for value in values)
    return (odd[0], values[odd[0]]) if odd and len(odd) <= there / 2 else None


def targets(array: Array, name: str, origin: str, labels: bool | None, names: tuple[str, ...] | None) -> Targets:
    """Return labels or numbers. With `labels=None`, text, booleans and whole numbers with few values are labels.

    >>> targets(np.array(["b", "a", "b"], dtype=object), "kind", "file", None, None)
    Targets(y=array([1, 0, 1], dtype=int32), num_classes=2, label_names=('a', 'b'))
    >>> targets(np.array([0.5, 1.5]), "price", "file", None, None).num_classes is None
    True
    """
    kind = array.dtype.kind
    if kind == "O" and not labels and (found := mixed(array)):
        raise DataError(
            f"the target {name!r} of {origin} mixes numbers and text: {found[1]!r} in row {found[0]}; correct the "
            "column, or give labels=True to take all as text"
        )
    if kind in "mM" or (array.ndim > 1 and labels):
        raise DataError(f"the target {name!r} of {origin} has dtype {array.dtype} and shape {array.shape}; give labels")
    if array.ndim > 1 or (kind == "f" and not labels):
        _refuse_infinite(array, name, origin)
        return Targets(array, None, None)
    values, codes = np.unique(array.astype(str) if kind in "OU" else array, return_inverse=True)
    whole = kind in "iu" and values[0] == 0 and values[-1] == len(values) - 1
    if labels is False or (labels is None and kind in "iu" and not (whole or names) and len(values) > FEW_LABELS):
        if kind in "OU":
            raise DataError(f"the target {name!r} of {origin} is text; labels=False needs numbers")
        return Targets(array.astype(np.float32), None, None)
    if names is not None and kind in "iu":
        return Targets(array.astype(np.int32), len(names), names)
    if len(values) == 1:
        raise DataError(
            f"the target {name!r} of {origin} has one value only, {values[0]!s}: there is nothing to learn; "
            "give another target, or rows of other classes"
        )
    meaning = None if whole else tuple(str(value) for value in values.tolist())
    return Targets(codes.astype(np.int32), len(values), meaning)


def owners(array: Array, name: str, origin: str) -> Array:
    """Return the owner of each row, as values that can be sorted."""
    if array.ndim > 1:
        raise DataError(f"the client column {name!r} of {origin} holds arrays; give one name or number per row")
    return array.astype(str) if array.dtype.kind in "OU" else array


def _whole(array: Array, name: str, origin: str, dtype: "np.dtype[Any]") -> Array:
    if array.dtype.kind not in "biuf":
        raise DataError(f"column {name!r} of {origin} holds arrays of {array.dtype}; give numbers")
    _refuse_infinite(array, name, origin)
    if array.dtype == np.uint8 and array.ndim > 2:
        return (array / dtype.type(255)).astype(dtype)
    return array.astype(dtype, copy=False)


def _refuse_infinite(array: Array, name: str, origin: str) -> None:
    if array.dtype.kind == "f" and np.isinf(array).any():
        row = int(np.argwhere(np.isinf(array))[0][0])
        raise DataError(
            f"column {name!r} of {origin} holds an infinite number in row {row}; replace it, or drop the row"
        )


def _levels(array: Array, name: str, origin: str, categorical: Categorical) -> tuple[list[str], Array]:
    if array.dtype.kind in "mM":
        raise DataError(
            f"column {name!r} of {origin} holds dates; turn them into numbers first (such as days since the first), "
            "or leave the column out by features=[…]"
        )
    if found := mixed(array):
        raise DataError(
            f"column {name!r} of {origin} mixes numbers and text: {found[1]!r} in row {found[0]}; correct it, or "
            "leave it out by features=[…]"
        )
    levels, codes = np.unique(array.astype(str), return_inverse=True)
    if categorical == "refuse":
        some = ", ".join(map(repr, levels[:3].tolist())) + (", …" if len(levels) > 3 else "")
        raise DataError(
            f"column {name!r} of {origin} is text ({some}); give categorical='onehot' for one column per value "
            f"({len(levels):,} here), categorical='drop', or name the inputs by features=[…]"
        )
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"column {name!r} of {origin} has {len(levels):,} different texts, more than the {MOST_LEVELS:,} that "
            "become one-hot columns; leave it out by features=[…]"
        )
    return levels.tolist(), codes


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
