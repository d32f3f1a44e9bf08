"""Binary classification sets of LIBSVM's page, by name.

C.-C. Chang, C.-J. Lin, *LIBSVM: a library for support vector machines*, 2011. The page states no checksums: the
sha256 of a file is recorded when it is downloaded first.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from losac.data.formats import libsvm_rows
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.tables import Table

_BASE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"


class _Set(NamedTuple):
    train: str
    test: str | None
    features: int
    rows: str


_SETS = {
    "a1a": _Set("a1a", "a1a.t", 123, "1,605/30,956"),
    "australian": _Set("australian_scale", None, 14, "690"),
    "covtype": _Set("covtype.libsvm.binary.scale.bz2", None, 54, "581,012"),
    "ijcnn1": _Set("ijcnn1.bz2", "ijcnn1.t.bz2", 22, "49,990/91,701"),
    "mushrooms": _Set("mushrooms", None, 112, "8,124"),
    "phishing": _Set("phishing", None, 68, "11,055"),
    "w1a": _Set("w1a", "w1a.t", 300, "2,477/47,272"),
}


def table(files: Mapping[str, Path], rng: np.random.Generator, *, train: str, test: str | None, features: int) -> Table:
    """Features as published, float32; the larger of the two labels is 1."""
    x, y = libsvm_rows(files[train], features)
    low, high = np.unique(y)
    return Table(x, _labels(y, low, high), 2, test=None if test is None else _held(files[test], features, low, high))


def _held(path: Path, features: int, low: float, high: float) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = libsvm_rows(path, features)
    return x, _labels(y, low, high)


def _labels(y: NDArray[Any], low: float, high: float) -> NDArray[np.int32]:
    if not np.isin(y, (low, high)).all():
        raise ValueError(f"there are other labels than {low:g} and {high:g}")
    return (y == high).astype(np.int32)


LIBSVM = tuple(
    KeptSet(
        name,
        f"LIBSVM's {name}; {each.rows} rows, {each.features} features, 2 classes",
        tuple(PublicFile(file, (f"{_BASE}{file}",)) for file in (each.train, each.test) if file is not None),
        partial(table, train=each.train, test=each.test, features=each.features),
        "cite the source that LIBSVM's page names",
    )
    for name, each in _SETS.items()
)
