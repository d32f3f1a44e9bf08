"""``losac data``: the data sets, where they come from, and how many rows each client holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac._files import write_picture
from losac._own import is_own
from losac._seeds import MOST
from losac.cli import completion
from losac.cli.errors import say
from losac.cli.group import App
from losac.cli.options import OUTPUT, Overwrite, Printing
from losac.cli.output import PICTURE_CREATOR, Answer, check_replaceable, new_table, print_table, slug
from losac.experiment.fields import PROBLEM, Option
from losac.experiment.options import Client, Clients, DataDir, Label, Partition, ProblemOptions

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

app = App(help="List, download and look at data sets.")


@app.command("list", epilog=_LIST_EPILOG, quiet="the names")
def list_() -> Answer:
    """List the data sets, where to get each and what its authors ask."""
    from losac.data import datasets

    rows = [(name, description, *_whereabouts(name)) for name, description in datasets().items()]

    def text() -> None:
        table = new_table("name", "what it is", "where it is", "terms")
        for name, *words in rows:
            table.add_row(f"[bold]{name}[/bold]", *words)
        print_table(table)

    data = [dict(zip(("name", "description", "where", "terms"), row)) for row in rows]
    return Answer(data, text, brief=[row[0] for row in rows])


@app.command(epilog=_DOWNLOAD_EPILOG, quiet="the path of the file")
def download(
    name: Annotated[
        str, typer.Argument(help="Data set; see losac data list.", autocompletion=completion.download_names)
    ],
    printing: Printing,
) -> Answer:
    """Download a data set, check it and keep it in the cache."""
    from losac.data import datasets, fetch
    from losac.data.names import look_up
    from losac.data.sets import SETS
    from losac.data.sources import SOURCES

    look_up(name, datasets(), "data set")
    told: dict[str, Any] = {"name": name, "path": None, "terms": None}
    if name not in SOURCES and name not in SETS:
        where = _whereabouts(name)[0]
        said = [] if printing.json else [f"{name} needs no download: it {where}"]
        return Answer({**told, "where": where}, complaints=said)
    path = fetch(name, progress=printing.verbose)
    terms = (SOURCES[name] if name in SOURCES else SETS[name]).terms
    told |= {"path": str(path), "terms": terms, "where": "in the cache"}
    return Answer(told, paths=[path], hint=f"Terms of {name}: {terms}.")


@app.command(epilog=_SHOW_EPILOG, quiet="the path of the picture")
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Data set (see losac data list), your file or folder, or your function as FILE.py:NAME.",
            autocompletion=completion.data_names,
        ),
    ],
    clients: Clients = None,
    partition: Partition = None,
    label: Label = None,
    client: Client = None,
    seed: Annotated[int, Option(PROBLEM, "Of the partition.", min=0, max=MOST)] = 0,
    data_dir: DataDir = None,
    out: Annotated[Path | None, Option(OUTPUT, "Picture to write.", default="NAME-partition.png")] = None,
    overwrite: Overwrite = False,
) -> Answer:
    """Print sizes and labels of a data set's clients, as run and compare use them, and save a picture of that."""
    problem = ProblemOptions(
        data=name, clients=clients, partition=partition, data_dir=data_dir, label=label, client=client
    )
    stem = slug(name.rpartition("/")[2]) if problem.is_of_user else name
    path = out or Path(f"{stem}-partition.png")
    if path.is_dir() or not path.suffix:
        raise ValueError(f"--out {path} must be a file that ends in .png, .svg or .pdf")
    check_replaceable(path, overwrite)
    data = problem.load_data(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_picture(data.plot(), path, dpi=150, metadata=_metadata(path))
    return Answer({**_facts(data), "seed": seed, "files": [str(path)]}, "\n".join(_summary(data)), paths=[path])


def _metadata(path: Path) -> dict[str, str] | None:
    """Return what says in a picture that losac has made it."""
    names = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}
    return {names[path.suffix.lower()]: PICTURE_CREATOR} if path.suffix.lower() in names else None


@app.command(epilog=_INSPECT_EPILOG, quiet="what will go wrong")
def inspect(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet or NPZ file, or a folder of images.")],
    target: Annotated[str | None, Option(PROBLEM, "Column to predict.", default="y")] = None,
    client: Annotated[str | None, Option(PROBLEM, "Column with the client of each row.", default="client")] = None,
    encoding: Annotated[str, Option(PROBLEM, "Encoding of a CSV file.")] = "utf-8",
) -> Answer:
    """Look at your own data: columns, clients and labels, and what will go wrong."""
    from losac.data import inspect as look

    if is_own(str(file)):
        raise ValueError(f"{file} is a function, and inspect looks at files; losac data show {file} shows its clients")
    found = look(file, target=target, client=client, encoding=encoding)
    problems = [f"{problem.kind}: {problem.text}" for problem in found.problems]

    def text() -> None:
        _print_inspection(found)
        typer.echo("\n".join(problems or ["nothing that would go wrong"]))

    return Answer(lambda: _inspection_facts(found), text, brief=problems)


def _inspection_facts(found: Inspection) -> dict[str, Any]:
    """Return what was found, as data."""
    return {
        "source": found.origin,
        "rows": found.rows,
        "target": found.target,
        "client": found.client,
        "columns": [
            {name: getattr(each, name) for name in ("name", "dtype", "shape", "missing", "distinct", "constant")}
            for each in found.columns
        ],
        "clients": found.clients,
        "labels": None if found.labels is None else list(found.labels),
        "label_counts": None if found.label_counts is None else found.label_counts.tolist(),
        "problems": [{"kind": problem.kind, "text": problem.text} for problem in found.problems],
    }


def _print_inspection(found: Inspection) -> None:
    """Print the columns, and the clients with their labels; only the first ones if there are many."""
    from rich.markup import escape

    typer.echo(f"{found.origin}: {found.rows:,} rows, {len(found.columns):,} columns, {len(found.clients):,} clients")
    table = new_table("column", "dtype", "missing", "different", "used as")
    roles = {found.target: "target", found.client: "client"}
    for c in found.columns[:_MOST_SHOWN]:
        dtype = c.dtype + (f" {c.shape}" if c.shape else "")
        different = "" if c.distinct is None else f"{c.distinct:,}"
        role = roles.get(c.name, "constant" if c.constant else "input")
        table.add_row(escape(c.name), dtype, f"{c.missing:,}", different, role)
    print_table(table)
    labels = () if found.labels is None else found.labels[:_MOST_SHOWN]
    table = new_table("client", "rows", *map(escape, labels))
    for at, (name, size) in enumerate(list(found.clients.items())[:_MOST_SHOWN]):
        held = () if found.label_counts is None else found.label_counts[at, : len(labels)]
        table.add_row(escape(name), f"{size:,}", *(f"{count:,}" for count in held))
    print_table(table)
    shown = {"columns": len(found.columns), "clients": len(found.clients), "labels": len(found.labels or ())}
    for what, count in shown.items():
        if count > _MOST_SHOWN:
            say(f"The first {_MOST_SHOWN} of {count:,} {what} are shown; --json prints all.")


def _whereabouts(name: str) -> tuple[str, str]:
    """Return where to get a data set, and what its authors ask."""
    from losac._folders import cache_dir
    from losac.data.files import given_dir
    from losac.data.sets import SETS
    from losac.data.sources import SOURCES

    if name == "digits":
        return "comes with scikit-learn", "BSD"
    if name not in SOURCES and name not in SETS:
        return "is made from a seed", ""
    terms = (SOURCES[name] if name in SOURCES else SETS[name]).terms
    files = [file.name for file in SETS[name].files] if name in SETS else [f"{name}.npz"]
    given, cached = given_dir(None), cache_dir() / name if name in SETS else cache_dir()
    if given is not None:
        for folder in (given[0] / name, given[0]):
            if all((folder / file).exists() for file in files):
                return "in LOSAC_DATA_DIR", terms
    if all((cached / file).exists() for file in files):
        return "in the cache", terms
    return f"losac data download {name}", terms


def _facts(data: FederatedData) -> dict[str, Any]:
    """Return how many rows each client holds, as data."""
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
