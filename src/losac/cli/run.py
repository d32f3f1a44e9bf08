"""``losac run``: one algorithm, from a file or from options, into a folder."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from losac._claim import EXPERIMENT, FolderClaim
from losac.cli.errors import DIVERGED, INTERRUPTED, say
from losac.cli.folder import check_same_data, purpose, results_folder
from losac.cli.group import given_names
from losac.cli.options import OUTPUT, Estimate, Out, Overwrite, Printing, Resume
from losac.cli.output import NOTHING_SAVED, Answer, print_table, summary
from losac.cli.progress import Report, progress
from losac.experiment.fields import Option
from losac.experiment.file import File, read_content, read_file, run_request, sections_of
from losac.experiment.options import AlgorithmEntry, Experiment, Seed, Target
from losac.experiment.settings import parse_settings, split_entry

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.history import Callback, History
    from losac.task import Task

EPILOG = """Examples:

losac init experiment.toml && losac run experiment.toml --out runs/first

losac run --out runs/first --resume

losac run --algorithm scaffold --set server_step=5 --rounds 100

losac run --data mnist --scaling exact --set correction=0.05 --step-size 1e-3

losac run tuned/best.toml --rounds 500 --seed 7 --track tensorboard --out runs/tuned"""
_FILES = ("metrics.csv", "metrics.parquet", "history.npz", "experiment.toml", "run.json", "log.txt", "checkpoints")
_MUCH_LONGER = 3


@dataclass(frozen=True)
class Recording:
    """Where and how a run is recorded."""

    out: Out = None
    overwrite: Overwrite = False
    resume: Resume = False
    checkpoint_seconds: Annotated[float, Option(OUTPUT, "Least time between checkpoints.", min=0)] = 10.0
    track: Annotated[
        list[str] | None, Option(OUTPUT, "Also log to tensorboard, mlflow or wandb (offline); repeatable.")
    ] = None


def run(
    file: Annotated[
        Path | None,
        typer.Argument(help="Experiment file of losac init or losac tune; options given here win.", show_default=False),
    ] = None,
    *,
    experiment: Experiment,
    algorithm: AlgorithmEntry = "losac",
    seed: Seed = 0,
    target: Target = None,
    estimate: Estimate = False,
    recording: Recording,
    printing: Printing,
    context: typer.Context,
) -> Answer:
    """Run one algorithm and record what it reaches, sends and computes; in a folder it can be resumed and reported."""
    if estimate and recording.out is not None:
        raise ValueError("--estimate runs a few rounds and keeps nothing; leave out --out")
    out = recording.out
    if recording.track and out is None:
        raise ValueError("--track needs the folder of the run: --out DIR")
    resume = recording.resume
    wanted = purpose(resume=resume, overwrite=recording.overwrite)
    given = given_names(context)
    content = {} if file is None else read_content(file)
    asked = None if resume else run_request(experiment, content, given, algorithm, seed=seed, target=target)
    with results_folder(out, wanted, asked) as claim:
        source = claim.folder / EXPERIMENT if file is None and claim is not None and resume else file
        said = File() if source is None else read_file(source)
        if said.comparison:
            raise ValueError(f"{source} is of a comparison; use losac compare, with the same options")
        experiment = said.fill(experiment, given)
        seed = seed if said.seed is None or "seed" in given else said.seed
        target = said.target if "target" not in given and said.target is not None else target
        target = experiment.defaults.target if target is None else target
        _refuse_twice(experiment, algorithm if "algorithm" in given else "", given)
        if said.algorithm is None or "algorithm" in given:
            (method,) = experiment.build_algorithms([algorithm])
        else:
            method = said.build_algorithm(experiment)
        if resume and claim is not None:
            check_same_data(claim.folder, experiment.data)
        data = experiment.load_data()
        options = experiment.simulation(data) | {"seed": seed}
        config = sections(experiment, data, method, seed, target)
        task = experiment.build_task(data)
        if estimate:
            return _estimated(task, method, options)
        if printing.verbose and said.tuned_rounds is not None:
            _warn_of_length(said.tuned_rounds, options["rounds"])

        def simulate(report: Report) -> History:
            return _simulate(task, method, claim, recording, report, config, options)

        ended = _followed(simulate, method.label, options["rounds"], printing.verbose)
    return _answer(ended, config, out, target)


def sections(
    experiment: Experiment, data: FederatedData, method: Algorithm, seed: int, target: float | None
) -> dict[str, dict[str, Any]]:
    """Return the content of a run's file."""
    told = experiment.describe(data)
    return {
        "problem": told["problem"],
        "algorithm": sections_of(method),
        "simulation": {**told["simulation"], "seed": seed, "target": target},
    }


def _estimated(task: Task, method: Algorithm, options: dict[str, Any]) -> Answer:
    """Return how long the run will take."""
    import losac

    found = losac.estimate(task, method, **options)
    return Answer({**found._asdict(), "seconds": found.seconds}, str(found), brief=[f"{found.seconds:.0f}"])


def _warn_of_length(tuned: int, rounds: int) -> None:
    """Say that the settings were sought in much shorter runs."""
    if rounds > _MUCH_LONGER * tuned:
        say(
            f"The settings were tuned in runs of {tuned} rounds, and this one has {rounds}: a step that is best early "
            "may be too long later. Tune with more rounds if it levels off or diverges."
        )


def _refuse_twice(experiment: Experiment, entry: str, given: Collection[str]) -> None:
    """Refuse a setting that the command line gives in two ways, of which one would be ignored."""
    by_set, by_option = parse_settings(experiment.set_ or [], "--set"), experiment.chosen()[1]
    ways = [("--set", by_set), *((f"--{name.replace('_', '-')}", [name]) for name in by_option if name in given)]
    if "scaling" in given:
        ways.append(("--scaling", ["scaling"]))
    if entry:
        ways.append((f"--algorithm {entry}", split_entry(entry)[1]))
    for (one, names), (other, more) in itertools.combinations(ways, 2):
        if twice := [name for name in names if name in more]:
            raise ValueError(f"{twice[0]} is given twice, by {one} and by {other}; leave one out")


class _Ended(NamedTuple):
    """The last report of a run, and how it ended."""

    history: History | None
    code: int = 0
    message: str = ""


def _followed(simulate: Callable[[Report], History], label: str, rounds: int, shown: bool) -> _Ended:
    """Run and show the progress; an interruption or a divergence is a possible end."""
    import losac

    latest: list[History] = []
    with progress(1, rounds, shown=shown) as begin:
        report = begin(label)

        def keep(history: History) -> None:
            latest[:] = [history]
            report(history)

        try:
            return _Ended(simulate(keep))
        except losac.DivergedError as error:
            return _Ended(error.history, DIVERGED, str(error).split("; try")[0])
        except KeyboardInterrupt as stop:
            return _Ended(latest[0] if latest else None, INTERRUPTED, str(stop) or "interrupted")


def _simulate(
    task: Task,
    method: Algorithm,
    claim: FolderClaim | None,
    recording: Recording,
    report: Report,
    config: dict[str, Any],
    options: dict[str, Any],
) -> History:
    import losac

    if claim is None:
        return losac.simulate(task, method, progress=report, **options)
    return losac.runs.record(
        task, method, claim, progress=report, callbacks=_trackers(recording.track or [], claim.folder),
        resume=recording.resume, overwrite=recording.overwrite, checkpoint_seconds=recording.checkpoint_seconds,
        experiment=config, **options,
    )  # fmt: skip


def _trackers(names: list[str], folder: Path) -> list[Callback]:
    if not names:
        return []
    from losac.tracking import make_tracker

    return [make_tracker(name, folder) for name in names]


def _answer(ended: _Ended, config: dict[str, Any], out: Path | None, target: float | None) -> Answer:
    history = ended.history
    files = [] if out is None else [out / name for name in _FILES if (out / name).exists()]

    def text() -> None:
        if history is not None:
            from losac.report import comparison_table

            print_table(comparison_table([history], target=target))

    return Answer(
        lambda: {
            "config": config,
            "result": None if history is None else summary(history),
            "files": [str(path) for path in files],
        },
        text,
        paths=files,
        hint=f"Look at it with: losac report {out}" if out else NOTHING_SAVED,
        complaints=[f"losac: {ended.message}; {_kept(out, ended.code)}"] if ended.message else [],
        code=ended.code,
    )


def _kept(folder: Path | None, code: int) -> str:
    if folder is None:
        return "nothing was saved; --out DIR keeps a run"
    if not (folder / "run.json").exists():
        return "nothing had begun"
    if code == INTERRUPTED:
        return f"continue with: losac run --out {folder} --resume"
    return f"what was measured is in {folder}"
