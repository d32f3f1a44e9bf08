"""`load`: a data set by name, split among clients."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from losac import _random
from losac._seeds import check_seed
from losac.data import synthetic, tables
from losac.data.federated import FederatedData
from losac.data.names import look_up, nearest
from losac.data.partition import Partitioner, as_partitioner, by_group, deal
from losac.data.sets import SETS
from losac.data.sets.kept import KeptSet, find_files
from losac.data.sources import SOURCES
from losac.data.store import find_arrays
from losac.data.synthetic_clients import fedprox_synthetic


@dataclass(frozen=True)
class _Real:
    """Existing rows: pooled, then assigned to clients."""

    description: str
    table: Callable[..., tables.Table]
    default_clients: int = 100
    embedded: bool = False


@dataclass(frozen=True)
class _Synthetic:
    """Synthetic rows, made client by client."""

    description: str
    make: Callable[..., FederatedData]


_DATASETS: Mapping[str, _Real | KeptSet | _Synthetic] = {
    "digits": _Real("8x8 digits that come with scikit-learn; 1,438/359 rows, 10 classes", tables.digits, 20, True),
    "mnist": _Real("28x28 handwritten digits; 60,000/10,000 rows, 10 classes", tables.mnist),
    "har": _Real("smartphone motion of 30 people; 7,352/2,947 rows, 561 features, 6 classes", tables.har),
    "esr": _Real("EEG seconds, seizure or not; 9,200/2,300 rows, 178 features, 2 or 5 classes", tables.esr),
    "a9a": _Real("census income, 123 binary features; 32,561/16,281 rows, 2 classes", tables.binary),
    "w8a": _Real("web pages, 300 binary features; 49,749 rows, no test part, 2 classes", tables.binary),
    **SETS,
    "synthetic": _Synthetic(
        "FedProx's clients with models and inputs of their own; made from a seed", fedprox_synthetic
    ),
    "quadratic": _Synthetic("least squares with a known optimum; made from a seed", synthetic.quadratic),
    "lowrank": _Synthetic("the paper's low-rank matrix estimation; made from a seed", synthetic.lowrank),
    "logistic": _Synthetic("softmax data with a tunable mismatch of clients; made from a seed", synthetic.logistic),
}


def datasets() -> dict[str, str]:
    """Return the data sets that `load` knows: each name with one line about it.

    >>> datasets()["mnist"]
    '28x28 handwritten digits; 60,000/10,000 rows, 10 classes'
    """
    return {name: entry.description for name, entry in _DATASETS.items()}


def load(
    name: str,
    clients: int | None = None,
    partition: str | Partitioner = "iid",
    *,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    **options: Any,
) -> FederatedData:
    """Load a data set and split it among clients; equal arguments give equal data.

    Real files are looked for in `data_dir`, or else in the folder `LOSAC_DATA_DIR`, then in the cache
    (`LOSAC_CACHE`, or the platform's), and are downloaded if they are in neither. They are verified.

    Args:
        name: one of `datasets()`.
        clients: number of clients; by default 100 (20 for digits), or the number of groups.
        partition: iid, sorted, mixture:0.5, dirichlet:0.3, shards:2, group, or your own callable;
            synthetic data is made client by client and takes none.
        seed: fixes the held-out rows and the partition.
        data_dir: a folder with NAME.npz.
        download: whether to download missing files.
        **options: of the data set: `flatten` (pictures), `split` (emnist), `writers`, `roles`, `users` (femnist,
            shakespeare, stackoverflow: how many clients to read), `preprocessing`, `split`, `multiclass` (esr), the
            parameters of the functions in `losac.data` (synthetic).

    Raises:
        DataError: a file is missing, damaged or not the expected one.

    >>> load("digits", clients=10, partition="dirichlet:0.3").num_clients
    10
    """
    entry = look_up(name, _DATASETS, "data set")
    seed = check_seed(seed)
    if isinstance(entry, _Synthetic):
        if not isinstance(partition, str) or partition != "iid":
            raise ValueError(
                f"{name!r} is made client by client, so partition={partition!r} has no meaning; leave it out"
                " and set how the clients differ with the data set's own options"
            )
        _check_options(name, entry.make, options, hidden={"clients", "seed"})
        return entry.make(seed=seed, **({} if clients is None else {"clients": clients}), **options)
    fixed = set(entry.table.keywords) if isinstance(entry.table, partial) else set()
    _check_options(name, entry.table, options, hidden={"arrays", "files", "rng", *fixed})
    partitioner = as_partitioner(partition)
    table_of = entry.table
    if isinstance(entry, KeptSet):
        table_of = partial(table_of, find_files(entry, data_dir=data_dir, download=download))
    elif not entry.embedded:
        table_of = partial(table_of, find_arrays(SOURCES[name], data_dir=data_dir, download=download))
    table = table_of(_random.rows_generator(seed), **options)
    if isinstance(partitioner, by_group):
        if table.groups is None:
            raise ValueError(f"{name!r} has no groups, so partition 'group' cannot be used; try 'iid' or 'sorted'")
    elif clients is None:
        clients = entry.default_clients
    parts = deal(table.y, clients, partitioner, _random.partition_generator(seed), table.groups)
    return FederatedData.from_partition(
        table.x,
        table.y,
        parts,
        test=table.test,
        name=name,
        num_classes=table.num_classes,
        groups=table.groups,
        label_names=table.label_names,
        info={"partition": getattr(partitioner, "__name__", repr(partitioner)), "seed": seed},
    )


def _check_options(name: str, function: Callable[..., Any], options: Mapping[str, Any], hidden: set[str]) -> None:
    known = [option for option in inspect.signature(function).parameters if option not in hidden]
    for option in options:
        if option not in known:
            allowed = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ValueError(f"{name!r} has no option {option!r}; {allowed}.{nearest(option, known)}")
