"""``losac data``: which data sets there are, where they come from, who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.complete import data_names, download_names, partition_names
from losac.cli.errors import say
from losac.cli.experiment import Experiment
from losac.cli.group import Commands
from losac.cli.options import OUTPUT, PROBLEM, DataDir, Json, option, quiet_option
from losac.cli.output import print_json, print_table

if TYPE_CHECKING:
    from losac.data import FederatedData, Inspection

_LIST_EPILOG = """Examples:

losac data list

losac data list --json"""
_DOWNLOAD_EPILOG = """Examples:

losac data download mnist

losac data download har --quiet"""
_SHOW_EPILOG = """Examples:

losac data show digits

losac data show digits --clients 30 --partition dirichlet:0.3 --out dirichlet.png"""
_INSPECT_EPILOG = """Examples:

losac data inspect patients.csv --target sick --client hospital

losac data inspect pictures --json"""
_MOST_SHOWN = 20

app = typer.Typer(cls=Commands, help="List, download and look at data sets.", no_args_is_help=True)


@app.command("list", epilog=_LIST_EPILOG)
def list_(json: Json = False, quiet: Annotated[bool, quiet_option("the names")] = False) -> None:
    """List the data sets, where each is to be had and what its authors ask."""
    from losac.data import datasets

    rows = [(name, description, *_whereabouts(name)) for name, description in datasets().items()]
    if json:
        print_json([dict(zip(("name", "description", "where", "terms"), row)) for row in rows])
        return
    if quiet:
        typer.echo("\n".join(row[0] for row in rows))
        return
    from rich import box
    from rich.table import Table

    table = Table("name", "what it is", "where it is", "terms", box=box.SIMPLE_HEAD)
    for name, *words in rows:
        table.add_row(f"[bold]{name}[/bold]", *words)
    print_table(table)


@app.command(epilog=_DOWNLOAD_EPILOG)
def download(
    name: Annotated[str, typer.Argument(help="Data set: mnist, har, esr, a9a or w8a.", autocompletion=download_names)],
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the path of the file")] = False,
) -> None:
    """Download a data set, check it and keep it in the cache."""
    from losac.data import datasets, fetch
    from losac.data.names import look_up
    from losac.data.sources import SOURCES

    look_up(name, datasets(), "data set")
    if name not in SOURCES:
        where = _whereabouts(name)[0]
        if json:
            print_json({"name": name, "path": None, "terms": None, "where": where})
        else:
            say(f"{name} needs no download: it {where}")
        return
    path = fetch(name, progress=not (json or quiet))
    terms = SOURCES[name].terms
    if json:
        print_json({"name": name, "path": str(path), "terms": terms, "where": "in the cache"})
        return
    typer.echo(str(path))
    if not quiet:
        say(f"Terms of {name}: {terms}.")


@app.command(epilog=_SHOW_EPILOG)
def show(
    name: Annotated[str, typer.Argument(help="Data set; see losac data list.", autocompletion=data_names)],
    clients: Annotated[
        int | None, option(PROBLEM, "N, the number of clients.", min=1, show_default="by data set")
    ] = None,
    partition: Annotated[
        str | None,
        option(
            PROBLEM,
            "iid, sorted, mixture:C, dirichlet:A, shards:K or group.",
            show_default="by data set",
            autocompletion=partition_names,
        ),
    ] = None,
    seed: Annotated[int, option(PROBLEM, "Of the partition.", min=0)] = 0,
    data_dir: DataDir = None,
    out: Annotated[Path | None, option(OUTPUT, "Picture to write.", show_default="NAME-partition.png")] = None,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the path of the picture")] = False,
) -> None:
    """Print sizes and labels of a data set's clients, as run and compare use them, and save a picture of that."""
    data = Experiment(data=name, clients=clients, partition=partition, data_dir=data_dir).load_data(seed)
    path = out or Path(f"{name}-partition.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    data.plot().savefig(path, dpi=150)
    if json:
        print_json({**_facts(data), "seed": seed, "files": [str(path)]})
        return
    if not quiet:
        for line in _summary(data):
            typer.echo(line)
    typer.echo(str(path))


@app.command(epilog=_INSPECT_EPILOG)
def inspect(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet or NPZ file, or a folder of images.")],
    target: Annotated[str | None, option(PROBLEM, "Column to predict.", show_default="y")] = None,
    client: Annotated[str | None, option(PROBLEM, "Column that says whose a row is.", show_default="client")] = None,
    encoding: Annotated[str, option(PROBLEM, "Of a CSV file.")] = "utf-8",
    json: Json = False,
    quiet: Annotated[bool, quiet_option("what will go wrong")] = False,
) -> None:
    """Look at your own data: columns, clients and labels, and what will go wrong."""
    from losac.data import inspect as look

    found = look(file, target=target, client=client, encoding=encoding)
    if json:
        print_json(_inspection_facts(found))
        return
    if not quiet:
        _print_inspection(found)
    for problem in found.problems:
        typer.echo(f"{problem.kind}: {problem.text}")
    if not found.problems and not quiet:
        typer.echo("nothing that would go wrong")


def _inspection_facts(found: Inspection) -> dict[str, Any]:
    """Return what was found, as data."""
    return {
        "source": found.origin,
        "rows": found.rows,
        "target": found.target,
        "client": found.client,
        "columns": [
            {
                "name": c.name,
                "dtype": c.dtype,
                "shape": list(c.shape),
                "missing": c.missing,
                "distinct": c.distinct,
                "constant": c.constant,
            }
            for c in found.columns
        ],
        "clients": found.clients,
        "labels": None if found.labels is None else list(found.labels),
        "label_counts": None if found.label_counts is None else found.label_counts.tolist(),
        "problems": [{"kind": problem.kind, "text": problem.text} for problem in found.problems],
    }


def _print_inspection(found: Inspection) -> None:
    """Print the columns, and the clients with their labels; of many only the first."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    typer.echo(f"{found.origin}: {found.rows:,} rows, {len(found.columns):,} columns, {len(found.clients):,} clients")
    table = Table("column", "dtype", "missing", "different", "used as", box=box.SIMPLE_HEAD)
    roles = {found.target: "target", found.client: "client"}
    for c in found.columns[:_MOST_SHOWN]:
        dtype = c.dtype + (f" {c.shape}" if c.shape else "")
        different = "" if c.distinct is None else f"{c.distinct:,}"
        role = roles.get(c.name, "constant" if c.constant else "input")
        table.add_row(escape(c.name), dtype, f"{c.missing:,}", different, role)
    print_table(table)
    labels = () if found.labels is None else found.labels[:_MOST_SHOWN]
    table = Table("client", "rows", *map(escape, labels), box=box.SIMPLE_HEAD)
    for at, (name, size) in enumerate(list(found.clients.items())[:_MOST_SHOWN]):
        held = () if found.label_counts is None else found.label_counts[at, : len(labels)]
        table.add_row(escape(name), f"{size:,}", *(f"{count:,}" for count in held))
    print_table(table)
    shown = {"columns": len(found.columns), "clients": len(found.clients), "labels": len(found.labels or ())}
    for what, count in shown.items():
        if count > _MOST_SHOWN:
            say(f"The first {_MOST_SHOWN} of {count:,} {what} are shown; --json prints all.")


def _whereabouts(name: str) -> tuple[str, str]:
    """Return where a data set is to be had, and what its authors ask."""
    from losac._folders import cache_dir
    from losac.data.files import given_dir
    from losac.data.sources import SOURCES

    if name == "digits":
        return "comes with scikit-learn", "BSD"
    if name not in SOURCES:
        return "is made from a seed", ""
    given = given_dir(None)
    if given is not None and (given[0] / f"{name}.npz").exists():
        return "in LOSAC_DATA_DIR", SOURCES[name].terms
    if (cache_dir() / f"{name}.npz").exists():
        return "in the cache", SOURCES[name].terms
    return f"losac data download {name}", SOURCES[name].terms


def _facts(data: FederatedData) -> dict[str, Any]:
    """Return who holds what, as data."""
    labelled = data.num_classes is not None
    names = data.label_names or tuple(map(str, range(data.num_classes or 0)))
    return {
        "name": data.name,
        "rows": len(data),
        "shape": list(data.x.shape[1:]),
        "test_rows": None if data.test is None else len(data.test[0]),
        "clients": data.num_clients,
        "rows_per_client": data.sizes.tolist(),
        "labels": list(names) if labelled else None,
        "label_counts": data.label_counts().tolist() if labelled else None,
    }


def _summary(data: FederatedData) -> list[str]:
    import numpy as np

    sizes = data.sizes
    lines = [
        f"{data.name}: {len(data):,} rows of shape {data.x.shape[1:]} at {data.num_clients:,} clients",
        f"rows per client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
    ]
    if data.test is not None:
        lines.append(f"test: {len(data.test[0]):,} rows")
    if data.num_classes is not None:
        counts = data.label_counts()
        names = data.label_names or tuple(map(str, range(data.num_classes)))
        held = (counts > 0).sum(axis=1)
        lines.append("rows per label: " + ", ".join(f"{n} {c:,}" for n, c in zip(names, counts.sum(axis=0))))
        lines.append(f"labels per client: {held.min()} to {held.max()}, {held.mean():.1f} on average")
    return lines
