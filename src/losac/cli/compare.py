"""``losac compare``: several algorithms on one problem, over several seeds."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac._claim import EXPERIMENT, FolderClaim
from losac._units import human_seconds
from losac.cli import completion
from losac.cli.errors import DIVERGED, INTERRUPTED
from losac.cli.folder import check_same_data, purpose, results_folder, settling
from losac.cli.group import given_names
from losac.cli.options import Config, Estimate, Printing, Resuming, Seeds, parse_seeds
from losac.cli.output import NOTHING_SAVED, Answer, print_table, slug, summary, wide_console
from losac.cli.progress import Report, progress
from losac.cli.where import RunJob, Where, collect
from losac.experiment.file import COMMON, File, compare_request, parse, read_content, sections_of
from losac.experiment.options import Experiment, Target

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.history import History
    from losac.simulation.options import SimulationOptions
    from losac.task import Task

EPILOG = """Examples:

losac compare

losac compare losac scaffold:server_step=5 fedavg:step_size=3e-3 --seeds 0,1,2,3

losac compare losac losac:scaling=exact --data mnist --rounds 100 --target 0.9 --out mnist

losac compare losac scaffold --config experiment.toml --out compared

losac compare losac scaffold --config experiment.toml --out compared --resume

losac compare losac scaffold --seeds 0,1,2,3 --on ray --address auto --out compared"""


def compare(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(
            help="Algorithms, each with its settings, if any: scaffold:server_step=3,step_size=1e-4; your own as "
            "FILE.py:NAME. "
            "Default: losac, scaffold, scaffold with server_step=M, fedavg, fedsaga.",
            show_default=False,
            autocompletion=completion.algorithm_names,
        ),
    ] = None,
    *,
    experiment: Experiment,
    seeds: Seeds = "0,1,2",
    target: Target = None,
    config: Config = None,
    estimate: Estimate = False,
    saving: Resuming,
    where: Where,
    printing: Printing,
    context: typer.Context,
) -> Answer:
    """Compare algorithms, by default at the same step size; print a table, and save runs and a page."""
    out, resume = saving.out, saving.resume
    if estimate and out is not None:
        raise ValueError("--estimate runs a few rounds and keeps nothing; leave out --out")
    wanted = purpose(resume=resume, overwrite=saving.overwrite)
    given = given_names(context)
    if resume and config is None and out is not None and (out / EXPERIMENT).is_file():
        config = out / EXPERIMENT
    content = {} if config is None else read_content(config)
    chosen, workers = parse_seeds(seeds), where.workers()
    asked = partial(compare_request, experiment, content, given, algorithms, target=target)
    with results_folder(out, wanted, asked(seeds=chosen)) as claim:
        if resume and out is not None and (out / "run.json").exists():
            raise ValueError(f"{out} holds a single run; continue it with losac run --out {out} --resume")
        file = File() if config is None else parse(content, str(config))
        chosen = list(file.seeds) if file.seeds is not None and "seeds" not in given else chosen
        experiment, target = _filled(experiment, file, given, target)
        entries = algorithms or list(file.algorithms or default_entries(experiment))
        methods = dict(zip(entries, experiment.build_algorithms(entries)))
        _check_folders(entries)
        for folder in sorted((out / "runs").glob("*-seed*")) if resume and out is not None else ():
            check_same_data(folder, experiment.data)
        data = experiment.load_data()
        target = experiment.defaults.target if target is None else target
        told = experiment.describe(data)
        told["simulation"]["target"] = target
        task = experiment.build_task(data)
        if estimate:
            return _estimated(task, methods, len(chosen), experiment.simulation(data))
        plans = _checked(task, methods, experiment.simulation(data))

        def sections_with(entry: str, seed: int) -> dict[str, dict[str, Any]]:
            simulation = told["simulation"] | {"seed": seed}
            return told | {"algorithm": sections_of(methods[entry]), "simulation": simulation}

        if resume and out is not None:
            for entry, seed in itertools.product(methods, chosen):
                _check_resume(_folder(out, entry, seed), sections_with(entry, seed), task, methods[entry], plans[entry])
        if claim is not None and (request := asked(seeds=chosen)):
            claim.begin(request, anew=not resume)
        observers = [] if claim is None else [settling(claim)]

        def simulate(entry: str, seed: int, report: Report) -> History:
            options = experiment.simulation(data) | {"seed": seed, "progress": report, "callbacks": observers}
            folder = None if out is None else _folder(out, entry, seed)
            return _run(task, methods[entry], folder, sections_with(entry, seed), resume, options)

        def job(entry: str, seed: int) -> RunJob:
            name, options = f"{methods[entry]!r} seed {seed}", experiment.simulation(data) | {"seed": seed}
            folder = None if out is None else _folder(out, entry, seed)
            return RunJob(name, task, methods[entry], options, sections_with(entry, seed), folder)

        rounds = experiment.simulation(data)["rounds"]
        if workers.here:
            histories, interrupted = _all_runs(methods, chosen, simulate, rounds, printing.verbose)
        else:
            jobs = [job(*each) for each in itertools.product(methods, chosen)]
            found, interrupted = collect(jobs, len(jobs), workers, claim, shown=printing.verbose)
            histories = [found[each.name] for each in jobs if each.name in found]
        files = _save(histories, data, claim, target) if histories and claim else []
    facts = told["problem"] | told["simulation"] | {"rows": len(data), "seeds": chosen}
    return _answer(histories, interrupted, files, out, facts, target)


def _estimated(task: Task, methods: Mapping[str, Algorithm], seeds: int, options: Mapping[str, Any]) -> Answer:
    """Return how long the comparison will take."""
    import losac

    found = {entry: losac.estimate(task, method, **options) for entry, method in methods.items()}
    lines = [f"{entry}: {each}" for entry, each in found.items()]
    total = sum(each.start + seeds * each.rounds * each.per_round for each in found.values())
    lines.append(f"All {len(found) * seeds} runs take about {human_seconds(total)}.")
    data = {"seconds": total, "runs": {entry: each._asdict() for entry, each in found.items()}}
    return Answer(data, "\n".join(lines), brief=[f"{total:.0f}"])


def _all_runs(
    methods: Mapping[str, Algorithm],
    seeds: list[int],
    simulate: Callable[[str, int, Report], History],
    rounds: int,
    shown: bool,
) -> tuple[list[History], bool]:
    """Return what ran, and whether it was interrupted; a run that diverges is kept, and the others continue."""
    import losac

    histories: list[History] = []
    with progress(len(methods) * len(seeds), rounds, shown=shown) as begin:
        try:
            for entry, method in methods.items():
                for seed in seeds:
                    try:
                        histories.append(simulate(entry, seed, begin(f"{method!r} seed {seed}")))
                    except losac.DivergedError as error:
                        histories.append(error.history)
        except KeyboardInterrupt:
            return histories, True
    return histories, False


def _run(
    task: Task,
    method: Algorithm,
    folder: Path | None,
    sections: dict[str, dict[str, Any]],
    resume: bool,
    options: Mapping[str, Any],
) -> History:
    """Run one of them, into its folder if it has one, or continue it; what has diverged is not tried again."""
    import losac

    if folder is None:
        return losac.simulate(task, method, **options)
    if resume and (folder / "run.json").exists() and losac.runs.open_run(folder).status == "diverged":
        diverged = losac.runs.open_run(folder).history()
        if diverged is not None:
            return diverged
    return losac.runs.record(task, method, folder, resume=resume, experiment=sections, **options)


def default_entries(experiment: Experiment) -> list[str]:
    """Return the paper's four, and SCAFFOLD with steps as long as LoSAC's at equal η."""
    blocks = None if experiment.batch_size else experiment.resolved("blocks")
    as_long = [f"scaffold:server_step={blocks}"] if blocks and blocks > 1 else []
    return ["losac", "scaffold", *as_long, "fedavg", "fedsaga"]


def _check_folders(entries: list[str]) -> None:
    """Refuse an entry that is given twice, and entries with runs in the same folder."""
    names: dict[str, str] = {}
    for entry in entries:
        if slug(entry) in names:
            other = names[slug(entry)]
            if other == entry:
                raise ValueError(f"{entry!r} is given twice; leave one out")
            raise ValueError(
                f"{other!r} and {entry!r} would share the folder {slug(entry)}; write one of them otherwise"
            )
        names[slug(entry)] = entry


def _checked(task: Task, methods: Mapping[str, Algorithm], options: Mapping[str, Any]) -> dict[str, SimulationOptions]:
    """Return the checked options of each method, after making sure that all can run on the task."""
    import losac

    return {entry: losac.runs.check(task, method, options["rounds"], options) for entry, method in methods.items()}


def _folder(out: Path, entry: str, seed: int) -> Path:
    return out / "runs" / f"{slug(entry)}-seed{seed}"


def _check_resume(
    folder: Path, sections: Mapping[str, Mapping[str, Any]], task: Task, method: Algorithm, plan: SimulationOptions
) -> None:
    """Refuse to continue a run that was made otherwise, before anything is written."""
    from losac.runs.record import check_resume

    if (folder / "run.json").exists():
        own = dataclasses.replace(plan, run=dataclasses.replace(plan.run, seed=sections["simulation"]["seed"]))
        check_resume(folder, sections, task, method, own)


def _filled(
    experiment: Experiment, file: File, given: Collection[str], target: float | None
) -> tuple[Experiment, float | None]:
    """Return the experiment and the target; the file fills in what the command line leaves out."""
    experiment = file.fill(experiment, given)
    common = {k: v for k, v in file.settings.items() if k in COMMON}
    common = {k: v for k, v in common.items() if getattr(experiment, k) is None}
    return dataclasses.replace(experiment, **common), file.target if target is None else target


def _save(histories: list[History], data: FederatedData, claim: FolderClaim, target: float | None) -> list[Path]:
    from losac.report import plot_comparison, write_csv, write_report
    from losac.runs import find_runs

    names = ("report.html", "comparison.csv", "comparison.png", "partition.png")
    with claim.staged() as folder:
        page, table, picture, partition = (folder / name for name in names)
        write_report(find_runs(claim.folder / "runs"), page, target=target)
        write_csv(histories, table, target=target)
        plot_comparison(histories, target=target).savefig(picture)
        data.plot().savefig(partition, dpi=150)
    return [*(claim.folder / name for name in names), claim.folder / "runs"]


def _answer(
    histories: list[History],
    interrupted: bool,
    files: list[Path],
    out: Path | None,
    facts: dict[str, Any],
    target: float | None,
) -> Answer:
    def text() -> None:
        from losac.report import comparison_table, fairness_notes

        if histories:
            console = wide_console()
            print_table(comparison_table(histories, target=target))
            for note in fairness_notes(histories):
                console.print(note, style="yellow")
            console.print()

    diverged = sum(history.diverged is not None for history in histories)
    complaints = []
    if diverged:
        complaints.append(f"losac: {diverged} of {len(histories)} runs diverged; try a smaller step size for them")
    if interrupted:
        complaints.append(f"losac: interrupted; {_kept(out, len(histories) if files else 0)}")
    return Answer(
        lambda: {
            "config": facts,
            "results": [summary(history) for history in histories],
            "files": [str(path) for path in files],
        },
        text,
        paths=files,
        hint="" if out else NOTHING_SAVED,
        complaints=complaints,
        code=INTERRUPTED if interrupted else DIVERGED if diverged == len(histories) else 0,
    )


def _kept(out: Path | None, finished: int) -> str:
    """Return what is left of a comparison that was interrupted."""
    if out is None or not any((out / "runs").glob("*/run.json")):
        return "nothing was saved"
    if not finished:
        return f"what has begun is in {out}, continue with --resume"
    return f"the {finished} finished runs are in {out}, continue with --resume"
