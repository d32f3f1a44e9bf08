"""``losac compare``: several algorithms on one problem, over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import DIVERGED, INTERRUPTED, one_line_errors, say
from losac.cli.expand import expand
from losac.cli.experiment import Experiment
from losac.cli.output import (
    check_folder,
    fresh_folder,
    print_paths,
    save_config,
    save_histories,
    summary,
    to_json,
    wide_console,
)
from losac.cli.progress import progress
from losac.cli.seeds import parse_seeds

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.history import History

EPILOG = """Examples:

losac compare

losac compare losac scaffold:server_step=5 fedavg:step_size=3e-3 --seeds 0,1,2,3

losac compare losac losac:scaling=exact --data mnist --rounds 100 --target 0.9 --out mnist"""


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
) -> None:
    """Compare algorithms at the same step size unless told otherwise; print a table, and save figures and a page."""
    with one_line_errors():
        check_folder(experiment.out, overwrite=experiment.overwrite)
        methods = experiment.build_algorithms(algorithms or default_entries(experiment))
        chosen = parse_seeds(seeds)
        data = experiment.load_data()
        histories: list[History] = []
        try:
            _simulate(experiment, data, methods, chosen, histories)
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        target = experiment.defaults.target if target is None else target
        config = experiment.describe(data) | {"seeds": chosen, "target": target}
        files = _save(histories, data, experiment.out, config, target) if histories and experiment.out else []
        _tell(experiment, histories, files, config, target)
        diverged = sum(history.diverged is not None for history in histories)
        if diverged:
            say(f"losac: {diverged} of {len(histories)} runs diverged; try a smaller step size for them")
        if interrupted:
            kept = f"the {len(histories)} finished runs are in {experiment.out}" if files else "nothing was saved"
            say(f"losac: interrupted; {kept}")
            raise typer.Exit(INTERRUPTED)
        if diverged == len(histories):
            raise typer.Exit(DIVERGED)


def default_entries(experiment: Experiment) -> list[str]:
    """Return the paper's four, and SCAFFOLD with steps as long as LoSAC's at equal η."""
    blocks = None if experiment.batch_size else experiment.resolved("blocks")
    as_long = [f"scaffold:server_step={blocks}"] if blocks and blocks > 1 else []
    return ["losac", "scaffold", *as_long, "fedavg", "fedsaga"]


def _simulate(
    experiment: Experiment,
    data: FederatedData,
    methods: list[Algorithm],
    seeds: list[int],
    histories: list[History],
) -> None:
    """Run everything, adding to ``histories`` as runs end; a run that diverges is kept, and the others go on."""
    import losac

    task, options = experiment.build_task(data), experiment.simulation(data)
    shown = not (experiment.quiet or experiment.json)
    with progress(len(methods) * len(seeds), options["rounds"], shown=shown) as begin:
        for method in methods:
            for seed in seeds:
                report = begin(f"{method!r} seed {seed}")
                try:
                    histories.append(losac.simulate(task, method, seed=seed, progress=report, **options))
                except losac.DivergedError as error:
                    histories.append(error.history)


def _save(
    histories: list[History], data: FederatedData, folder: Path, config: dict[str, Any], target: float | None
) -> list[Path]:
    from losac.report import group_histories, plot_comparison, write_csv, write_page

    fresh_folder(folder)
    picture, partition = folder / "comparison.png", folder / "partition.png"
    plot_comparison(histories, target=target).savefig(picture)
    data.plot().savefig(partition, dpi=150)
    algorithms = {group.label: group.runs[0].settings for group in group_histories(histories)}
    save_histories(histories, folder / "histories")
    return [
        write_page(histories, folder / "report.html", data=data, config=config, target=target),
        write_csv(histories, folder / "comparison.csv", target=target),
        picture,
        partition,
        save_config({**config, "algorithms": algorithms}, folder / "config.json"),
        folder / "histories",
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
