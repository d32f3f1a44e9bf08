"""From a table larger than memory to a folder of .npy files, client after client."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from losac.data.columns import batches, column_names, columns, missing_column
from losac.data.encode import inputs, keep_complete, owners, targets
from losac.data.files import DataError

BATCH = 2**16
"""Rows in memory at a time."""


def table_to_npy(
    file: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    target: str,
    client: str,
    features: Sequence[str] | None = None,
    labels: bool | None = None,
    dtype: DTypeLike = "float32",
    encoding: str = "utf-8",
) -> Path:
    """Write a CSV or Parquet file as a folder for `map_npy`; return the folder.

    There are two passes: the first reads the target and the client of all rows, to find where each row belongs; the
    second reads the inputs, some rows at a time, and puts each into its position. Inputs must be numbers, with none
    missing.
    """
    file, folder = Path(file).expanduser(), Path(folder).expanduser()
    small = columns(file, [target, client], encoding=encoding)
    for name, role in ((target, "the target"), (client, "the clients")):
        small.find(name, role)
    keep_complete(small, [target, client], "refuse")
    found = targets(small.arrays[target], target, str(file), labels, None)
    names, owner, sizes = np.unique(
        owners(small.arrays[client], client, str(file)), return_inverse=True, return_counts=True
    )
    order = np.argsort(owner, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    known = column_names(file, encoding)
    wanted = [name for name in known if name not in (target, client)] if features is None else list(features)
    for name in wanted:
        if name not in known:
            raise DataError(missing_column(str(file), name, known, "the inputs"))
    folder.mkdir(parents=True, exist_ok=True)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.dtype(dtype), (len(order), len(wanted)))
    start = 0
    for batch in batches(file, wanted, encoding, BATCH):
        keep_complete(batch, wanted, "refuse")
        rows, _ = inputs(batch, wanted, "refuse", dtype)
        x[position[start : start + len(rows)]] = rows
        start += len(rows)
    x.flush()
    arrays = {"y": found.y[order], "offsets": np.cumsum([0, *sizes]), "client_names": names.astype(str)}
    if found.label_names is not None:
        arrays["label_names"] = np.array(found.label_names)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return folder
