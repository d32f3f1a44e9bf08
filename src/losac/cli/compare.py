"""``losac compare``: several algorithms on one problem, over several seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import DIVERGED, INTERRUPTED, one_line_errors, say
from losac.cli.expand import expand
from losac.cli.experiment import Experiment
from losac.cli.file import File, given_names, read_file, sections_of
from losac.cli.output import check_folder, fresh_folder, print_paths, slug, summary, to_json, wide_console
from losac.cli.progress import progress
from losac.cli.seeds import parse_seeds

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.history import History
    from losac.task import Task

EPILOG = """Examples:

losac compare

losac compare losac scaffold:server_step=5 fedavg:step_size=3e-3 --seeds 0,1,2,3

losac compare losac losac:scaling=exact --data mnist --rounds 100 --target 0.9 --out mnist

losac compare losac scaffold --config experiment.toml --out compared

losac compare losac scaffold --config experiment.toml --out compared --resume"""


@expand("experiment")
def compare(
    experiment: Experiment,
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(
            help="Algorithms, each with settings of its own where wanted: scaffold:server_step=3,step_size=1e-4. "
            "Default: losac, scaffold, scaffold with server_step=M, fedavg, fedsaga.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.", rich_help_panel="Simulation")] = "0,1,2",
    target: Annotated[
        float | None,
        typer.Option(
            help="Report the first round that reaches this accuracy. Default: by data set.",
            rich_help_panel="Output",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="File with the experiment, of losac init: problem, simulation, and the step size, local steps and "
            "blocks of all; options given here win.",
            rich_help_panel="Problem",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the runs in --out that have not ended.", rich_help_panel="Output"),
    ] = False,
    *,
    context: typer.Context,
) -> None:
    """Compare algorithms at the same step size unless told otherwise; print a table, and save runs and a page."""
    with one_line_errors():
        if resume and experiment.out is None:
            raise ValueError("--resume needs the folder of the runs: --out DIR")
        if not resume:
            check_folder(experiment.out, overwrite=experiment.overwrite)
        experiment, target = _filled(experiment, File() if config is None else read_file(config), context, target)
        entries = algorithms or default_entries(experiment)
        methods = dict(zip(entries, experiment.build_algorithms(entries)))
        chosen = parse_seeds(seeds)
        data = experiment.load_data()
        histories: list[History] = []
        target = experiment.defaults.target if target is None else target
        told = experiment.describe(data)
        told["simulation"]["target"] = target
        interrupted = False
        try:
            _simulate(experiment, data, methods, chosen, told, resume, histories)
        except KeyboardInterrupt:
            interrupted = True
        facts = told["problem"] | told["simulation"] | {"rows": len(data), "seeds": chosen}
        files = _save(histories, data, experiment.out, facts, target) if histories and experiment.out else []
        _tell(experiment, histories, files, facts, target)
        diverged = sum(history.diverged is not None for history in histories)
        if diverged:
            say(f"losac: {diverged} of {len(histories)} runs diverged; try a smaller step size for them")
        if interrupted:
            kept = f"the {len(histories)} finished runs are in {experiment.out}, go on with --resume"
            say(f"losac: interrupted; {kept if files else 'nothing was saved'}")
            raise typer.Exit(INTERRUPTED)
        if diverged == len(histories):
            raise typer.Exit(DIVERGED)


def default_entries(experiment: Experiment) -> list[str]:
    """Return the paper's four, and SCAFFOLD with steps as long as LoSAC's at equal η."""
    blocks = None if experiment.batch_size else experiment.resolved("blocks")
    as_long = [f"scaffold:server_step={blocks}"] if blocks and blocks > 1 else []
    return ["losac", "scaffold", *as_long, "fedavg", "fedsaga"]


def _filled(
    experiment: Experiment, file: File, context: typer.Context, target: float | None
) -> tuple[Experiment, float | None]:
    """Return the experiment and the target with what a file says where the command line says nothing."""
    experiment = file.fill(experiment, given_names(context))
    common = {k: v for k, v in file.settings.items() if k in ("step_size", "local_steps", "blocks")}
    common = {k: v for k, v in common.items() if getattr(experiment, k) is None}
    return dataclasses.replace(experiment, **common), file.target if target is None else target


def _simulate(
    experiment: Experiment,
    data: FederatedData,
    methods: Mapping[str, Algorithm],
    seeds: list[int],
    told: dict[str, dict[str, Any]],
    resume: bool,
    histories: list[History],
) -> None:
    """Run everything, adding to ``histories`` as runs end; a run that diverges is kept, and the others go on."""
    import losac

    task, options = experiment.build_task(data), experiment.simulation(data)
    for method in methods.values():
        losac.runs.check(task, method, options["rounds"], options)
    if experiment.out is not None and experiment.overwrite:
        fresh_folder(experiment.out)
    shown = not (experiment.quiet or experiment.json)
    with progress(len(methods) * len(seeds), options["rounds"], shown=shown) as begin:
        for entry, method in methods.items():
            for seed in seeds:
                report = begin(f"{method!r} seed {seed}")
                try:
                    if experiment.out is None:
                        histories.append(losac.simulate(task, method, seed=seed, progress=report, **options))
                        continue
                    sections = told | {"algorithm": sections_of(method)}
                    sections["simulation"] = told["simulation"] | {"seed": seed}
                    folder = experiment.out / "runs" / f"{slug(entry)}-seed{seed}"
                    histories.append(_record(task, method, folder, sections, resume, report, options))
                except losac.DivergedError as error:
                    histories.append(error.history)


def _record(
    task: Task,
    method: Algorithm,
    folder: Path,
    sections: dict[str, dict[str, Any]],
    resume: bool,
    report: Any,
    options: Mapping[str, Any],
) -> History:
    """Run one of them into its folder, or go on with it; what has diverged before is not tried again."""
    import losac

    seed = sections["simulation"]["seed"]
    if resume and (folder / "run.json").exists() and losac.runs.open_run(folder).status == "diverged":
        diverged = losac.runs.open_run(folder).history()
        if diverged is not None:
            return diverged
    return losac.runs.record(
        task, method, folder, seed=seed, resume=resume, experiment=sections, progress=report, **options
    )


def _save(
    histories: list[History], data: FederatedData, folder: Path, config: dict[str, Any], target: float | None
) -> list[Path]:
    from losac.report import plot_comparison, write_csv, write_page

    picture, partition = folder / "comparison.png", folder / "partition.png"
    plot_comparison(histories, target=target).savefig(picture)
    data.plot().savefig(partition, dpi=150)
    return [
        write_page(histories, folder / "report.html", data=data, config=config, target=target),
        write_csv(histories, folder / "comparison.csv", target=target),
        picture,
        partition,
        folder / "runs",
    ]


def _tell(
    experiment: Experiment, histories: list[History], files: list[Path], config: dict[str, Any], target: float | None
) -> None:
    if experiment.json:
        results = [summary(history) for history in histories]
        typer.echo(to_json({"config": config, "results": results, "files": [str(path) for path in files]}))
        return
    if histories and not experiment.quiet:
        from losac.report import comparison_table, fairness_notes

        console = wide_console()
        console.print(comparison_table(histories, target=target))
        for note in fairness_notes(histories):
            console.print(note, style="yellow")
        console.print()
    print_paths(files, hint=not (experiment.out or experiment.quiet))
