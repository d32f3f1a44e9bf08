"""Commands that other installed packages add: ``losac reproduce`` and ``losac attack report`` are the paper's studies.

A package adds a command by an entry point of the group ``losac.commands``: its name is that of the command, with a dot
between a group and a command in it, and it refers to a function that takes the group's :class:`losac.cli.group.App`.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

import typer

from losac.cli.errors import BAD_INPUT, fail
from losac.cli.group import App

GROUP = "losac.commands"
ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@lru_cache(maxsize=1)
def installed() -> dict[str, EntryPoint]:
    """Return the commands that installed packages add, by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def add_command(app: App, name: str) -> None:
    """Add a command of the studies' package to a group; if that is not installed, one that says so."""
    if name in installed():
        installed()[name].load()(app)
        return

    @app.command(name.rpartition(".")[2], context_settings=ANYTHING)
    def missing(context: typer.Context) -> None:
        """Reproduce the paper (in a separate package, which is not installed)."""
        command = name.replace(".", " ")
        fail(
            f"losac {command} needs the package losac-reproduction, which is not part of the library: in a checkout "
            "of losac's repository run pip install ./reproduction",
            BAD_INPUT,
        )
