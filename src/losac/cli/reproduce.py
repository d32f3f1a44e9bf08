"""``losac reproduce``: the paper's tables, figures and claims, measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import INTERRUPTED, fail, say
from losac.cli.output import to_json, wide_console
from losac.cli.seeds import parse_seeds

if TYPE_CHECKING:
    from losac.reproduce import Findings, Options, Progress, Study

EPILOG = """Examples:

losac reproduce --list

losac reproduce all --quick

losac reproduce table2 fig2 --seeds 0,1,2,3,4 --out reproduction

A run that was interrupted goes on where it stopped when the same command is given again."""
INCOMPLETE = 1
_MOST_WORKERS = 8


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Parts, or [bold]all[/bold]; see --list.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the parts and stop.")] = False,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.")] = "0,1,2",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds, seeds and settings, marked as such.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results. Default: reproduction, or reproduction-quick.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--jobs", help="Processes to share the work. Default: one per core, at most 8.", min=1),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with NAME.npz; else LOSAC_DATA_DIR or a download.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the paths of the pages only.")] = False,
) -> None:
    """Reproduce the paper: run its experiments, set the numbers beside its own, and judge its claims."""
    from losac.reproduce import STUDIES, Options

    if listed or not names:
        for study in STUDIES.values():
            typer.echo(f"{study.name:12} {study.title}")
        return
    options = Options(tuple(parse_seeds(seeds)), quick)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    conclude_all(_choose(names, STUDIES), options, folder, workers, data_dir, json=json, quiet=quiet)


def conclude_all(
    studies: list[Study],
    options: Options,
    folder: Path,
    workers: int | None,
    data_dir: Path | None,
    *,
    json: bool,
    quiet: bool,
    together: tuple[str, str] | None = None,
) -> None:
    """Measure studies, write what they found into a folder, and tell it; raise typer.Exit where a part failed.

    ``together`` is the title of one page with all of them, and the command that makes it.
    """
    from losac.reproduce import JobsFailedError

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out {folder} is a file; give a folder")
    if data_dir is not None:
        os.environ["LOSAC_DATA_DIR"] = str(data_dir)
    workers = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
    try:
        found, failed = _run(studies, options, folder, workers, shown=not (json or quiet))
    except KeyboardInterrupt:
        say(f"losac: interrupted; what was measured is in {folder}, and the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    except JobsFailedError as error:
        fail(str(error), INCOMPLETE)
    pages = _pages(found, options, folder, together)
    _tell(found, options, pages, failed, json=json, quiet=quiet)
    if failed:
        raise typer.Exit(INCOMPLETE)


def _choose(names: list[str], studies: dict[str, Study]) -> list[Study]:
    from losac._settings import nearest

    if "all" in names:
        return list(studies.values())
    for name in names:
        if name not in studies:
            raise ValueError(f"no part {name!r}{nearest(name, list(studies))}; there are {', '.join(studies)} and all")
    return [studies[name] for name in dict.fromkeys(names)]


def _run(
    studies: list[Study], options: Options, folder: Path, workers: int, *, shown: bool
) -> tuple[dict[str, tuple[Study, Findings]], dict[str, str]]:
    """Measure all studies together, so that no core waits for the last job of each; conclude study by study."""
    from losac.reproduce import run_jobs, write_results

    failed = _without_data(studies)
    for name, why in failed.items():
        say(f"losac: {name} is left out: {why}")
    wanted = {study.name: list(study.jobs(options)) for study in studies if study.name not in failed}
    jobs = [job for mine in wanted.values() for job in mine]
    results = iter(run_jobs(jobs, folder / "jobs", workers, _reporter() if shown else None) if jobs else [])
    found = {}
    for study in studies:
        if study.name not in failed:
            mine = [next(results) for _ in wanted[study.name]]
            findings, _ = write_results(study, mine, options, folder / study.name)
            found[study.name] = (study, findings)
    return found, failed


def _without_data(studies: list[Study]) -> dict[str, str]:
    """Return the studies whose data sets cannot be had, and why: before hours are spent on the others."""
    from losac.data import load

    wrong: dict[str, str] = {}
    for name in dict.fromkeys(name for study in studies for name in study.data):
        try:
            load(name, 2, "iid")
        except (ValueError, OSError) as error:
            wrong[name] = " ".join(str(error).split())
    missing = {study.name: [wrong[name] for name in study.data if name in wrong] for study in studies}
    return {name: "; ".join(reasons) for name, reasons in missing.items() if reasons}


def _reporter() -> Any:
    def report(progress: Progress) -> None:
        left = "" if progress.left is None else f", about {_duration(progress.left)} left"
        before = f", {progress.found} found from before" if progress.found and progress.done == 1 else ""
        say(f"{progress.done} of {progress.total}{left}: {progress.label}{before}")

    return report


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _pages(
    found: dict[str, tuple[Study, Findings]], options: Options, folder: Path, together: tuple[str, str] | None
) -> list[Path]:
    """Write the page that brings all parts together, and return the paths of all pages."""
    from losac.reproduce.output import render_index, render_together

    pages = [folder / name / "report.html" for name in found]
    if together is not None and found:
        pages = [folder / "report.html"]
        pages[0].write_text(render_together(*together, found, options, folder), encoding="utf-8")
    elif len(found) > 1:
        pages.insert(0, folder / "index.html")
        pages[0].write_text(render_index(found, options), encoding="utf-8")
    return pages


def _tell(
    found: dict[str, tuple[Study, Findings]],
    options: Options,
    pages: list[Path],
    failed: dict[str, str],
    *,
    json: bool,
    quiet: bool,
) -> None:
    if json:
        parts = {
            name: {"summary": findings.summary, "claims": [claim._asdict() for claim in findings.claims]}
            for name, (_, findings) in found.items()
        }
        typer.echo(to_json({"quick": options.quick, "seeds": options.seeds, "parts": parts, "failed": failed,
                            "pages": [str(page) for page in pages]}))  # fmt: skip
        return
    if not quiet:
        _print_claims(found, options)
    for page in pages:
        typer.echo(str(page))


def _print_claims(found: dict[str, tuple[Study, Findings]], options: Options) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = wide_console()
    colours = {"holds": "green", "fails": "red"}
    for study, findings in found.values():
        console.print(f"[bold]{escape(study.title)}[/bold]\n{escape(findings.summary)}\n", highlight=False)
        if findings.claims:
            table = Table("the paper says", "verdict", "measured", show_lines=True)
            for claim in findings.claims:
                colour = colours.get(claim.verdict, "yellow")
                table.add_row(escape(claim.text), f"[{colour}]{claim.verdict}[/{colour}]", escape(claim.evidence))
            console.print(table)
            console.print()
    if options.quick:
        console.print("Short form: fewer rounds and seeds than the paper. No verdict here is final.", style="yellow")
