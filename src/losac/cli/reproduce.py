"""``losac reproduce``: the paper's tables, figures and claims, measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.complete import study_names
from losac.cli.errors import FAILED, INTERRUPTED, fail, say
from losac.cli.options import OUTPUT, SIMULATION, DataDir, Json, option, quiet_option
from losac.cli.output import human_seconds, print_json, wide_console
from losac.cli.seeds import parse_seeds, seeds_option

if TYPE_CHECKING:
    from losac.reproduce import Findings, Options, Progress, Study

EPILOG = """Examples:

losac reproduce --list

losac reproduce all --quick

losac reproduce table2 fig2 --seeds 0,1,2,3,4 --out reproduction

A run that was interrupted goes on where it stopped when the same command is given again."""
_MOST_WORKERS = 8


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART]...",
            help="Parts, or [bold]all[/bold]; see --list.",
            show_default=False,
            autocompletion=study_names,
        ),
    ] = None,
    listed: Annotated[bool, option(OUTPUT, "List the parts and stop.", "--list")] = False,
    seeds: Annotated[str, seeds_option(SIMULATION)] = "0,1,2",
    quick: Annotated[bool, option(SIMULATION, "Fewer rounds, seeds and settings, marked as such.", "--quick")] = False,
    out: Annotated[
        Path | None,
        option(OUTPUT, "Folder for the results.", show_default="reproduction, or reproduction-quick"),
    ] = None,
    workers: Annotated[
        int | None,
        option(
            SIMULATION,
            "Processes to share the work.",
            "--jobs",
            min=1,
            show_default=f"one per core, at most {_MOST_WORKERS}",
        ),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the paths of the pages, or the names of the parts,")] = False,
) -> None:
    """Reproduce the paper: run its experiments, set the numbers beside its own, and judge its claims."""
    from losac.reproduce import STUDIES, Options

    if listed or not names:
        _list(STUDIES, json=json, quiet=quiet)
        if not (listed or json or quiet):
            say("Name the parts to run, or all.")
        return
    options = Options(tuple(parse_seeds(seeds)), quick)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    conclude_all(_choose(names, STUDIES), options, folder, workers, data_dir, json=json, quiet=quiet)


def _list(studies: dict[str, Study], *, json: bool, quiet: bool) -> None:
    """Print the parts with their titles."""
    if json:
        print_json([{"name": each.name, "title": each.title, "data": each.data} for each in studies.values()])
        return
    for study in studies.values():
        typer.echo(study.name if quiet else f"{study.name:12} {study.title}")


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
        fail(str(error), FAILED)
    pages = _pages(found, options, folder, together)
    _tell(found, options, pages, failed, json=json, quiet=quiet)
    if failed:
        raise typer.Exit(FAILED)


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
        left = "" if progress.left is None else f", about {human_seconds(progress.left)} left"
        before = f", {progress.found} found from before" if progress.found and progress.done == 1 else ""
        say(f"{progress.done} of {progress.total}{left}: {progress.label}{before}")

    return report


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
        told = {"quick": options.quick, "seeds": options.seeds, "parts": parts, "failed": failed}
        print_json({**told, "pages": [str(page) for page in pages]})
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
