"""``losac reproduce``: the paper's tables, figures and claims, measured."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac._files import LOCK, write_whole
from losac._units import human_seconds
from losac.cli.completion import matching
from losac.cli.errors import FAILED, INTERRUPTED, fail, say
from losac.cli.folder import results_folder
from losac.cli.group import App, given_names
from losac.cli.options import OUTPUT, Json, Printing, parse_seeds, seeds_option
from losac.cli.output import check_replaceable, is_made_here, print_json, wide_console
from losac.cli.where import Where
from losac.experiment.fields import SIMULATION, Option
from losac.experiment.options import DataDir
from losac.experiment.words import words

if TYPE_CHECKING:
    from losac.jobs import Workers
    from losac_reproduction import Findings, Options, Progress, Study

EPILOG = """Examples:

losac reproduce --list

losac reproduce all --quick

losac reproduce table2 fig2 --seeds 0,1,2,3,4 --out reproduction

losac reproduce rank-digits --on slurm --slurm partition=short --out reproduction

losac reproduce report --pdf

[bold]report[/bold] measures nothing: it writes one page, or with --pdf a PDF of four, from a folder of results: \
the one given behind it, else the last run's, else the published ones.

A run that was interrupted continues where it stopped when the same command is given again."""
REPORT_EPILOG = """Examples:

losac attack report --quick

losac attack report --out leakage --jobs 8

A run that was interrupted continues where it stopped when the same command is given again. The numbers are those of
losac reproduce fig6 leakage privacy."""
_MOST_WORKERS = 8
REPORT = "report"
"""Stands where the parts do: the report of what was measured before."""
PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
"""The results that losac was published with, in a checkout."""
LAST = Path("reproduction")


def add_reproduce(app: App) -> None:
    """Add ``losac reproduce``."""
    app.command("reproduce", epilog=EPILOG, quiet="the paths of the pages, or the names of the parts,")(reproduce)


def add_attack_report(app: App) -> None:
    """Add ``losac attack report``."""
    app.command("report", epilog=REPORT_EPILOG)(attack_report)


COMPLETIONS = Path(__file__).with_name("completions.json")
"""The names and titles of the parts, for the Tab key; ``python -m losac_reproduction.command`` writes it."""


def study_names(incomplete: str) -> list[tuple[str, str]]:
    """Offer the parts of the paper, and all of them, without importing them: the Tab key cannot wait for jax."""
    return matching(incomplete, words(COMPLETIONS).items())


def current_words() -> dict[str, str]:
    """Return the names and titles of the parts as they are now, and the words that stand for none."""
    from losac_reproduction import STUDIES

    return {study.name: study.title for study in STUDIES.values()} | {"all": "every part", REPORT: "what was found"}


def reproduce(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART]...",
            help="Parts, or [bold]all[/bold]; see --list. Or [bold]report[/bold], and a folder of results.",
            show_default=False,
            autocompletion=study_names,
        ),
    ] = None,
    listed: Annotated[bool, Option(OUTPUT, "List the parts and stop.", "--list")] = False,
    seeds: Annotated[str, seeds_option(SIMULATION)] = "0,1,2",
    quick: Annotated[bool, Option(SIMULATION, "Fewer rounds, seeds and settings, marked as such.", "--quick")] = False,
    out: Annotated[
        Path | None,
        Option(OUTPUT, "Folder for the results.", default="reproduction, or reproduction-quick"),
    ] = None,
    data_dir: DataDir = None,
    pdf: Annotated[bool, Option(OUTPUT, "Write the report as a PDF of four pages.", "--pdf")] = False,
    *,
    printing: Printing,
    where: Where,
) -> None:
    """Reproduce the paper: run its experiments, compare the numbers with its own, and judge its claims."""
    from losac_reproduction import STUDIES, Options

    if names and names[0] == REPORT:
        _refuse_measuring(given_names(context))
        write_report(_results(names[1:], out), out, pdf=pdf, json=printing.json, quiet=printing.quiet)
        return
    if pdf:
        raise ValueError("--pdf is an option of losac reproduce report; the parts themselves write HTML and CSV")
    if listed or not names:
        _list(STUDIES, json=printing.json, quiet=printing.quiet)
        if not listed and printing.verbose:
            say("Name the parts to run, or all.")
        return
    options = Options(tuple(parse_seeds(seeds)), quick)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    conclude_all(
        _choose(names, STUDIES), options, folder, where.workers(), data_dir, json=printing.json, quiet=printing.quiet
    )


def _refuse_measuring(given: set[str]) -> None:
    """Refuse options that a report, which measures nothing, cannot heed."""
    wrong = {"listed": "--list", "seeds": "--seeds", "quick": "--quick", "data_dir": "--data-dir"}
    wrong |= {each.name: f"--{each.name}" for each in fields(Where)}
    for name, option in wrong.items():
        if name in given:
            raise ValueError(f"{option} has no effect on losac reproduce report, which measures nothing; leave it out")


def _results(folders: list[str], out: Path | None) -> Path:
    """Return the folder of results for a report: the one given, else the last run's, else the published one."""
    if len(folders) > 1:
        raise ValueError(f"losac reproduce report takes one folder of results, not {len(folders)}")
    if folders:
        if not Path(folders[0]).is_dir():
            raise ValueError(f"there is no folder {folders[0]}; give one that losac reproduce wrote with --out")
        return Path(folders[0])
    found = [folder for folder in (LAST, PUBLISHED) if any(folder.glob("*/results.json"))]
    if not found:
        raise ValueError(
            f"there is nothing to report: no results in {LAST}; run losac reproduce all, or name a folder of results"
        )
    return found[0]


def write_report(results: Path, out: Path | None, *, pdf: bool, json: bool, quiet: bool) -> None:
    """Write what follows from the results in a folder as one page or as a PDF, and say where."""
    from losac_reproduction import STUDIES
    from losac_reproduction.results import read_parts

    parts = read_parts(results, STUDIES)
    if not parts:
        raise ValueError(f"there is nothing to report in {results}: no part has results there; run losac reproduce all")
    folder = out or (LAST if results == PUBLISHED else results)
    path = folder / ("report.pdf" if pdf else "report.html")
    check_replaceable(path, overwrite=False)
    with results_folder(folder, "add"):
        if pdf:
            from losac_reproduction.pdf import write_pdf

            write_pdf(parts, path, "losac reproduce report --pdf")
        else:
            from losac_reproduction.report import report_page

            write_whole(path, report_page(parts, results))
    if json:
        print_json({"results": str(results), "parts": list(parts), "page": str(path)})
        return
    if not quiet:
        say(f"{len(parts)} parts from {results}")
    typer.echo(str(path))


def attack_report(
    quick: Annotated[bool, Option(OUTPUT, "Fewer settings, seeds and steps, marked as such.", "--quick")] = False,
    seeds: Annotated[str, seeds_option("Attack")] = "0,1,2",
    out: Annotated[Path | None, Option(OUTPUT, "Folder for the results.", default="leakage, or leakage-quick")] = None,
    workers: Annotated[
        int | None, Option(OUTPUT, "Processes to share the work.", "--jobs", min=1, default="one per core")
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
    quiet: Annotated[bool, Option(OUTPUT, "Print the path of the page only.", "--quiet -q")] = False,
) -> None:
    """Write one page: the paper's attack, the strong ones, and what defences cost and buy."""
    from losac.jobs import Workers
    from losac_reproduction import STUDIES, Options

    options = Options(tuple(parse_seeds(seeds)), quick)
    folder = out or Path("leakage-quick" if quick else "leakage")
    made_by = f"losac attack report --seeds {seeds}{' --quick' if quick else ''}"
    conclude_all(
        [STUDIES[name] for name in ("fig6", "leakage", "privacy")], options, folder, Workers(jobs=workers), data_dir,
        json=json, quiet=quiet, together=("What the messages give away, and what protects", made_by),
    )  # fmt: skip


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
    workers: Workers,
    data_dir: Path | None,
    *,
    json: bool,
    quiet: bool,
    together: tuple[str, str] | None = None,
) -> None:
    """Measure studies, write what they found into a folder, and tell it; raise typer.Exit where a part failed.

    ``together`` is the title of one page with all of them, and the command that makes it.
    """
    from losac_reproduction import JobsFailedError

    if data_dir is not None:
        os.environ["LOSAC_DATA_DIR"] = str(data_dir)
    workers = workers.at_least(min(os.cpu_count() or 1, _MOST_WORKERS))
    with results_folder(folder, "add") as claim:
        if claim is not None and not claim.empty and not _begun(folder):
            raise ValueError(f"--out {folder} is not empty, and holds no results of the studies; give another folder")
        try:
            found, failed = _run(studies, options, folder, workers, shown=not (json or quiet))
        except KeyboardInterrupt:
            say(f"losac: interrupted; what was measured is in {folder}, and the same command continues from there")
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


def _begun(folder: Path) -> bool:
    """Whether an earlier command has measured something in a folder, was about to, or has only made reports there."""
    measured = (folder / "jobs").is_dir() or any(folder.glob("*/results.json"))
    return measured or all(is_made_here(path) for path in folder.iterdir() if path.name != LOCK)


def _run(
    studies: list[Study], options: Options, folder: Path, workers: Workers, *, shown: bool
) -> tuple[dict[str, tuple[Study, Findings]], dict[str, str]]:
    """Measure all studies together: no core waits for the last job of each; conclude study by study."""
    from losac_reproduction import run_jobs, write_results

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
        where = f" on {progress.host}" if progress.host else ""
        say(f"{progress.done} of {progress.total}{left}: {progress.label}{where}{before}")
        for line in progress.log.splitlines():
            say(f"  {progress.label}: {line}")

    return report


def _pages(
    found: dict[str, tuple[Study, Findings]], options: Options, folder: Path, together: tuple[str, str] | None
) -> list[Path]:
    """Write the page that brings all parts together, and return the paths of all pages."""
    from losac_reproduction.pages import index_page, joint_page

    pages = [folder / name / "report.html" for name in found]
    if together is not None and found:
        pages = [folder / "report.html"]
        write_whole(pages[0], joint_page(*together, found, options, folder))
    elif len(found) > 1:
        pages.insert(0, folder / "index.html")
        write_whole(pages[0], index_page(found, options))
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
            name: {"summary": findings.summary, "claims": [claim.written() for claim in findings.claims]}
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
                threshold = f"\n[dim]{escape(claim.threshold)}[/dim]" if claim.threshold else ""
                measured = escape(claim.evidence) + threshold
                table.add_row(escape(claim.text), f"[{colour}]{claim.verdict}[/{colour}]", measured)
            console.print(table)
            console.print()
    if options.quick:
        console.print("Short form: fewer rounds and seeds than the paper. No verdict here is final.", style="yellow")


if __name__ == "__main__":
    from losac.experiment.generate import write

    write(current_words(), COMPLETIONS)
