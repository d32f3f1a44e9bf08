"""Files of other fields as columns: IDX, LIBSVM, HDF5 (also TensorFlow Federated's), LEAF's JSON, Arrow.

Files with clients of their own, such as those of TensorFlow Federated and LEAF, have the column `client`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._extras import need
from losac.data.files import DataError
from losac.data.formats import libsvm_rows, read_idx

Array = NDArray[Any]
OWNER, TEST = "client", "_test"
LIBSVM = (".svm", ".libsvm", ".svmlight", ".svm.bz2", ".libsvm.bz2", ".svm.gz", ".libsvm.gz")
HDF5, ARROW, LEAF, IDX = (".h5", ".hdf5"), (".arrow", ".feather"), (".json",), ("-ubyte", "-ubyte.gz", ".idx")
ENDINGS = (*IDX, *LIBSVM, *HDF5, *ARROW, *LEAF)
"""What the names of such files end with."""


def holds_idx(path: Path) -> bool:
    """Whether a path is a folder with IDX files."""
    return path.is_dir() and any(name.name.endswith(IDX) for name in path.iterdir())


def arrays_of(path: Path) -> dict[str, Array]:
    """Return the arrays of a file, or of a folder of IDX files; those of a test part end in `_test`."""
    try:
        if holds_idx(path):
            return _idx_folder(path)
        if path.name.endswith(IDX):
            return _idx_pair(path)
        if path.name.endswith(LIBSVM):
            x, y = libsvm_rows(path)
            return {"x": x, "y": y.astype(np.int64) if (y == y.round()).all() else y}
        if path.name.endswith(HDF5):
            return _hdf5(path)
        return _leaf(path)
    except DataError:
        raise
    except (OSError, ValueError, EOFError, KeyError, TypeError) as error:
        words = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DataError(f"{path} cannot be read ({words}); write it again, or give another file") from error


def has_clients(path: Path) -> bool:
    """Whether a file may have clients of its own."""
    return path.name.endswith((*HDF5, *LEAF))


def arrow_frame(path: Path) -> Any:
    """Return an Arrow file (or stream, or Feather) as a frame."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            try:
                table = pa.ipc.open_file(source).read_all()
            except pa.ArrowInvalid:
                source.seek(0)
                table = pa.ipc.open_stream(source).read_all()
            return table.to_pandas()
    except (pa.ArrowException, OSError) as error:
        words = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DataError(f"{path} cannot be read as Arrow ({words}); write it again") from error


def _idx_folder(folder: Path) -> dict[str, Array]:
    """Return MNIST's four files, or two without a test part."""
    found = {}
    for part, stem in (("", "train"), (TEST, "t10k")):
        for letter, kind in (("x", "images"), ("y", "labels")):
            files = [path for path in sorted(folder.glob(f"{stem}-{kind}*")) if path.name.endswith(IDX)]
            if files:
                found[letter + part] = read_idx(files[0])
    if not {"x", "y"} <= set(found):
        raise DataError(f"{folder} needs IDX files train-images… and train-labels…, as MNIST has")
    return {name: _with_channel(array) for name, array in found.items()}


def _idx_pair(path: Path) -> dict[str, Array]:
    """Return the images of a file and the labels of the file next to it."""
    beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    if "images-idx3" not in path.name or not beside.is_file():
        raise DataError(f"{path} has no labels beside it; name the files …-images-idx3-ubyte and …-labels-idx1-ubyte")
    return {"x": _with_channel(read_idx(path)), "y": read_idx(beside)}


def _with_channel(array: Array) -> Array:
    return array[..., None] if array.ndim == 3 else array


def _hdf5(path: Path) -> dict[str, Array]:
    h5py = need("h5py", "an HDF5 file", "hdf5")
    with h5py.File(path) as file:
        if "examples" not in file:
            return {name: _plain(values) for name, values in file.items() if isinstance(values, h5py.Dataset)}
        examples = file["examples"]
        return _clients({name: {k: _plain(v) for k, v in examples[name].items()} for name in sorted(examples)})


def _plain(values: Any) -> Array:
    array = np.asarray(values)
    if array.dtype.kind in "SO":
        return np.array([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in array.tolist()], object)
    return array


def _leaf(path: Path) -> dict[str, Array]:
    """Return LEAF's JSON: users, and what each holds."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or "user_data" not in content:
        raise DataError(f"{path} is not LEAF's JSON, which has 'users' and 'user_data'")
    told: Mapping[str, Any] = content["user_data"]
    return _clients({str(user): {k: np.asarray(v) for k, v in held.items()} for user, held in told.items()})


def _clients(held: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Put the fields of all clients below each other, with a column that names the client."""
    if not held:
        raise DataError("it has no clients")
    lengths = {name: len(next(iter(fields.values()))) for name, fields in held.items()}
    fields = next(iter(held.values()))
    found = {field: np.concatenate([of[field] for of in held.values()]) for field in fields}
    owner = np.repeat(np.array(list(held), object), list(lengths.values()))
    return {**found, OWNER: owner}
