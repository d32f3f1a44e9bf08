"""Data larger than memory: x and y stay in .npy files, and only the rows that are used are read."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_path
from losac.data.federated import FederatedData, check_data
from losac.data.files import DataError

Array = NDArray[Any]
_WORDS = ("label_names", "client_names")


def is_mapped(source: Any) -> bool:
    """Whether a source is a folder with x.npy and y.npy."""
    if not isinstance(source, str | os.PathLike):
        return False
    folder = Path(source).expanduser()
    return all((folder / name).is_file() for name in ("x.npy", "y.npy"))


def map_npy(
    folder: str | os.PathLike[str], *, name: str | None = None, num_classes: int | None = None
) -> FederatedData:
    """Return the data of a folder of .npy files as memory maps: nothing is copied into memory.

    The folder holds `x.npy` and `y.npy`, client after client, and the owners of the rows: `offsets.npy` [N + 1], or
    `client.npy` with one sorted entry per row. `x_test.npy` and `y_test.npy`, `label_names.npy` and `client_names.npy`
    are optional. The rows are read once, piece by piece, to check that they are finite.

    Args:
        folder: as `write_npy` makes it, or your own.
        name: what figures and tables call the data; by default the folder's name.
        num_classes: number of labels; by default one more than the highest, if y holds whole numbers.

    Raises:
        DataError: a file is missing or damaged, or the rows are not in the order of the clients.
    """
    folder = check_path("folder", folder).expanduser()
    x, y = (_map(folder / f"{letter}.npy") for letter in "xy")
    if len(x) != len(y):
        raise DataError(f"{folder} has {len(x):,} rows in x.npy but {len(y):,} in y.npy; they belong together")
    if (folder / "offsets.npy").exists():
        offsets = np.array(_map(folder / "offsets.npy"), dtype=np.int64)
    elif (folder / "client.npy").exists():
        offsets = _offsets(_map(folder / "client.npy"), len(x), folder)
    else:
        raise DataError(
            f"{folder} has neither offsets.npy nor client.npy, so the owners of the rows are not known; write one of "
            "them"
        )
    test = None
    if (folder / "x_test.npy").exists():
        test = (_map(folder / "x_test.npy"), _map(folder / "y_test.npy"))
    words = {w: tuple(_map(folder / f"{w}.npy").tolist()) for w in _WORDS if (folder / f"{w}.npy").exists()}
    if num_classes is None and y.ndim == 1 and y.dtype.kind in "biu":
        num_classes = max(int(y.max()) + 1, len(words.get("label_names", ())))
    return FederatedData(
        x,
        y,
        offsets,
        test=test,
        name=name or folder.name,
        num_classes=num_classes,
        label_names=words.get("label_names"),
        info={"client_names": words["client_names"]} if "client_names" in words else {},
    )


def write_npy(folder: str | os.PathLike[str], data: FederatedData) -> Path:
    """Write data as a folder for `map_npy`; return the folder.

    >>> import tempfile
    >>> data = FederatedData.from_clients([(np.ones((3, 2)), np.zeros(3)), (np.ones((1, 2)), np.ones(1))])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     map_npy(write_npy(folder, data), name="mapped")
    FederatedData('mapped': 2 clients, 4 rows (1 to 3 each), x (2,) float64, y () float64)
    """
    check_data(data)
    folder = check_path("folder", folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Array] = {"x": data.x, "y": data.y, "offsets": data.offsets}
    if data.test is not None:
        arrays |= {"x_test": data.test[0], "y_test": data.test[1]}
    if data.label_names is not None:
        arrays["label_names"] = np.array(data.label_names)
    if "client_names" in data.info:
        arrays["client_names"] = np.array(data.info["client_names"])
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return folder


def _map(path: Path) -> Array:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; write it by np.save, or the whole folder by write_npy") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be mapped ({error}); write it by np.save, as numbers") from error


def _offsets(client: Array, rows: int, folder: Path) -> NDArray[np.int64]:
    if client.shape != (rows,):
        raise DataError(
            f"{folder / 'client.npy'} has shape {client.shape}; give one entry for each of the {rows:,} rows"
        )
    begins = np.flatnonzero(client[1:] != client[:-1]) + 1
    firsts = client[np.concatenate([[0], begins])]
    if len(np.unique(firsts)) < len(firsts):
        raise DataError(
            f"{folder} does not have its rows in the order of the clients: the rows of some are in several places; "
            "sort x.npy, y.npy and client.npy by the client"
        )
    return np.concatenate([[0], begins, [rows]]).astype(np.int64)
