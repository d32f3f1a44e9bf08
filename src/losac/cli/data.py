"""``losac data``: which data sets there are, where they come from, who holds what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from losac.cli.errors import one_line_errors
from losac.cli.experiment import Experiment
from losac.cli.output import wide_console

if TYPE_CHECKING:
    from losac.data import FederatedData

app = typer.Typer(help="List, download and look at data sets.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the data sets."""
    with one_line_errors():
        from rich import box
        from rich.table import Table

        from losac.data import datasets

        table = Table("name", "what it is", "where it is", "terms", box=box.SIMPLE_HEAD)
        for name, description in datasets().items():
            table.add_row(f"[bold]{name}[/bold]", description, *_whereabouts(name))
        wide_console().print(table)


@app.command(epilog="Example: losac data download mnist")
def download(name: Annotated[str, typer.Argument(help="mnist, har, esr, a9a or w8a.")]) -> None:
    """Download a data set, check it and keep it in the cache."""
    with one_line_errors():
        from losac.data import datasets, fetch
        from losac.data.sources import SOURCES

        if name in datasets() and name not in SOURCES:
            typer.echo(f"{name} needs no download: it {_whereabouts(name)[0]}")
            return
        path = fetch(name)
        typer.echo(f"{path}\nTerms of {name}: {SOURCES[name].terms}.")


@app.command(epilog="Example: losac data show digits --clients 30 --partition dirichlet:0.3")
def show(
    name: Annotated[str, typer.Argument(help="A name of losac data list.")],
    clients: Annotated[int | None, typer.Option(help="Number of clients.", show_default="by data set")] = None,
    partition: Annotated[
        str | None,
        typer.Option(help="iid, sorted, mixture:C, dirichlet:A, shards:K or group.", show_default="by data set"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the partition.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with NAME.npz.")] = None,
    out: Annotated[Path | None, typer.Option(help="Picture to write.", show_default="NAME-partition.png")] = None,
) -> None:
    """Print sizes and labels of a data set's clients, as run and compare use them, and save a picture of that."""
    with one_line_errors():
        data = Experiment(data=name, clients=clients, partition=partition, data_dir=data_dir).load_data(seed)
        path = out or Path(f"{name}-partition.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in _summary(data):
            typer.echo(line)
        data.plot().savefig(path, dpi=150)
        typer.echo(str(path))


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
