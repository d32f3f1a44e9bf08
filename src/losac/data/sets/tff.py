"""The HDF5 files of TensorFlow Federated: ``examples/CLIENT/FIELD``, in an archive .tar.bz2 or next to it."""

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from losac._extras import need
from losac.data.files import DataError

BASE = "https://storage.googleapis.com/tff-datasets-public/"
T = TypeVar("T")


def unpacked(archive: Path, member: str) -> Path:
    """Return a file of an archive, unpacked next to it; it is unpacked once."""
    path = archive.with_name(member)
    if path.is_file() and path.stat().st_mtime >= archive.stat().st_mtime:
        return path
    with tarfile.open(archive) as packed:
        found = next((each for each in packed if Path(each.name).name == member), None)
        stream = None if found is None else packed.extractfile(found)
        if stream is None:
            raise DataError(f"{archive} has no file {member}; download it again")
        part = path.with_name(f"{member}.part")
        with part.open("wb") as out:
            while piece := stream.read(1 << 20):
                out.write(piece)
    os.replace(part, path)
    return path


def clients(path: Path, most: int | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the first clients of a file, in the order of their names: each name with its group of fields."""
    h5py = need("h5py", "an HDF5 file", "hdf5")
    try:
        file = h5py.File(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read as HDF5 ({error}); download it again") from error
    with file:
        if "examples" not in file:
            raise DataError(f"{path} has no group 'examples', as files of TensorFlow Federated have")
        examples = file["examples"]
        for name in sorted(examples)[:most]:
            yield name, examples[name]


def gathered(
    path: Path, names: set[str] | None, most: int | None, rows: Callable[[Any], tuple[NDArray[Any], NDArray[Any]]]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the rows of a file's clients below each other, and the name of each row's client.

    Args:
        path: the file.
        names: the clients to read; None for all.
        most: how many clients to read.
        rows: a client's fields → its x and y; a client without rows is left out.
    """
    xs, ys, who = [], [], []
    for name, fields in clients(path, most):
        if names is not None and name not in names:
            continue
        x, y = rows(fields)
        if len(x):
            xs.append(x)
            ys.append(y)
            who += [name] * len(x)
    if not xs:
        raise DataError(f"{path} has no rows for the clients that are wanted")
    return np.concatenate(xs), np.concatenate(ys), np.array(who)


def texts(values: Any) -> list[str]:
    """Return a field of texts."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values[()]]
