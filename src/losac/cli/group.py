"""What the groups of commands have in common: one line for every error, and the nearest name for a typo."""

from __future__ import annotations

import difflib
from typing import Any

import click
from typer.core import TyperGroup

from losac.cli.bash import mend_bash
from losac.cli.errors import one_line_errors


class Commands(TyperGroup):
    """A group whose commands end in an exit code and at most one line of complaint, whatever happens in them."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line, or complete it."""
        mend_bash()
        return super().main(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with one_line_errors():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; say which was probably meant, or which there are."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, known, n=1)
            way_out = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
            ctx.fail(f"No command {name!r}. {way_out}")
        return super().resolve_command(ctx, args)
