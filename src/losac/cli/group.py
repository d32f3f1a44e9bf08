"""What all commands have in common: groups of options, checked values, one line for every error, one way to print."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import TyperPath
from typer.utils import get_params_from_function

from losac._checks import is_blank
from losac.cli import completion
from losac.cli.errors import one_line_errors
from losac.cli.options import OUTPUT, Printing
from losac.cli.output import Answer, show
from losac.experiment.fields import Option
from losac.experiment.schema import MOST

F = TypeVar("F", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command that checks all values it was given before it does anything."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        check_values(self.params, ctx.params)
        return super().invoke(ctx)


class Commands(TyperGroup):
    """A group of commands that always end in an exit code and at most one line of complaint."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line, or complete it."""
        if os.environ.get("_LOSAC_COMPLETE") == "complete_bash":
            completion.fix_bash_escapes()
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
        """Find the command; else suggest a similar one, or list all."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, known, n=1)
            way_out = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
            ctx.fail(f"No command {name!r}. {way_out}")
        return super().resolve_command(ctx, args)


class App(typer.Typer):
    """A group of commands of class :class:`Command`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Commands, no_args_is_help=True, **options)

    def command(self, name: str | None = None, *, quiet: str = "", **options: Any) -> Callable[[F], F]:
        """Add a command.

        A parameter that is a dataclass stands for one option for each of its fields. With ``quiet``, a
        description of what the command prints with ``--quiet``, it has the options of :class:`Printing`, and what it
        returns is printed.
        """
        add = super().command(name, cls=Command, **options)

        def decorate(function: F) -> F:
            add(_expanded(function, quiet))
            return function

        return decorate


def _expanded(function: Callable[..., Any], quiet: str) -> Callable[..., None]:
    """Return a function with a parameter for each option; typer reads its signature."""
    hints = get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters
    groups: dict[str, Any] = {name: hints[name] for name in own if dataclasses.is_dataclass(hints[name])}
    printing = next((name for name, kind in groups.items() if kind is Printing), "")
    asked = {} if printing or not quiet else {"printing": Printing}
    parameters = []
    for name, kind in {**{name: hints[name] for name in own}, **asked}.items():
        if name in groups or name in asked:
            shared = get_type_hints(kind, include_extras=True)
            parameters += [_keyword(f.name, f.default, shared[f.name]) for f in dataclasses.fields(kind)]
        else:
            parameters.append(_keyword(name, own[name].default, kind))
    if quiet:
        said = Annotated[bool, Option(OUTPUT, f"Print {quiet} only.", "--quiet -q")]
        parameters = [_keyword("quiet", False, said) if each.name == "quiet" else each for each in parameters]

    @functools.wraps(function)
    def expanded(**values: Any) -> None:
        made = {
            name: kind(**{f.name: values.pop(f.name) for f in dataclasses.fields(kind)})
            for name, kind in {**groups, **asked}.items()
        }
        how = made.get(printing) or made.pop("printing", None)
        answer = function(**made, **values)
        if isinstance(answer, Answer):
            show(answer, json=how.json, quiet=how.quiet)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _keyword(name: str, default: Any, kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is dataclasses.MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_as_typer(kind))


def _as_typer(kind: Any) -> Any:
    """Return a type with its :class:`Option` in typer's form."""
    option = next((mark for mark in getattr(kind, "__metadata__", ()) if isinstance(mark, Option)), None)
    if option is None:
        return kind
    options: dict[str, Any] = {
        "help": option.help,
        "rich_help_panel": option.section,
        "min": option.min,
        "max": option.max,
        "metavar": option.metavar,
        "show_default": True if option.default is None else option.default,
        "autocompletion": getattr(completion, option.complete) if isinstance(option.complete, str) else option.complete,
    }
    values = get_args(kind)[0]
    if {float, str} <= set(get_args(values)):
        values = Any
        options |= {"parser": _number_or_schedule, "metavar": "FLOAT|SCHEDULE"}
    return Annotated[values, typer.Option(*(option.name or "").split(), **options)]


def _number_or_schedule(text: Any) -> float | str:
    """Return a number, or the text of a schedule, which is read later."""
    try:
        return float(text)
    except ValueError:
        if ":" in str(text):
            return str(text)
    raise typer.BadParameter(f"{text!r} is neither a number nor a schedule, such as cosine:0.1:500.")


def given_names(context: typer.Context) -> set[str]:
    """Return the names of the options that the user gave, with any value."""
    return {name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}


def _keep_help_of_arguments(command: Any) -> None:
    """Restore the declared help of arguments: click 8.5 loses it under typer 0.20."""
    bare = [each for each in command.params if each.param_type_name == "argument" and not getattr(each, "help", None)]
    if bare and command.callback is not None:
        declared = get_params_from_function(command.callback)
        for each in bare:
            each.help = declared[str(each.name)].default.help


def check_values(parameters: Iterable[Any], values: dict[str, Any]) -> None:
    """Check what the user gave for the parameters of a command; errors call them as the user does."""
    for each in parameters:
        value = values.get(each.name)
        name = each.opts[0] if each.param_type_name == "option" else each.human_readable_name
        for one in value if isinstance(value, list | tuple) else [value]:
            check_value(one, name)
            if isinstance(each.type, TyperPath) and one is not None:
                if is_blank(one):
                    raise ValueError(f"{name} is an empty path, which would be the current folder; give . for that")
                _check_path(Path(one), name)


def check_value(value: Any, name: str) -> None:
    """Refuse a number without a size.

    >>> check_value(float("nan"), "--target")
    Traceback (most recent call last):
    ...
    ValueError: --target nan must be a finite number
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} {value} must be a finite number")
    if isinstance(value, int) and abs(value) > MOST:
        raise ValueError(f"{name} {value} is too large; the largest whole number is 2^63 - 1")


def _check_path(path: Path, name: str) -> None:
    """Refuse a pipe, a socket or a device: reading it could wait forever, and writing would replace it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{name} {path} is neither a file nor a folder, but a pipe or a device; give another path")
