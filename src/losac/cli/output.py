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

    from losac.history import History

_WIDTH_OF_FILES = 130
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

    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH_OF_FILES)


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
