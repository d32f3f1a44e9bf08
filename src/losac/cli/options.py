"""Options that several commands have, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

PROBLEM, METHOD, SIMULATION, OUTPUT = "Problem", "Algorithm", "Simulation", "Output"


def option(panel: str, help: str, *names: str, **more: Any) -> Any:
    """Return an option that is shown in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def quiet_option(what: str) -> Any:
    """Return ``--quiet`` of a command that then prints no more than ``what``."""
    return option(OUTPUT, f"Print {what} only.", "--quiet", "-q")


Json = Annotated[bool, option(OUTPUT, "Print JSON and nothing else.", "--json")]
DataDir = Annotated[
    Path | None,
    option(PROBLEM, "Folder with NAME.npz.", show_default="LOSAC_DATA_DIR, else the cache or a download"),
]
