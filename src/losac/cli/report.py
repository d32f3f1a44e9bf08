"""``losac report``: one page of run folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from losac.cli.options import Overwrite
from losac.cli.output import Answer, check_replaceable, summary

if TYPE_CHECKING:
    from losac.runs import Run

EPILOG = """Examples:

losac report runs/first

losac report runs/compared runs/first --target 0.9 --out comparison.html

losac report runs/compared --out table.tex"""

_TABLES = (".md", ".tex", ".csv")


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders that hold runs.")],
    out: Annotated[
        Path, typer.Option(help="Page to write, or a folder for report.html, or a table: a file .md, .tex or .csv.")
    ] = Path("report.html"),
    target: Annotated[
        float | None,
        typer.Option(
            help="Accuracy to report the first round of; readers can change it.",
            show_default="that of the runs, or one that all reached",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default="by what ran")] = None,
    overwrite: Overwrite = False,
) -> Answer:
    """Make one HTML page of runs, finished or not: curves, tables, clients, configuration, how to cite; or a table."""
    path = _page_path(out)
    check_replaceable(path, overwrite)
    runs = _find(folders)
    page = _write(runs, path, target, title)
    unfinished = [f"{run.name} ({run.status})" for run in runs if run.status != "finished"]
    if unfinished:
        hint = f"losac: {len(unfinished)} of {len(runs)} runs are not finished: {', '.join(unfinished)}"
    return Answer(
        lambda: {"page": str(page), "runs": [_record(run) for run in runs]},
        paths=[page],
        hint=hint if unfinished else "",
    )


def _page_path(out: Path) -> Path:
    path = out / "report.html" if out.is_dir() else out
    if path.suffix.lower() not in (".html", ".htm", *_TABLES):
        raise ValueError(f"--out {out} is neither a folder nor a file that ends in .html, .md, .tex or .csv")
    return path


def _write(runs: list[Run], path: Path, target: float | None, title: str | None) -> Path:
    """Write the page, or the table that the file's ending names."""
    from losac.report import write_report, write_table

    if path.suffix.lower() not in _TABLES:
        return write_report(runs, path, target=target, title=title)
    if title is not None:
        raise ValueError(f"--title is of a page, and {path} is a table; leave it out")
    histories = [history for run in runs if (history := run.history()) is not None]
    if not histories:
        raise ValueError("none of the runs has measured anything yet; wait for the first evaluation")
    return write_table(histories, path, target=target)


def _find(folders: list[Path]) -> list[Run]:
    """Return the runs of all folders, each once; a folder without any is an error that says why."""
    from losac.runs import find_runs, open_run

    found: dict[Path, Run] = {}
    for folder in folders:
        runs = find_runs(folder)
        if not runs and (not folder.is_dir() or (folder / "run.json").exists()):
            open_run(folder)
        if not runs:
            raise ValueError(f"there is no run in {folder}; losac run --out DIR makes one")
        found |= {run.folder.resolve(): run for run in runs}
    return list(found.values())


def _record(run: Run) -> dict[str, object]:
    history = run.history()
    return {"folder": str(run.folder), "status": run.status, "result": None if history is None else summary(history)}
