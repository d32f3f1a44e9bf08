"""``losac run``: one algorithm, from a file or from options, into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import DIVERGED, INTERRUPTED, one_line_errors, say
from losac.cli.expand import expand
from losac.cli.experiment import Experiment, Seed, Target
from losac.cli.file import File, given_names, read_file, sections_of
from losac.cli.output import check_folder, fresh_folder, print_paths, summary, to_json, wide_console
from losac.cli.progress import progress

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.history import Callback, History
    from losac.task import Task

EPILOG = """Examples:

losac init experiment.toml && losac run experiment.toml --out runs/first

losac run --out runs/first --resume

losac run --algorithm scaffold --set server_step=5 --rounds 100

losac run --data mnist --scaling exact --set correction=0.05 --step-size 1e-3

losac run tuned/best.toml --rounds 500 --seed 7 --track tensorboard --out runs/tuned"""


@expand("experiment")
def run(
    experiment: Experiment,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File with the experiment, of losac init or losac tune; options given here win.", show_default=False
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="Algorithm, as losac or scaffold:server_step=3. Default: losac.",
            rich_help_panel="Algorithm",
            show_default=False,
        ),
    ] = "losac",
    seed: Seed = 0,
    target: Target = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in --out; with --rounds, make it longer.", rich_help_panel="Output"
        ),
    ] = False,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Least time between checkpoints.", rich_help_panel="Output")
    ] = 10.0,
    track: Annotated[
        list[str] | None,
        typer.Option(
            help="Also tell tensorboard, mlflow or wandb (offline); repeatable.",
            rich_help_panel="Output",
            show_default=False,
        ),
    ] = None,
    *,
    context: typer.Context,
) -> None:
    """Run one algorithm and record what it reaches, sends and computes; in a folder it can be resumed and reported."""
    with one_line_errors():
        import losac

        _check(experiment, resume, track)
        given = given_names(context)
        said = _read(file, experiment.out if resume else None)
        experiment = said.fill(experiment, given)
        seed = seed if said.seed is None or "seed" in given else said.seed
        target = said.target if "target" not in given and said.target is not None else target
        target = experiment.defaults.target if target is None else target
        if said.algorithm is None or "algorithm" in given:
            (method,) = experiment.build_algorithms([algorithm])
        else:
            method = said.build_algorithm(experiment)
        data = experiment.load_data()
        task = experiment.build_task(data)
        options = experiment.simulation(data)
        told = experiment.describe(data)
        told = {
            "problem": told["problem"],
            "algorithm": sections_of(method),
            "simulation": {**told["simulation"], "seed": seed, "target": target},
        }
        code, message = 0, ""
        latest: list[History] = []
        with progress(1, options["rounds"], shown=not (experiment.quiet or experiment.json)) as begin:
            report = begin(method.label)

            def keep(history: History) -> None:
                latest[:] = [history]
                report(history)

            try:
                latest[:] = [_simulate(experiment, task, method, told, resume, checkpoint_seconds, track, keep)]
            except losac.DivergedError as error:
                code, message = DIVERGED, str(error).split("; try")[0]
                latest[:] = [error.history]
            except KeyboardInterrupt as stop:
                code, message = INTERRUPTED, str(stop) or "interrupted"
        files = _files(experiment.out)
        _tell(experiment, latest, files, told, target)
        if message:
            say(f"losac: {message}; {_kept(experiment.out, code)}")
            raise typer.Exit(code)


def _check(experiment: Experiment, resume: bool, track: list[str] | None) -> None:
    """Refuse what cannot be before anything is computed."""
    if (resume or track) and experiment.out is None:
        raise ValueError(f"{'--resume' if resume else '--track'} needs the folder of the run: --out DIR")
    if resume and experiment.overwrite:
        raise ValueError("--resume goes on with what is in --out, and --overwrite replaces it: use one of both")
    if not resume:
        check_folder(experiment.out, overwrite=experiment.overwrite)


def _read(file: Path | None, resumed: Path | None) -> File:
    """Return what the file says; a resumed run has its own."""
    if file is not None:
        return read_file(file)
    if resumed is not None and (resumed / "experiment.toml").exists():
        return read_file(resumed / "experiment.toml")
    return File()


def _simulate(
    experiment: Experiment,
    task: Task,
    method: Algorithm,
    told: dict[str, dict[str, Any]],
    resume: bool,
    checkpoint_seconds: float,
    track: list[str] | None,
    report: Any,
) -> History:
    import losac

    options = {k: told["simulation"][k] for k in ("rounds", "clients_per_round", "eval_every", "dtype", "seed")}
    if experiment.out is None:
        return losac.simulate(task, method, progress=report, **options)
    losac.runs.check(task, method, options["rounds"], options)
    if experiment.overwrite:
        fresh_folder(experiment.out)
    return losac.runs.record(
        task,
        method,
        experiment.out,
        resume=resume,
        overwrite=experiment.overwrite,
        checkpoint_seconds=checkpoint_seconds,
        experiment=told,
        progress=report,
        callbacks=_trackers(track or [], experiment.out),
        **options,
    )


def _trackers(names: list[str], folder: Path) -> list[Callback]:
    if not names:
        return []
    from losac.tracking import make_tracker

    return [make_tracker(name, folder) for name in names]


def _files(folder: Path | None) -> list[Path]:
    """Return what lies in the run's folder, for its reader."""
    names = ("metrics.csv", "metrics.parquet", "history.npz", "experiment.toml", "run.json", "log.txt", "checkpoints")
    return [] if folder is None else [folder / name for name in names if (folder / name).exists()]


def _kept(folder: Path | None, code: int) -> str:
    if folder is None:
        return "nothing was saved; --out DIR keeps a run"
    if code == INTERRUPTED:
        return f"go on with: losac run --out {folder} --resume"
    return f"what was measured is in {folder}"


def _tell(
    experiment: Experiment, latest: list[History], files: list[Path], config: dict[str, Any], target: float | None
) -> None:
    if experiment.json:
        results = summary(latest[0]) if latest else None
        typer.echo(to_json({"config": config, "result": results, "files": [str(path) for path in files]}))
        return
    if latest and not experiment.quiet:
        from losac.report import comparison_table

        wide_console().print(comparison_table(latest, target=target))
    print_paths(files, hint=not (experiment.out or experiment.quiet))
    if experiment.out is not None and not experiment.quiet:
        say(f"Look at it with: losac report {experiment.out}")
