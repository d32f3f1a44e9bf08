"""CIFAR-10 and CIFAR-100: 60,000 colour pictures of 32 x 32 pixels.

A. Krizhevsky, *Learning multiple layers of features from tiny images*, 2009. The checksums are those of the
authors' page.
"""

import io
import pickle
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac.data.files import DataError
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.tables import Table, pixels

_BASE = "https://www.cs.toronto.edu/~kriz/"
_ALLOWED = {
    ("numpy._core.multiarray", "_reconstruct"), ("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
    ("numpy", "dtype"), ("numpy._core.multiarray", "scalar"), ("numpy.core.multiarray", "scalar"),
}  # fmt: skip


class _Plain(pickle.Unpickler):
    """Reads arrays, lists and texts, and refuses anything that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of NumPy's own classes."""
        if (module, name) not in _ALLOWED and (module, name) != ("_codecs", "encode"):
            raise DataError(f"the file asks for {module}.{name}, which the data set does not need; it is not read")
        return super().find_class(module, name)


def table(
    files: Mapping[str, Path], rng: np.random.Generator, *, archive: str, label: str, names: str, flatten: bool = False
) -> Table:
    """Pixels in [0, 1] as images of 32 x 32 x 3 or, with `flatten=True`, as rows of 3,072."""
    found = _members(files[archive])
    train, test = (
        _stacked([found[part] for part in sorted(found) if part.startswith(stems)], label, flatten)
        for stems in (("data_batch", "train"), ("test",))
    )
    words = tuple(
        name.decode() for name in found[next(part for part in found if part.endswith("meta"))][names.encode()]
    )
    return Table(*train, len(words), test=test, label_names=words)


def _members(path: Path) -> dict[str, Any]:
    """Return the pickled contents of an archive by the names of its files."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            if member.isfile() and name.startswith(("data_batch", "train", "test", "batches.meta", "meta")):
                stream = archive.extractfile(member)
                assert stream is not None
                found[name] = _Plain(io.BytesIO(stream.read()), encoding="bytes").load()
    return found


def _stacked(parts: list[dict[bytes, Any]], label: str, flatten: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = np.concatenate([np.asarray(part[b"data"]) for part in parts])
    x = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    y = np.concatenate([np.asarray(part[label.encode()], np.int32) for part in parts])
    return pixels(x, flatten), y


def _cifar(name: str, md5: str, classes: int, label: str, names: str) -> KeptSet:
    archive = f"{name.replace('cifar', 'cifar-')}-python.tar.gz"
    return KeptSet(
        name,
        f"32x32 colour pictures; 50,000/10,000 rows, {classes} classes",
        (PublicFile(archive, (f"{_BASE}{archive}",), f"md5:{md5}"),),
        partial(table, archive=archive, label=label, names=names),
        "cite Krizhevsky, 2009",
    )


CIFAR10 = _cifar("cifar10", "c58f30108f718f92721af3b95e74349a", 10, "labels", "label_names")
CIFAR100 = _cifar("cifar100", "eb9058c3a382ffc7106e4002c42a8d85", 100, "fine_labels", "fine_label_names")
