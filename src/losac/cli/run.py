"""``losac run``: one algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.config import Config, given_names, read_config
from losac.cli.errors import DIVERGED, INTERRUPTED, one_line_errors, say
from losac.cli.expand import expand
from losac.cli.experiment import Experiment
from losac.cli.output import check_folder, fresh_folder, print_paths, save_config, summary, to_json, wide_console
from losac.cli.progress import progress

if TYPE_CHECKING:
    from losac.history import History

EPILOG = """Examples:

losac run

losac run --algorithm scaffold --set server_step=5 --rounds 100

losac run --data mnist --scaling exact --set correction=0.05 --step-size 1e-3

losac run --config tuned/best.json --rounds 500"""


@expand("experiment")
def run(
    experiment: Experiment,
    algorithm: Annotated[
        str, typer.Option(help="Algorithm, as losac or scaffold:server_step=3.", rich_help_panel="Algorithm")
    ] = "losac",
    seed: Annotated[int, typer.Option(help="Of sampling and initial weights.", rich_help_panel="Simulation")] = 0,
    config: Annotated[
        Path | None,
        typer.Option(
            help="File that holds the algorithm and options, such as best.json of losac tune; options given here win.",
            rich_help_panel="Problem",
            show_default=False,
        ),
    ] = None,
    *,
    context: typer.Context,
) -> None:
    """Run one algorithm and record what it reaches, sends and computes."""
    with one_line_errors():
        import losac

        check_folder(experiment.out, overwrite=experiment.overwrite)
        given = given_names(context)
        file = Config() if config is None else read_config(config)
        experiment = file.fill(experiment, given)
        seed = seed if file.seed is None or "seed" in given else file.seed
        if file.algorithm is None or "algorithm" in given:
            (method,) = experiment.build_algorithms([algorithm])
        else:
            method = file.build_algorithm(experiment)
        data = experiment.load_data()
        task = experiment.build_task(data)
        options = experiment.simulation(data)
        told = {**experiment.describe(data), "algorithm": method.label, "settings": method.settings(), "seed": seed}
        code, message = 0, ""
        latest: list[History] = []
        with progress(1, options["rounds"], shown=not (experiment.quiet or experiment.json)) as begin:
            report = begin(method.label)

            def keep(history: History) -> None:
                latest[:] = [history]
                report(history)

            try:
                latest[:] = [losac.simulate(task, method, seed=seed, progress=keep, **options)]
            except losac.DivergedError as error:
                code, message = DIVERGED, str(error).split("; try")[0]
                latest[:] = [error.history]
            except KeyboardInterrupt:
                code, message = INTERRUPTED, "interrupted"
        files = _save(latest[0], experiment.out, told) if latest and experiment.out else []
        _tell(experiment, latest, files, told)
        if message:
            say(f"losac: {message}; {f'what was measured is in {experiment.out}' if files else 'nothing was saved'}")
            raise typer.Exit(code)


def _save(history: History, folder: Path, config: dict[str, Any]) -> list[Path]:
    fresh_folder(folder)
    table, picture = folder / "metrics.csv", folder / "plot.png"
    saved = history.save(folder / "history.npz")
    history.to_frame().to_csv(table, index=False)
    history.plot().savefig(picture)
    return [saved, table, picture, save_config(config, folder / "config.json")]


def _tell(experiment: Experiment, latest: list[History], files: list[Path], config: dict[str, Any]) -> None:
    if experiment.json:
        results = summary(latest[0]) if latest else None
        typer.echo(to_json({"config": config, "result": results, "files": [str(path) for path in files]}))
        return
    if latest and not experiment.quiet:
        from losac.report import comparison_table

        wide_console().print(comparison_table(latest, target=experiment.defaults.target))
    print_paths(files, hint=not (experiment.out or experiment.quiet))
