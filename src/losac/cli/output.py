"""The folder of results: where it is, and what is written into it."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from losac.cli.errors import say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from losac.history import History

_WIDTH_OF_FILES = 130
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
RESULTS = (
    "history.npz", "metrics.csv", "metrics.parquet", "experiment.toml", "run.json", "clients.json", "log.txt",
    "checkpoints", "runs/*-seed*", "report.html", "comparison.csv", "comparison.png", "partition.png", "config.json",
    "audit.json", "pictures.png", "trials.csv", "tuning.png", "tuning.svg", "best.toml",
)  # fmt: skip
"""All that the commands write, as patterns."""


def check_folder(out: Path | None, *, overwrite: bool) -> None:
    """Refuse a folder that cannot take results, before anything is computed."""
    if out is None or not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"--out {out} is a file; give a folder")
    if any(out.iterdir()) and not overwrite:
        raise ValueError(f"--out {out} is not empty; give another folder, or --overwrite to replace its results")


def fresh_folder(out: Path) -> Path:
    """Make the folder, and take away what an earlier command left in it."""
    out.mkdir(parents=True, exist_ok=True)
    for pattern in RESULTS:
        for old in out.glob(pattern):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    return out


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
    path.write_text(to_json({**config, "versions": versions}) + "\n", encoding="utf-8")
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
        "bytes_up": int(history.bytes_up[-1]),
        "bytes_down": int(history.bytes_down[-1]),
        "gradients": float(history.gradients[-1]),
        "seconds": float(history.seconds[-1]),
    }


def wide_console() -> Console:
    """Return the console of stdout, with room for a table where it is a file or a pipe and so has no width."""
    from rich.console import Console

    class Printed(Console):
        def on_broken_pipe(self) -> None:
            """Leave a closed pipe to the one place that ends all commands."""
            raise

    console = Printed()
    return console if console.is_terminal else Printed(width=_WIDTH_OF_FILES)


def print_table(table: Table, expendable: Sequence[str] = ()) -> None:
    """Print a table so that nothing in it is cut off where the terminal is too narrow for it.

    It is turned on its side where that helps; else the expendable columns are left out, which is said, and then cells
    are broken into lines.
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
    """Return a table whose rows are the columns of another."""
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


def human_bytes(count: float) -> str:
    """Return a number of bytes in the unit that suits it, of 1,000 each.

    >>> human_bytes(640), human_bytes(53_210), human_bytes(2.5e9)
    ('640 B', '53.2 KB', '2.5 GB')
    """
    power = min(int(math.log10(count) / 3) if count >= 1 else 0, len(_UNITS) - 1)
    return f"{count / 1000**power:.3g} {_UNITS[power]}"


def human_seconds(seconds: float) -> str:
    """Return a time as people say it.

    >>> human_seconds(8.4), human_seconds(200), human_seconds(8000)
    ('8 s', '3 min 20 s', '2 h 13 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def print_paths(paths: Sequence[Path], *, hint: bool) -> None:
    """Print the paths, one on a line; with a hint, say how to have some."""
    for path in paths:
        typer.echo(str(path))
    if hint:
        say("Nothing was saved; --out DIR saves the runs, tables and figures.")


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
