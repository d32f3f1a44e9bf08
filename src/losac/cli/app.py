"""``losac``: the commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from losac import __version__
from losac.cli import algorithms, attack, compare, data, deploy, init, reproduce, run, schema, tune

app = typer.Typer(
    name="losac",
    help="Federated optimisation, compared honestly: LoSAC, SCAFFOLD and their rivals.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    epilog="Start with [bold]losac compare --out demo[/bold] and open demo/report.html.",
)
app.command("init", epilog=init.EPILOG)(init.init)
app.command("run", epilog=run.EPILOG)(run.run)
app.command("compare", epilog=compare.EPILOG)(compare.compare)
app.command("tune", epilog=tune.EPILOG)(tune.tune)
app.command("reproduce", epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command("algorithms", epilog=algorithms.EPILOG)(algorithms.algorithms)
app.command("schema", epilog=schema.EPILOG)(schema.schema)
app.add_typer(attack.app, name="attack")
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Federated optimisation, compared honestly: LoSAC, SCAFFOLD and their rivals."""


def main() -> None:
    """Run the command line."""
    app()
