"""Readers of the published file formats: MNIST's IDX, LIBSVM text, the UCI archive of HAR."""

import gzip
import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac.data.files import Arrays


def read_idx(path: Path) -> NDArray[Any]:
    """Read an IDX file, gzipped or not, such as MNIST's images or labels."""
    raw = path.read_bytes()
    return idx_array(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw, path.name)


_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def idx_array(raw: bytes, name: str) -> NDArray[Any]:
    """Return the array in the bytes of an IDX file."""
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_TYPES:
        raise ValueError(f"{name} does not start with the mark of an IDX file")
    dtype, start = np.dtype(_IDX_TYPES[raw[2]]), 4 + 4 * raw[3]
    if len(raw) < start:
        raise ValueError(f"{name} ends within its head")
    shape = tuple(np.frombuffer(raw[:start], ">u4", offset=4).astype(int).tolist())
    wanted, found = math.prod(shape) * dtype.itemsize, len(raw) - start
    if wanted != found:
        raise ValueError(f"{name} holds {found} bytes of data, and its head {shape} asks for {wanted}")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def libsvm_rows(path: Path, features: int | None = None) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Read LIBSVM text (also .gz or .bz2) into dense x [n, features] and y [n]; indices count from 1, or from 0."""
    from sklearn.datasets import load_svmlight_file

    x, y = load_svmlight_file(str(path), n_features=features, dtype=np.float32, zero_based="auto")
    return x.toarray(), np.asarray(y, np.float64)


def read_libsvm(path: Path, features: int) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Read LIBSVM text with binary features and labels -1/+1 into dense x [n, features] and y [n].

    A line reads `-1 3:1 11:1`: the label, then the 1-based index of every feature that is one.
    """
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    x = np.zeros((len(lines), features), dtype=np.uint8)
    for row, (_, *pairs) in enumerate(lines):
        for index, value in (pair.split(":") for pair in pairs):
            if not 1 <= int(index) <= features or float(value) not in (0, 1):
                raise ValueError(f"{path.name}, row {row}: {index}:{value} is not a binary feature")
            x[row, int(index) - 1] = int(float(value))
    return x, np.array([int(float(words[0])) for words in lines], dtype=np.int8)


def read_har(path: Path) -> Arrays:
    """Read UCI's HAR archive: the data set's zip, alone or inside another zip as UCI serves it."""
    with zipfile.ZipFile(path) as outer:
        inner = _find(outer, "UCI HAR Dataset.zip")
        if inner is None:
            return _har_arrays(outer)
        with zipfile.ZipFile(io.BytesIO(outer.read(inner))) as archive:
            return _har_arrays(archive)


def _har_arrays(archive: zipfile.ZipFile) -> Arrays:
    def text(member: str) -> io.StringIO:
        found = _find(archive, member)
        if found is None:
            raise ValueError(f"the archive has no {member}")
        return io.StringIO(archive.read(found).decode())

    def numbers(member: str, dtype: type[np.generic]) -> NDArray[Any]:
        return np.loadtxt(text(member), dtype=dtype)

    def names(member: str) -> NDArray[np.str_]:
        return np.array([line.split()[1] for line in text(member) if line.strip()])

    arrays: Arrays = {"feature_names": names("features.txt"), "activity_names": names("activity_labels.txt")}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = numbers(f"{part}/X_{part}.txt", np.float32)
        arrays[f"y_{part}"] = numbers(f"{part}/y_{part}.txt", np.uint8) - np.uint8(1)
        arrays[f"subject_{part}"] = numbers(f"{part}/subject_{part}.txt", np.uint8)
    return arrays


def _find(archive: zipfile.ZipFile, ending: str) -> str | None:
    """Return the member with a path that ends with `ending`, without macOS's resource copies."""
    for member in archive.namelist():
        if f"/{member}".endswith(f"/{ending}") and not member.startswith("__MACOSX"):
            return member
    return None
