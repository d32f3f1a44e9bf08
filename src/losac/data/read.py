"""`read`: turn users' files, frames and data sets into clients' data."""

import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from losac import _random
from losac._seeds import check_seed
from losac.data.columns import TABLES, Columns, Source, columns, held_columns, joined
from losac.data.containers import has_clients
from losac.data.encode import Categorical, Missing, check_choice, inputs, keep_complete, owners, targets
from losac.data.federated import FederatedData
from losac.data.files import DataError
from losac.data.mapped import is_mapped, map_npy
from losac.data.options import check_options, column_name, column_names
from losac.data.partition import Partitioner, as_partitioner, deal
from losac.data.splits import By, split
from losac.data.stream import table_to_npy

_OWNER = "client"


def read(
    source: Source,
    *,
    target: str | None = None,
    client: str | None = None,
    clients: int | None = None,
    partition: str | Partitioner = "iid",
    features: str | Sequence[str] | None = None,
    test: float | Source | None = None,
    test_by: By = "rows",
    labels: bool | None = None,
    categorical: Categorical = "refuse",
    missing: Missing = "refuse",
    size: tuple[int, int] | None = None,
    flatten: bool = False,
    dtype: DTypeLike = "float32",
    encoding: str = "utf-8",
    memory_map: bool | str | os.PathLike[str] = False,
    seed: int = 0,
    name: str | None = None,
) -> FederatedData:
    """Read your own data and assign its rows to clients.

    Args:
        source: a CSV, Parquet, NPZ, Arrow, IDX or LIBSVM file; HDF5, also of TensorFlow Federated, or LEAF's JSON,
            whose clients are then the clients; a folder of images, CLASS/… or CLIENT/CLASS/…, or of MNIST's IDX
            files; a pandas or polars frame; a Hugging Face `Dataset`; a PyTorch data set of (x, y) items; a mapping
            of arrays; a pair (x, y). A list of such sources, or a mapping from names to them, is one source per
            client.
        target: the column to predict; by default `y`, if it exists.
        client: the column with the owner of each row; not needed for a folder with one subfolder per client.
        clients: the number of clients to share the rows among.
        partition: how they are shared: iid, sorted, mixture:0.5, dirichlet:0.3, shards:2, or your own callable.
        features: the input columns; by default `x`, if it exists, else all others.
        test: a share of the rows to hold out, or another source of the same kind. By default there is no test part,
          unless an NPZ or HDF5 file has `x_test` and `y_test`, a folder of IDX files `t10k-…`, or a Hugging Face
          `DatasetDict` the part `test`.
        test_by: what a share is taken from: every client's `"rows"`, whole `"clients"`, or the `"pooled"` rows.
        labels: whether the target is labels; by default text and booleans are, and whole numbers that count from 0
            or have at most 20 values.
        categorical: text among the inputs: `"refuse"`, `"onehot"` or `"drop"`.
        missing: rows with missing values: `"refuse"` or `"drop"`.
        size: (height, width) to resize the images of a folder to.
        flatten: make each row of x flat.
        dtype: of the inputs. Bytes with three or more axes are pixels, and are scaled to [0, 1].
        encoding: of a CSV file.
        memory_map: leave x and y on the disk, see `map_npy`. True if `source` is a folder with x.npy and y.npy; for a
          CSV or Parquet file with a client column, the folder to write these to, some rows at a time.
        seed: fixes the partition and the rows held out.
        name: what figures and tables call the data.

    Raises:
        DataError: the source is missing or damaged, or cannot be trained on; the error names the place.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [31, 45, 27, 60], "sick": ["no", "yes", "no", "yes"], "site": list("abab")})
    >>> data = read(frame, target="sick", client="site")
    >>> data
    FederatedData('data': 2 clients, 4 rows (2 each), x (1,) float32, y () int32, 2 classes)
    >>> data.label_names, data.info["client_names"]
    (('no', 'yes'), ('a', 'b'))
    """
    check_choice("categorical", categorical, Categorical)
    check_choice("missing", missing, Missing)
    check_choice("test_by", test_by, By)
    target, client = column_name("target", target), column_name("client", client)
    features = column_names(features)
    check_options(clients, test, labels, size, flatten, dtype, encoding, memory_map, name)
    seed = check_seed(seed)
    as_partitioner(partition)
    if target is not None and target == client:
        raise ValueError(f"target and client are both {target!r}; give two columns")
    if memory_map or is_mapped(source):
        unfit = {"clients": clients, "test": test, "size": size}
        if used := [word for word, value in unfit.items() if value is not None]:
            raise ValueError(
                f"{used[0]}=… would bring mapped rows into memory; leave it out, and prepare the files that way"
            )
        if is_mapped(source):
            said = {"target": target, "client": client, "features": features}
            if used := [word for word, value in said.items() if value is not None]:
                raise ValueError(f"{source} is a folder of .npy files, which says {used[0]} itself; leave it out")
            return map_npy(source, name=name)
        return map_npy(_converted(source, memory_map, target, client, features, labels, dtype, encoding), name=name)
    if type(source).__name__ == "DatasetDict":
        source, test = _named_parts(source, test)
    named = features
    chosen = None if named is None or target is None else [*named, target, *([client] if client else [])]

    def table(given: Source) -> Columns:
        if _is_many(given):
            return _per_client(given, chosen, encoding, size)
        return columns(given, chosen, encoding=encoding, size=size)

    rows = table(source)
    if rows.rows == 0:
        raise DataError(f"{rows.origin} has no rows; give at least one")
    target = _target(rows, target)
    client = _client(rows, source, client, clients)
    given_test = held_columns(source) if test is None else None if isinstance(test, numbers.Real) else table(test)
    named = _features(rows, named, {target, *([client] if client else [])})
    used = [*named, target, *([client] if client else [])]
    rows = _only(rows, used, missing)
    train, owner = rows.rows, None if client is None else rows.arrays[client]
    if given_test is not None:
        rows = _with_test(rows, given_test, [*named, target], missing)
    x, titles = inputs(rows, named, categorical, dtype)
    x = x.reshape(len(x), -1) if flatten else x
    y = targets(rows.arrays[target], target, rows.origin, labels, rows.label_names.get(target))
    groups = None if owner is None or client is None else owners(owner, client, rows.origin)
    parts, who = _parts(y.y[:train], groups, clients, partition, seed)
    data = FederatedData.from_partition(
        x[:train],
        y.y[:train],
        parts,
        test=None if given_test is None else (x[train:], y.y[train:]),
        name=name or _name(source),
        num_classes=y.num_classes,
        groups=groups,
        label_names=y.label_names,
        info={"features": tuple(titles), "client_names": who, "seed": seed},
    )
    if isinstance(test, numbers.Real):
        return split(data, test=float(test), by=test_by, seed=seed).train
    return data


def _converted(
    source: Source,
    folder: bool | str | os.PathLike[str],
    target: str | None,
    client: str | None,
    features: Sequence[str] | None,
    labels: bool | None,
    dtype: DTypeLike,
    encoding: str,
) -> Path:
    """Write a table as a folder of .npy files; the user must name the columns and the folder."""
    if not isinstance(source, str | os.PathLike) or not Path(source).name.endswith(TABLES) or isinstance(folder, bool):
        raise ValueError(
            f"memory_map={folder!r} with {_called(source)}: give a folder with x.npy and y.npy (losac.data.write_npy "
            "makes one), or a CSV or Parquet file and memory_map=FOLDER"
        )
    if target is None or client is None:
        raise ValueError(
            f"memory_map={str(folder)!r} needs target=… and client=…, the columns with the target and the owner of "
            "each row"
        )
    return table_to_npy(
        source, folder, target=target, client=client, features=features, labels=labels, dtype=dtype, encoding=encoding
    )


def _is_many(source: Source) -> bool:
    """Whether a source is a list of sources, or a mapping from names to them: one per client."""
    if isinstance(source, Mapping):
        return bool(source) and not all(isinstance(v, list) or hasattr(v, "dtype") for v in source.values())
    return isinstance(source, list)


def _per_client(source: Any, chosen: Sequence[str] | None, encoding: str, size: tuple[int, int] | None) -> Columns:
    pairs = list(source.items()) if isinstance(source, Mapping) else list(enumerate(source))
    if not pairs:
        raise DataError("no clients were given; give at least one source")
    tables = []
    wanted = None if chosen is None else [c for c in chosen if c != _OWNER]
    for who, one in pairs:
        table = columns(one, wanted, encoding=encoding, size=size)
        if table.rows == 0:
            raise DataError(f"client {who!r} has no rows; leave it out, or give it at least one row")
        tables.append(replace(table, origin=f"{table.origin} of client {who!r}"))
    whole = joined(tables)
    owner = np.repeat(np.arange(len(pairs)), [table.rows for table in tables])
    names = np.array([str(who) for who, _ in pairs], dtype=object)
    arrays = {name: array for name, array in whole.arrays.items() if name != _OWNER}
    owned = owner if not isinstance(source, Mapping) else names[owner]
    return Columns({**arrays, _OWNER: owned}, "the clients' data", whole.label_names)


def _named_parts(source: Any, test: Any) -> tuple[Any, Any]:
    """Return the training and the test part of a Hugging Face `DatasetDict`."""
    if "train" not in source:
        raise DataError(f"the DatasetDict has the parts {', '.join(source)} and no 'train'; give one, as dataset[…]")
    return source["train"], source["test"] if test is None and "test" in source else test


def _target(rows: Columns, target: str | None) -> str:
    if target is not None:
        return rows.find(target, "the target")
    if "y" in rows.arrays:
        return "y"
    raise ValueError(f"name the column to predict: target=…; {rows.origin} has {_some(rows)}")


def _client(rows: Columns, source: Source, client: str | None, clients: int | None) -> str | None:
    if _is_many(source):
        if client is not None or clients is not None:
            raise ValueError("each source is one client already; leave client and clients out")
        return _OWNER
    if client is not None:
        return rows.find(client, "the clients")
    if clients is not None:
        return None
    if isinstance(source, str | os.PathLike) and _OWNER in rows.arrays:
        path = Path(source).expanduser()
        if path.is_dir() or has_clients(path):
            return _OWNER
    raise ValueError(
        f"name the owners of the rows: client=COLUMN, or clients=N to share them out; {rows.origin} has {_some(rows)}"
    )


def _features(rows: Columns, named: list[str] | None, taken: set[str]) -> list[str]:
    if named is not None:
        for column in named:
            rows.find(column, "the inputs")
            if column in taken:
                raise ValueError(f"column {column!r} is the target or the client, and cannot be an input as well")
        return named
    if "x" in rows.arrays and rows.arrays["x"].ndim > 1:
        return ["x"]
    left = [column for column in rows.arrays if column not in taken]
    if not left:
        raise DataError(f"{rows.origin} has no column left for the inputs, only {', '.join(sorted(taken))}")
    return left


def _only(rows: Columns, used: Sequence[str], missing: Missing) -> Columns:
    """Return the used columns, without incomplete rows if those should be dropped."""
    if rows.rows == 0:
        raise DataError(f"{rows.origin} has no rows; give at least one")
    kept = keep_complete(rows, used, missing)
    whole = len(kept) == rows.rows
    return replace(rows, arrays={c: rows.arrays[c] if whole else rows.arrays[c][kept] for c in used})


def _with_test(rows: Columns, test: Columns, used: Sequence[str], missing: Missing) -> Columns:
    """Put the rows of the test part below the clients', to encode both in the same way."""
    for column in used:
        test.find(column, "what the clients' rows have")
    return joined([replace(rows, arrays={c: rows.arrays[c] for c in used}), _only(test, used, missing)])


def _parts(
    y: NDArray[Any], groups: NDArray[Any] | None, clients: int | None, partition: str | Partitioner, seed: int
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Return the rows of each client, and the clients' names."""
    if groups is None:
        dealt = deal(y, clients, partition, _random.partition_generator(seed))
        return list(dealt), tuple(map(str, range(len(dealt))))
    names, owner, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if not isinstance(partition, str) or partition not in ("iid", "group"):
        raise ValueError(
            f"a client column already names the owners of the rows, so partition={partition!r} has no meaning; "
            "leave one out"
        )
    if clients not in (None, len(names)):
        raise ValueError(f"clients={clients}, but the client column has {len(names)} values; leave clients out")
    parts = np.split(np.argsort(owner, kind="stable"), np.cumsum(sizes)[:-1])
    return list(parts), tuple(str(n) for n in names.tolist())


def _some(rows: Columns) -> str:
    names = list(rows.arrays)
    return f"the columns {', '.join(names[:8])}" + (f", … ({len(names)} in all)" if len(names) > 8 else "")


def _called(source: Source) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"a {type(source).__name__}"


def _name(source: Source) -> str:
    return Path(source).name.partition(".")[0] if isinstance(source, str | os.PathLike) else "data"
