"""``losac tune``: find the best settings of an algorithm."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac._claim import FolderClaim
from losac._own import is_own
from losac.cli import completion
from losac.cli.errors import DIVERGED, FAILED, INTERRUPTED, fail, say
from losac.cli.folder import purpose, results_folder
from losac.cli.group import given_names
from losac.cli.options import Config, Printing, Saving, Seeds, parse_seeds
from losac.cli.output import NOTHING_SAVED, Answer, save_config, wide_console
from losac.cli.where import Where
from losac.experiment.fields import Option
from losac.experiment.file import read_file
from losac.experiment.options import Experiment, with_options
from losac.experiment.settings import parse_settings, split_entry
from losac.experiment.space import FORMS, parse_space
from losac.experiment.words import words

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.tuning import Tuning

EPILOG = """Examples:

losac tune scaffold --out tuned

losac tune scaffold --space step_size=1e-5:1e-2:7log --space server_step=1,3,10 --seeds 0,1,2

losac tune losac --search random --trials 40 --space step_size=1e-5:1e-2:log --target 0.9

losac tune scaffold --config experiment.toml --out tuned

losac tune scaffold --on slurm --slurm partition=short,mem=8G --jobs 8 --out tuned

losac run tuned/best.toml --out runs/tuned"""

_SEARCH = "Search"


@dataclass(frozen=True)
@with_options(words().get("search", ()), _SEARCH)
class Search:
    """How to search for the best settings: an option for each field of :class:`losac.tuning.SearchOptions`."""


def tune(
    algorithm: Annotated[
        str,
        typer.Argument(help="Algorithm, like losac or scaffold:option=1.", autocompletion=completion.algorithm_names),
    ],
    *,
    experiment: Experiment,
    space: Annotated[
        list[str] | None,
        Option(
            _SEARCH,
            f"A setting and the values to try, as NAME=VALUES: {FORMS}; repeatable.",
            default="32 points around the step size",
        ),
    ] = None,
    search: Search,
    seeds: Seeds = "0",
    config: Config = None,
    saving: Saving,
    where: Where,
    printing: Printing,
    context: typer.Context,
) -> Answer:
    """Search for the best settings of an algorithm on rows set aside from the clients' data, never on the test rows."""
    workers = where.workers()
    with results_folder(saving.out, purpose(overwrite=saving.overwrite)) as claim:
        if config is not None:
            experiment = read_file(config).fill(experiment, given_names(context))
        (method,) = experiment.build_algorithms([algorithm])
        chosen = parse_seeds(seeds)
        sought = asdict(search)
        experiment, sought["metric"] = _measuring(experiment, sought["metric"])
        axes = parse_space(space) if space else _default_space(experiment, algorithm, method, sought["search"])
        data = experiment.load_data()
        options = _checked(experiment.simulation(data)) | {"eval_every": experiment.eval_every}
        sought |= {"seeds": chosen, "validation": sought["validation"] or None, "on": workers}
        tuning = _search(experiment, data, method, axes, sought | options, printing.verbose)
        problem = experiment.describe(data)
        files = [] if claim is None else _save(tuning, claim, problem)
    return _answer(tuning, files, problem, saving.out)


def _measuring(experiment: Experiment, metric: str | None) -> tuple[Experiment, str | None]:
    """Return the experiment that measures a metric of losac.metrics or of the user's, and the metric's name."""
    from losac.experiment.problem import METRICS

    if metric is None or not (is_own(metric) or metric in METRICS):
        return experiment, metric
    others = [each for each in experiment.metrics or () if each != metric]
    return replace(experiment, metrics=[*others, metric]), metric.rpartition(":")[2]


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse the options that only single runs have."""
    from losac.tuning.tune import NOT_TUNED

    for name in options:
        if name in NOT_TUNED:
            raise ValueError(f"{name}={options[name]!r} is for single runs; leave it out, since tune runs many at once")
    return options


def _search(
    experiment: Experiment,
    data: FederatedData,
    method: Algorithm,
    axes: dict[str, Any],
    options: dict[str, Any],
    shown: bool,
) -> Tuning:
    import losac

    report = _report if shown else None
    try:
        return losac.tune(experiment.build_task(data), method, axes, progress=report, **options)
    except losac.tuning.AllDivergedError as error:
        fail(str(error), DIVERGED)
    except losac.jobs.JobsFailedError as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        say("losac: interrupted; nothing was saved")
        raise typer.Exit(INTERRUPTED) from None


def _default_space(experiment: Experiment, entry: str, method: Algorithm, search: str) -> dict[str, Any]:
    """Return the default grid, without what the user has fixed; as ranges if points are drawn."""
    from losac.tuning import default_space
    from losac.tuning.space import as_range

    fixed = {**split_entry(entry)[1], **parse_settings(experiment.set_ or [], "--set")}
    if isinstance(method.step_size, str):
        raise ValueError(f"{method.label} with step_size={method.step_size!r} sets its step itself; give --space")
    if callable(method.step_size):
        raise ValueError("the step size is a schedule, around which no grid can be laid; give the values by --space")
    space = default_space(type(method), float(method.step_size))
    space = {name: values for name, values in space.items() if name == "step_size" or name not in fixed}
    return dict(space) if search in ("grid", "refine") else {name: as_range(values) for name, values in space.items()}


def _report(done: int, planned: int) -> None:
    say(f"{done} of {planned} runs")


def _save(tuning: Tuning, claim: FolderClaim, problem: dict[str, Any]) -> list[Path]:
    with claim.staged() as folder:
        saved = [*tuning.save(folder, problem), save_config({**problem, **_described(tuning)}, folder / "config.json")]
    names = [path.name for path in saved]
    claim.clear(keep=names)
    return [claim.folder / name for name in names]


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


def _answer(tuning: Tuning, files: list[Path], problem: dict[str, Any], out: Path | None) -> Answer:
    from losac.report.tuning import cliff_notes, edge_notes, tuning_table
    from losac.tuning.trials import ranked

    notes = [*edge_notes(tuning), *cliff_notes(tuning)]

    def text() -> None:
        console = wide_console()
        console.print(tuning_table(tuning))
        console.print(f"best: {tuning.algorithm!r}", highlight=False)
        for note in notes:
            console.print(note, style="yellow", highlight=False)
        console.print()

    return Answer(
        lambda: {
            "config": {**problem, **_described(tuning)},
            "best": tuning.config(),
            "notes": notes,
            "trials": [trial.record() for trial in ranked(tuning.trials)],
            "files": [str(path) for path in files],
        },
        text,
        paths=files,
        hint="" if out else NOTHING_SAVED,
    )
