"""``losac``: the application with all commands."""

from __future__ import annotations

from typing import Annotated

import typer

from losac import __version__
from losac.cli import (
    algorithms,
    attack,
    bench,
    board,
    compare,
    data,
    deploy,
    export,
    init,
    peers,
    plugins,
    report,
    run,
    tune,
)
from losac.cli.errors import EXIT_CODES
from losac.cli.group import App

_ENVIRONMENT = {
    "LOSAC_DATA_DIR": "a folder with data sets as NAME.npz",
    "LOSAC_CACHE": "where downloads are kept",
    "LOSAC_DEBUG=1": "show the traceback of an error above its line",
    "NO_COLOR=1": "print without colours",
}
_EPILOG = "\n\n".join(
    [
        "Example: [bold]losac compare --out demo[/bold], and then open demo/report.html.",
        "",
        "[bold]Exit codes[/bold]",
        *(f"{code}: {meaning}" for code, meaning in EXIT_CODES.items()),
        "",
        "[bold]Environment[/bold]",
        *(f"{name}: {meaning}" for name, meaning in _ENVIRONMENT.items()),
    ]
)

app = App(
    name="losac",
    help="Federated optimisation, compared honestly: LoSAC, SCAFFOLD and their rivals.",
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    epilog=_EPILOG,
)
_PATHS = "the paths of the results"
app.command("init", epilog=init.EPILOG)(init.init)
app.command("run", epilog=run.EPILOG, quiet=_PATHS)(run.run)
app.command("compare", epilog=compare.EPILOG, quiet=_PATHS)(compare.compare)
app.command("report", epilog=report.EPILOG, quiet="the path of the page")(report.report)
app.command("export", epilog=export.EPILOG, quiet="the path of the file")(export.export)
app.command("board", epilog=board.EPILOG)(board.board)
app.command("tune", epilog=tune.EPILOG, quiet=_PATHS)(tune.tune)
plugins.add_command(app, "reproduce")
app.command("algorithms", epilog=algorithms.EPILOG, quiet="the names")(algorithms.algorithms)
app.command("schema", epilog=init.SCHEMA_EPILOG)(init.schema)
plugins.add_command(attack.app, "attack.report")
app.add_typer(attack.app, name="attack")
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
deploy.app.command("identity", epilog=peers.IDENTITY_EPILOG, quiet="the key")(peers.identity)
deploy.app.command("peers", epilog=peers.PEERS_EPILOG, quiet="the paths of the lists")(peers.peers)
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
    app(prog_name="losac")
