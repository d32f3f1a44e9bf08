"""What commands print, and the names and sizes in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from losac._files import write_whole
from losac.cli.errors import say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from losac.history import History

_WIDTH_OF_FILES = 130


PICTURE_CREATOR = "losac data show"
NOTHING_SAVED = "Nothing was saved; --out DIR saves the runs, tables and figures."
_MADE = (b'name="generator" content="losac', PICTURE_CREATOR.encode(), b"losac attack algebra", b"/Creator (losac ")
"""What is in the pages and pictures that commands make."""


def check_replaceable(path: Path, overwrite: bool) -> None:
    """Refuse to replace a folder, or a file that losac has not made, unless it was asked to."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file")
    if path.is_file() and not overwrite and not is_made_here(path):
        raise ValueError(f"{path} is there and was not made by losac; give another file, or --overwrite to replace it")


def is_made_here(path: Path) -> bool:
    """Whether a file is a page or a picture that a command has made."""
    return path.is_file() and any(mark in path.read_bytes() for mark in _MADE)


@dataclass(frozen=True)
class Answer:
    """The answer of a command: as data, in words, and in brief. The user decides which of them is printed.

    Args:
      data: for ``--json``; a function if it takes time to make.
      text: for people: lines, or a function that prints.
      brief: the lines of ``--quiet``; None stands for the paths.
      paths: of what was written, printed below the text.
      hint: a line on stderr, for people.
      complaints: lines on stderr, however the rest is printed.
      code: the exit code.
    """

    data: Any
    text: str | Callable[[], None] = ""
    brief: Iterable[object] | None = None
    paths: Sequence[Path] = ()
    hint: str = ""
    complaints: Sequence[str] = ()
    code: int = 0


def show(answer: Answer, *, json: bool, quiet: bool) -> None:
    """Print a command's answer in the chosen form; all commands print with this function."""
    if json:
        print_json(answer.data() if callable(answer.data) else answer.data)
    elif quiet:
        _print_lines(answer.paths if answer.brief is None else answer.brief)
    else:
        if callable(answer.text):
            answer.text()
        elif answer.text:
            typer.echo(answer.text)
        _print_lines(answer.paths)
        if answer.hint:
            say(answer.hint)
    for line in answer.complaints:
        say(line)
    if answer.code:
        raise typer.Exit(answer.code)


def _print_lines(lines: Iterable[object]) -> None:
    for line in lines:
        typer.echo(str(line))


def slug(label: str) -> str:
    """Return a label as part of a file name.

    >>> slug("scaffold server_step=5")
    'scaffold-server_step-5'
    """
    return re.sub(r"[^A-Za-z0-9_.]+", "-", label).strip("-")


def save_config(config: Mapping[str, Any], path: Path) -> Path:
    """Write the configuration, with the versions that it ran with."""
    import platform
    from importlib.metadata import version

    versions = {"losac": version("losac"), "jax": version("jax"), "python": platform.python_version()}
    write_whole(path, to_json({**config, "versions": versions}) + "\n")
    return path


def to_json(value: Any) -> str:
    """Return JSON; what is not a finite number becomes null, as the format demands."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout: all that a command with ``--json`` says."""
    typer.echo(to_json(value))


def summary(history: History) -> dict[str, Any]:
    """Return what a run reached and cost, for ``--json``; a diverged one reached nothing."""
    finished = history.diverged is None
    return {
        "algorithm": history.algorithm,
        "settings": {k: v for k, v in history.settings.items() if v not in (None, ())},
        "seed": history.seed,
        "rounds": int(history.rounds[-1]),
        "diverged": history.diverged,
        "final": {name: history.final(name) if finished else None for name in history.metrics},
        **{name: series[-1].item() for name, series in history.costs.items()},
        "seconds": float(history.seconds[-1]),
    }


def wide_console() -> Console:
    """Return the console of stdout, with room for a table if it is a file or a pipe, which has no width."""
    from rich.console import Console

    class Printed(Console):
        def on_broken_pipe(self) -> None:
            """Leave a closed pipe to the one place that ends all commands."""
            raise

    console = Printed()
    return console if console.is_terminal else Printed(width=_WIDTH_OF_FILES)


def new_table(*heads: str, title: str | None = None, **look: Any) -> Table:
    """Return an empty table in the look of all tables."""
    from rich import box
    from rich.table import Table

    usual: dict[str, Any] = {"box": box.SIMPLE_HEAD, "title_justify": "left"}
    return Table(*heads, title=title, **usual | look)


def print_table(table: Table, expendable: Sequence[str] = ()) -> None:
    """Print a table with nothing cut off, even if the terminal is too narrow for it.

    It is transposed if that helps; else the expendable columns are left out, with a note, and then cells are broken
    into lines.
    """
    console = wide_console()
    left_out = []
    if not _fits(table, console):
        turned = _turned(table)
        table = turned if _fits(turned, console) else table
    for head in expendable:
        if not _fits(table, console):
            table.columns = [column for column in table.columns if column.header != head]
            left_out.append(head)
    if not _fits(table, console):
        for column in table.columns[1:]:
            column.no_wrap, column.overflow = False, "fold"
    console.print(table)
    if left_out:
        say(f"Left out in this narrow terminal: {', '.join(left_out)}; --json prints everything.")


def _fits(table: Table, console: Console) -> bool:
    from rich.measure import Measurement

    without_edge = console.options.update(max_width=10_000)
    return Measurement.get(console, without_edge, table).maximum <= console.width


def _turned(table: Table) -> Table:
    """Return a table with the columns of another as its rows."""
    from rich.table import Table

    turned = Table(
        box=table.box, title=table.title, title_justify=table.title_justify, title_style=table.title_style,
        pad_edge=table.pad_edge,
    )  # fmt: skip
    first, *others = table.columns
    for head in (first.header, *first.cells):
        turned.add_column(head, justify="right" if turned.columns else "left")
    for column in others:
        turned.add_row(column.header, *column.cells)
    return turned


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return getattr(value, "__name__", str(value))
