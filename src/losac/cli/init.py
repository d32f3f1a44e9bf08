"""``losac init`` and ``losac schema``: an experiment file to start from, and the schema of such files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from losac._claim import RUN_FILES
from losac._files import is_locked, write_whole
from losac.cli.errors import BAD_INPUT, fail, say
from losac.cli.options import Overwrite, Quiet
from losac.experiment.options import AlgorithmEntry, Data

EPILOG = """Examples:

losac init experiment.toml

losac init mnist.toml --data mnist --algorithm scaffold"""
SCHEMA_EPILOG = """Examples:

losac schema > experiment.schema.json"""


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
    data: Data = "digits",
    algorithm: AlgorithmEntry = "losac",
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented experiment that is ready to run."""
    if path.exists() and not overwrite:
        fail(f"{path} is there already; give another name, or --overwrite", BAD_INPUT)
    if path.name in RUN_FILES and (is_locked(path.parent) or (path.parent / "run.json").exists()):
        where = path.parent
        fail(
            f"{path} belongs to the run in {where}, which could not be resumed without it; give another name", BAD_INPUT
        )
    from losac.experiment.template import experiment_text

    text = experiment_text(path, data, algorithm)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    typer.echo(str(path))
    if not quiet:
        say(f"Run it with: losac run {path} --out runs/{path.stem}")


def schema() -> None:
    """Print the JSON schema of an experiment's file, for editors and for other programs."""
    from losac.cli.output import to_json
    from losac.experiment.schema import file_schema

    typer.echo(to_json(file_schema()))
