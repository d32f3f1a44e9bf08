"""``losac tune``: the settings with which an algorithm does best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import DIVERGED, INTERRUPTED, fail, one_line_errors, say
from losac.cli.expand import expand
from losac.cli.experiment import Experiment
from losac.cli.file import given_names, read_file
from losac.cli.output import check_folder, fresh_folder, print_paths, save_config, to_json, wide_console
from losac.cli.seeds import parse_seeds
from losac.cli.settings import parse_settings, split_entry
from losac.cli.space import FORMS, parse_space

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.tuning import Tuning

EPILOG = """Examples:

losac tune scaffold --out tuned

losac tune scaffold --space step_size=1e-5:1e-2:7log --space server_step=1,3,10 --seeds 0,1,2

losac tune losac --search random --trials 40 --space step_size=1e-5:1e-2:log --target 0.9

losac tune scaffold --config experiment.toml --out tuned

losac run tuned/best.toml --out runs/tuned"""

_SEARCH = "Search"


@expand("experiment")
def tune(
    experiment: Experiment,
    algorithm: Annotated[str, typer.Argument(help="Algorithm, as losac or scaffold:option=1.")],
    space: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A setting and what to try for it, as NAME=VALUES: {FORMS}; repeatable. "
            "Default: 32 points around the step size.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    search: Annotated[str, typer.Option(help="grid, random or optuna.", rich_help_panel=_SEARCH)] = "grid",
    trials: Annotated[
        int | None,
        typer.Option(
            help="Points of a random or optuna search. Default: 32.", rich_help_panel=_SEARCH, show_default=False
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.", rich_help_panel="Simulation")] = "0",
    metric: Annotated[
        str | None,
        typer.Option(help="Default: accuracy, else loss.", rich_help_panel=_SEARCH, show_default=False),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Seek the fewest rounds to this value of the metric.", rich_help_panel=_SEARCH, show_default=False
        ),
    ] = None,
    validation: Annotated[
        float,
        typer.Option(
            help="Share of the clients' rows set aside to score on; 0: score on the training rows.",
            rich_help_panel=_SEARCH,
        ),
    ] = 0.2,
    widen: Annotated[
        bool, typer.Option(help="Continue a grid whose best point lies at its edge.", rich_help_panel=_SEARCH)
    ] = True,
    config: Annotated[
        Path | None,
        typer.Option(
            help="File with the problem and the simulation, of losac init; options given here win.",
            rich_help_panel="Problem",
            show_default=False,
        ),
    ] = None,
    *,
    context: typer.Context,
) -> None:
    """Search for the best settings of an algorithm on rows set aside from the clients' data, never on the test rows."""
    with one_line_errors():
        import losac

        check_folder(experiment.out, overwrite=experiment.overwrite)
        if config is not None:
            experiment = read_file(config).fill(experiment, given_names(context))
        (method,) = experiment.build_algorithms([algorithm])
        chosen = parse_seeds(seeds)
        axes = parse_space(space) if space else _default_space(experiment, algorithm, method, search)
        data = experiment.load_data()
        options = experiment.simulation(data) | {"eval_every": experiment.eval_every}
        try:
            tuning = losac.tune(
                experiment.build_task(data),
                method,
                axes,
                seeds=chosen,
                search=search,  # type: ignore[arg-type]
                trials=trials,
                metric=metric,
                target=target,
                validation=validation or None,
                widen=widen,
                progress=None if experiment.quiet or experiment.json else _report,
                **options,
            )
        except losac.tuning.AllDivergedError as error:
            fail(str(error), DIVERGED)
        except KeyboardInterrupt:
            say("losac: interrupted; nothing was saved")
            raise typer.Exit(INTERRUPTED) from None
        problem = experiment.describe(data)
        files = _save(tuning, experiment.out, problem) if experiment.out else []
        _tell(experiment, tuning, files, problem)


def _default_space(experiment: Experiment, entry: str, method: Algorithm, search: str) -> dict[str, Any]:
    """Return the default grid, without what the user has fixed; as ranges where points are drawn."""
    from losac.tuning import default_space
    from losac.tuning.space import as_range

    fixed = {**split_entry(entry)[1], **parse_settings(experiment.set_ or [], "--set")}
    space = default_space(method.label, float(method.step_size))
    space = {name: values for name, values in space.items() if name == "step_size" or name not in fixed}
    return dict(space) if search == "grid" else {name: as_range(values) for name, values in space.items()}


def _report(done: int, planned: int) -> None:
    say(f"{done} of {planned} runs")


def _save(tuning: Tuning, folder: Path, problem: dict[str, Any]) -> list[Path]:
    fresh_folder(folder)
    saved = tuning.save(folder, problem)
    return [*saved, save_config({**problem, **_described(tuning)}, folder / "config.json")]


def _described(tuning: Tuning) -> dict[str, Any]:
    return {
        "algorithm": tuning.start.label,
        "settings": tuning.start.settings(),
        "search": tuning.search,
        "space": {name: axis if isinstance(axis, tuple) else vars(axis) for name, axis in tuning.space.items()},
        "seeds": tuning.seeds,
        "metric": tuning.metric,
        "target": tuning.target,
        "validation": tuning.validation,
    }


def _tell(experiment: Experiment, tuning: Tuning, files: list[Path], problem: dict[str, Any]) -> None:
    from losac.report.tuning import edge_notes, tuning_table
    from losac.tuning.trials import ranked

    notes = edge_notes(tuning)
    if experiment.json:
        answer = {"config": {**problem, **_described(tuning)}, "best": tuning.config(), "notes": notes}
        rows = [trial.record() for trial in ranked(tuning.trials)]
        typer.echo(to_json({**answer, "trials": rows, "files": [str(path) for path in files]}))
        return
    if not experiment.quiet:
        console = wide_console()
        console.print(tuning_table(tuning))
        console.print(f"best: {tuning.algorithm!r}", highlight=False)
        for note in notes:
            console.print(note, style="yellow", highlight=False)
        console.print()
    print_paths(files, hint=not (experiment.out or experiment.quiet))
