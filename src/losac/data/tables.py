"""From the stored arrays of a real data set to inputs, labels and a test part, ready to be split among clients."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from losac.data.files import Arrays

Array = NDArray[Any]
Preprocessing = Literal["row", "feature", "standard", "global", "none", "row-mean", "row-max"]
EsrSplit = Literal["random", "recording"]


@dataclass(frozen=True)
class Table:
    """Pooled rows, before they are assigned to clients."""

    x: Array
    y: Array
    num_classes: int
    test: tuple[Array, Array] | None = None
    groups: Array | None = None
    label_names: tuple[str, ...] | None = None


def digits(rng: np.random.Generator) -> Table:
    """Scikit-learn's 8x8 digits, pixels in [0, 1], 80 % to train and 20 % to test."""
    x, y = _digits()
    x, y = (x / 16).astype(np.float32), y.astype(np.int32)
    order = rng.permutation(len(x))
    train, test = np.split(order, [round(0.8 * len(x))])
    return Table(x[train], y[train], 10, test=(x[test], y[test]))


def _digits() -> tuple[Array, Array]:
    """Return the digits as scikit-learn reads them; importing it takes longer than all else that a client does."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            rows = np.loadtxt(file, delimiter=",")
            return rows[:, :-1], rows[:, -1].astype(int)
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x, y


def mnist(arrays: Arrays, rng: np.random.Generator, *, flatten: bool = True) -> Table:
    """Pixels in [0, 1], as rows of 784 or, with `flatten=False`, as images of 28 x 28 x 1."""

    def part(name: str) -> tuple[Array, Array]:
        return pixels(arrays[f"x_{name}"], flatten), arrays[f"y_{name}"].astype(np.int32)

    return Table(*part("train"), 10, test=part("test"))


def pixels(images: Array, flatten: bool) -> Array:
    """Return bytes [n, height, width] or [n, height, width, channels] in [0, 1], as rows or as images with channels."""
    x = images.astype(np.float32) / np.float32(255)
    return x.reshape(len(x), -1) if flatten else x.reshape(*images.shape[:3], -1)


def har(arrays: Arrays, rng: np.random.Generator) -> Table:
    """The official split, features as published, one group per person."""
    return Table(
        arrays["x_train"],
        arrays["y_train"].astype(np.int32),
        6,
        test=(arrays["x_test"], arrays["y_test"].astype(np.int32)),
        groups=arrays["subject_train"],
        label_names=tuple(name.replace("_", " ").lower() for name in arrays["activity_names"].tolist()),
    )


def esr(
    arrays: Arrays,
    rng: np.random.Generator,
    *,
    preprocessing: Preprocessing = "row",
    split: EsrSplit = "random",
    multiclass: bool = False,
) -> Table:
    """One second of EEG per row; seizure or not, or with `multiclass=True` the five kinds.

    `split="random"` is the usual 9,200/2,300 split, which puts chunks of one recording on both sides;
    `split="recording"` moves whole recordings, which is a fair test. Scales come from the training part.
    `preprocessing="row"` scales each row to [0, 1]. `"row-mean"` subtracts a row's mean and divides by its range;
    `"row-max"` divides by its largest absolute value instead, which comes closest to the paper's Table 2.
    """
    if split not in get_args(EsrSplit):
        raise ValueError(f"split={split!r}; give one of {', '.join(get_args(EsrSplit))}")
    recording = arrays["recording"]
    if split == "random":
        train, test = np.split(rng.permutation(len(recording)), [round(0.8 * len(recording))])
    else:
        names = rng.permutation(np.unique(recording))
        aside = np.isin(recording, names[: round(0.2 * len(names))])
        train, test = np.flatnonzero(~aside), np.flatnonzero(aside)
    kinds = arrays["y"].astype(np.int32)
    y = kinds - 1 if multiclass else (kinds == 1).astype(np.int32)
    x_train, x_test = _rescale(arrays["x"][train], arrays["x"][test], preprocessing)
    return Table(
        x_train,
        y[train],
        5 if multiclass else 2,
        test=(x_test, y[test]),
        groups=recording[train],
        label_names=("seizure", "tumour area", "healthy area", "eyes closed", "eyes open")
        if multiclass
        else ("no seizure", "seizure"),
    )


def binary(arrays: Arrays, rng: np.random.Generator) -> Table:
    """LIBSVM's a9a or w8a: 0/1 features as float32, labels -1/+1 as 0/1."""

    def part(name: str) -> tuple[Array, Array]:
        return arrays[f"x_{name}"].astype(np.float32), (arrays[f"y_{name}"] > 0).astype(np.int32)

    return Table(*part("train"), 2, test=part("test") if "x_test" in arrays else None)


def _rescale(train: Array, test: Array, preprocessing: Preprocessing) -> tuple[Array, Array]:
    """Shift and divide: each row by its own range, or all rows by the training part's scales."""
    raw = train.astype(np.float64)
    if preprocessing == "row":
        return _by_row(train), _by_row(test)
    if preprocessing == "row-mean":
        return _by_row(train, centred=True), _by_row(test, centred=True)
    if preprocessing == "row-max":
        return _by_largest(train), _by_largest(test)
    if preprocessing == "feature":
        shift, scale = raw.min(axis=0), np.ptp(raw, axis=0)
    elif preprocessing == "standard":
        shift, scale = raw.mean(axis=0), raw.std(axis=0)
    elif preprocessing == "global":
        shift, scale = raw.min(), np.ptp(raw)
    elif preprocessing == "none":
        return train.astype(np.float32), test.astype(np.float32)
    else:
        raise ValueError(f"preprocessing={preprocessing!r}; give one of {', '.join(get_args(Preprocessing))}")
    return _apply(train, shift, scale), _apply(test, shift, scale)


def _by_row(x: Array, centred: bool = False) -> Array:
    """Divide each row by its range, after subtracting its minimum or, if centred, its mean."""
    raw = x.astype(np.float64)
    shift = raw.mean(axis=1, keepdims=True) if centred else raw.min(axis=1, keepdims=True)
    return _apply(raw, shift, np.ptp(raw, axis=1, keepdims=True))


def _by_largest(x: Array) -> Array:
    """Subtract each row's mean and divide by its largest absolute value."""
    centred = x - x.mean(axis=1, keepdims=True, dtype=np.float64)
    return _apply(centred, np.zeros(1), np.abs(centred).max(axis=1, keepdims=True))


def _apply(x: Array, shift: Array, scale: Array) -> Array:
    """Return (x - shift) / scale as float32; inputs that never vary become 0."""
    return np.asarray((x - shift) / np.where(scale > 0, scale, 1.0), dtype=np.float32)
