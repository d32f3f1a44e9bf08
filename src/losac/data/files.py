"""Verified files: npz archives with *content* that is checked against a known digest.

The digest covers the arrays, not the container, so an archive that was packed again with another
compression level, or built from the original public files, is recognised as the same data.
"""

import hashlib
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_path

Arrays = dict[str, NDArray[Any]]

_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class DataError(ValueError):
    """A data file is missing, damaged, not the one expected, or cannot be downloaded."""


def content_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the sha256 over the sorted array names, dtypes, shapes and bytes.

    >>> a = {"x": np.arange(3, dtype=np.int16), "y": np.zeros(2)}
    >>> content_digest(a) == content_digest(dict(reversed(a.items())))
    True
    >>> content_digest(a) == content_digest({**a, "y": np.zeros((2, 1))})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}|{array.dtype.str}|{arrays[name].shape}|".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def way_out(name: str) -> str:
    """Say how to get a good copy of the data set `name`: the tail of every file error."""
    return f"Delete it and run `losac data download {name}`, or set LOSAC_DATA_DIR to a folder with a good {name}.npz."


def read_npz(path: Path, digest: str) -> Arrays:
    """Read every array of `path` and check the content against `digest`.

    Raises:
        DataError: the file is truncated, is not an npz archive, or holds other data.
    """
    try:
        with zipfile.ZipFile(path):  # np.load would take a plain .npy, or a pickle, for an archive
            pass
        with np.load(path, allow_pickle=False) as archive:
            arrays: Arrays = {name: archive[name] for name in archive.files}
    except _UNREADABLE as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}); "
            f"expected content sha256 {digest}. {way_out(path.stem)}"
        ) from error
    found = content_digest(arrays)
    if found != digest:
        raise DataError(
            f"{path} is not the expected data: expected content sha256 {digest}, found {found}. {way_out(path.stem)}"
        )
    return arrays


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write `arrays` to `path`; a reader sees either no file or the whole file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **arrays)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def given_dir(data_dir: str | os.PathLike[str] | None) -> tuple[Path, str] | None:
    """Return the folder that the user chose and where it was set; None if it was not."""
    if data_dir is not None:
        return check_path("data_dir", data_dir).expanduser(), "data_dir"
    if chosen := os.environ.get("LOSAC_DATA_DIR"):
        return Path(chosen).expanduser(), "LOSAC_DATA_DIR"
    return None
