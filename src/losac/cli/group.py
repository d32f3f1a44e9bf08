"""What the groups of commands have in common: one line for every error, and the nearest name for a typo."""

from __future__ import annotations

import difflib
import os
from typing import Any

from typer.core import TyperGroup
from typer.utils import get_params_from_function

from losac.cli.bash import mend_bash
from losac.cli.errors import one_line_errors


class Commands(TyperGroup):
    """A group whose commands end in an exit code and at most one line of complaint, whatever happens in them."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line, or complete it."""
        if os.environ.get("_LOSAC_COMPLETE") == "complete_bash":
            mend_bash()
        return super().main(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with one_line_errors():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, by its name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _keep_help_of_arguments(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command; say which was probably meant, or which there are."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, known, n=1)
            way_out = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
            ctx.fail(f"No command {name!r}. {way_out}")
        return super().resolve_command(ctx, args)


def _keep_help_of_arguments(command: Any) -> None:
    """Give arguments the help that they were declared with: click 8.5 loses it under typer 0.20."""
    bare = [each for each in command.params if each.param_type_name == "argument" and not getattr(each, "help", None)]
    if bare and command.callback is not None:
        declared = get_params_from_function(command.callback)
        for each in bare:
            each.help = declared[str(each.name)].default.help
