"""``losac.runs.record``: :func:`losac.simulate` into a folder; it can continue from there."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import jax

from losac._checks import NONNEGATIVE, check_count, check_flag, check_number, check_path, shown
from losac._claim import EXPERIMENT, LEFT_AT_START, RUN_FILES, FolderClaim, FolderError, claimed
from losac._costs import series_of
from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.history import Callback, History
from losac.history.history import plain_settings
from losac.runs.checkpoints import Checkpoint, Checkpoints
from losac.runs.clients import write_clients
from losac.runs.interrupt import Interrupted, interruptible
from losac.runs.keeper import Keeper, now
from losac.runs.layout import ABOUT, CHECKPOINTS, DIGESTS, HISTORY
from losac.runs.log import logged
from losac.runs.machine import hardware, versions
from losac.runs.run import open_run
from losac.runs.same import check_same
from losac.runs.sections import difference, to_toml
from losac.simulation import simulate
from losac.simulation.engines.identity import identify, identity_of, require_same
from losac.simulation.engines.resident import precision
from losac.simulation.follow import check_observers
from losac.simulation.options import (
    ComputeOptions,
    RunOptions,
    SimulateKeywords,
    SimulationOptions,
    defaults,
    read_options,
    takes_options,
)
from losac.simulation.program import setup
from losac.simulation.sampling import make_sampler
from losac.simulation.until import Until
from losac.task import Task

LOG = logging.getLogger("losac.runs")
_FREE = {("simulation", "rounds"), ("simulation", "until"), ("simulation", "target")}
"""What may differ between the parts of a run: a run can be made longer."""
_HEAD = ("rounds", "seed")
"""Settings recorded for every run, given or not."""


@takes_options(RunOptions, ComputeOptions)
def record(
    task: Task,
    algorithm: Algorithm,
    folder: str | Path | FolderClaim,
    run: RunOptions | None = None,
    compute: ComputeOptions | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 10.0,
    experiment: Mapping[str, Mapping[str, Any]] | None = None,
    keep_state: bool = False,
    progress: Callable[[History], None] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[SimulateKeywords],
) -> History:
    """Simulate, and keep the run in a folder: configuration, versions, metrics, checkpoints, log.

    Ctrl-C and SIGTERM end the run after the rounds in progress, save it and raise :class:`KeyboardInterrupt`. A run
    that was stopped or killed continues with ``resume=True`` bit for bit, from its last checkpoint.

    Args:
      task: the problem.
      algorithm: from :mod:`losac.algorithms`.
      folder: of this run alone, made if missing; or a claim on it that the caller holds.
      run, compute: the options as values, as for :func:`losac.simulate`; ``rounds`` counts the whole run,
        with what was done before; more of them make a finished run longer.
      resume: continue the run in the folder; begin it if there is none.
      overwrite: replace the run that is there.
      checkpoint_seconds: least time between checkpoints; they never take more than about a tenth of the time.
      experiment: the content of ``experiment.toml``, by sections; made from the arguments if not given.
      keep_state, progress: as for :func:`losac.simulate`.
      callbacks: receive this run too.
      options: the fields of ``run`` and ``compute`` as keywords.

    >>> import losac, tempfile
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), losac.data.load("digits", clients=10))
    >>> algorithm = losac.algorithms.losac(step_size=1e-3, local_steps=4, blocks=5)
    >>> folder = tempfile.mkdtemp()
    >>> first = losac.runs.record(task, algorithm, folder, rounds=10, eval_every=5)
    >>> whole = losac.runs.record(task, algorithm, folder, rounds=20, eval_every=5, resume=True)
    >>> whole.rounds
    array([ 0,  5, 10, 15, 20])
    >>> losac.runs.open_run(folder).status
    'finished'
    """
    prepare_jax()
    folder = folder if isinstance(folder, FolderClaim) else check_path("folder", folder)
    check_number("checkpoint_seconds", checkpoint_seconds, NONNEGATIVE)
    check_flag("resume", resume)
    check_flag("overwrite", overwrite)
    given = _given(run, compute) | options | ({"keep_state": True} if keep_state else {})
    run, compute = read_options(record, run, compute, options)
    check_observers(keep_state, progress, callbacks)
    _check_sections(experiment)
    if resume and overwrite:
        raise ValueError("resume continues what is in the folder, and overwrite deletes it: use only one of them")
    if jax.process_count() > 1:
        raise ValueError("a run over several processes cannot be kept in a folder; use losac.simulate")
    checked = _checked(task, algorithm, run, compute)
    rounds, seed = run.rounds, run.seed
    if experiment is None:
        experiment = _describe(task, algorithm, run, given)
    with contextlib.nullcontext(folder) if isinstance(folder, FolderClaim) else claimed(folder) as claim:
        folder = claim.folder
        found = _go_on(folder, experiment, task, algorithm, checked) if resume else _make_way(claim, overwrite)
        if not found:
            claim.begin(to_toml(experiment), anew=not resume)
        with logged(folder), contextlib.closing(Checkpoints(folder)) as checkpoints:
            start = checkpoints.latest() if found else None
            earlier = None if start is None else _history(task, algorithm, seed, start)
            done = 0 if earlier is None else int(earlier.rounds[-1])
            _refuse_less(folder, done, rounds)
            if earlier is not None:
                require_same(identify(task, algorithm, checked), identity_of(earlier.state), algorithm)
            claim.begin(to_toml(experiment), anew=False)
            write_clients(folder, task.data)
            if earlier is not None and _complete(folder, earlier, run):
                claim.settle()
                return History.load(folder / HISTORY)
            about = _about(folder, found)
            keeper = Keeper(claim, checkpoints, about, checkpoint_seconds, earlier)
            with interruptible(keeper), _noted():
                history = simulate(
                    task,
                    algorithm,
                    replace(run, rounds=rounds - done),
                    compute,
                    state=earlier,
                    keep_state=keep_state,
                    progress=progress,
                    callbacks=[*callbacks, keeper],
                )
        if keeper.interrupted and int(history.rounds[-1]) < rounds:
            raise Interrupted(history)
        return history


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """Write an error to the run's log as well."""
    try:
        yield
    except Exception:
        LOG.exception("the run ends with an error")
        raise


def check(task: Task, algorithm: Algorithm, rounds: int, options: Mapping[str, Any]) -> SimulationOptions:
    """Refuse what cannot be run, before any folder is made or cleared for it; return the checked options."""
    own = {name: value for name, value in options.items() if name in SimulateKeywords.__annotations__}
    prepare_jax()
    checked = _checked(task, algorithm, *read_options(check, None, None, own | {"rounds": rounds}))
    with precision(checked.dtype, checked.compute.matmul):
        setup.program_shape(task, algorithm, checked)
        algorithm.bound(checked.sampled)
    return checked


def check_resume(
    folder: Path,
    experiment: Mapping[str, Mapping[str, Any]],
    task: Task,
    algorithm: Algorithm,
    checked: SimulationOptions,
) -> None:
    """Refuse what :func:`record` would refuse to continue; nothing is written."""
    if _go_on(folder, experiment, task, algorithm, checked):
        run = open_run(folder)
        history = None if run.status in ("running", "killed") else run.history()
        _refuse_less(folder, 0 if history is None else int(history.rounds[-1]), checked.run.rounds)


def _refuse_less(folder: Path, done: int, rounds: int) -> None:
    if done > rounds:
        raise ValueError(f"the run in {folder} is at round {done} already; rounds={rounds} is less")


def _checked(task: Task, algorithm: Algorithm, run: RunOptions, compute: ComputeOptions) -> SimulationOptions:
    options = SimulationOptions.of(task, run, compute)
    check_count("rounds", run.rounds)
    setup.check(task, algorithm, options.sampled)
    make_sampler(run.sampling, task.data.num_clients, options.sampled, algorithm.partial)
    return options


def _given(*values: RunOptions | ComputeOptions | None) -> dict[str, Any]:
    """Return the options that differ from the defaults, given as values."""
    return {
        name: getattr(value, name)
        for value in values
        if value is not None
        for name, default in defaults(type(value)).items()
        if getattr(value, name) is not default
    }


def _check_sections(experiment: Any) -> None:
    """Refuse what cannot be written as the sections of a file."""
    if experiment is None:
        return
    if not isinstance(experiment, Mapping) or not all(isinstance(section, Mapping) for section in experiment.values()):
        raise TypeError(f"experiment must map sections to settings, not {shown(experiment)}")
    try:
        to_toml(experiment)
    except (TypeError, ValueError) as error:
        raise TypeError(f"experiment cannot be written as TOML: {error}") from error


def _make_way(claim: FolderClaim, overwrite: bool) -> bool:
    """Refuse a folder that holds what the run would replace, unless it may; return that there is none to continue."""
    if overwrite or claim.begun:
        return False
    if any((claim.folder / name).exists() for name in (ABOUT, CHECKPOINTS)):
        raise FolderError(
            f"{claim.folder} holds a run already; resume it (--resume), replace it (--overwrite), or give another "
            "folder"
        )
    _refuse_to_replace(claim.folder, RUN_FILES)
    return False


def _refuse_to_replace(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder with files that are of no run and that a run would replace."""
    if foreign := [name for name in names if (folder / name).exists()]:
        raise FolderError(
            f"{folder} holds {', '.join(foreign)} but no run, and a run would replace that; move it away, or give "
            "another folder (overwrite=True replaces it)"
        )


def _go_on(
    folder: Path,
    experiment: Mapping[str, Mapping[str, Any]],
    task: Task,
    algorithm: Algorithm,
    options: SimulationOptions,
) -> bool:
    """Return whether there is a run to continue; refuse one that was made differently."""
    if not (folder / ABOUT).exists():
        if any(path.name.isdigit() for path in (folder / CHECKPOINTS).glob("*")):
            raise FolderError(f"{folder} has checkpoints but no {ABOUT}, so it is unclear which run they belong to")
        _refuse_to_replace(folder, set(RUN_FILES) - LEFT_AT_START)
        return False
    if not (folder / EXPERIMENT).exists():
        raise FolderError(f"{folder} holds what is left of a run that was being replaced; begin again with --overwrite")
    run = open_run(folder)
    found = difference(run.experiment, experiment, _FREE)
    if found is not None:
        name, old, new = found
        raise ValueError(
            f"the run in {folder} was made with {name} = {old!r}, and now it is {new!r}; change it back, or "
            "start a new run in another folder"
        )
    check_same(run, task, algorithm, options)
    return True


def _complete(folder: Path, earlier: History, run: RunOptions) -> bool:
    there = run.until is not None and Until.parse(run.until).reached(earlier.metrics)
    whole = there or int(earlier.rounds[-1]) == run.rounds
    return whole and open_run(folder).status == "finished" and (folder / HISTORY).exists()


def _about(folder: Path, found: bool) -> dict[str, Any]:
    """Return the content of run.json for this part of the run, with when and how it began."""
    began = open_run(folder).about if found else {}
    return {
        "started": began.get("started", now()),
        "resumed": [*began.get("resumed", []), now()] if found else [],
        "command": " ".join(sys.argv),
        "versions": versions(),
        "digests": DIGESTS,
        "hardware": hardware(),
    }


def _history(task: Task, algorithm: Algorithm, seed: int, start: Checkpoint) -> History:
    kept = {name: start.record[name] for name in ("rounds", "metrics", "seconds")}
    costs = series_of(start.record)
    return History(algorithm.label, algorithm.settings(), task.name, seed, **kept, costs=costs, state=start.state)


def _describe(task: Task, algorithm: Algorithm, run: RunOptions, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a run that no file describes: names and numbers, for readers and for resuming."""
    problem = {"task": task.name, "clients": task.data.num_clients, "rows": len(task.data), "reduction": task.reduction}
    plain = {k: v for k, v in given.items() if k not in _HEAD and isinstance(v, str | int | float | bool)}
    return {
        "problem": problem,
        "algorithm": {"name": algorithm.label, **plain_settings(algorithm.settings())},
        "simulation": {**{name: getattr(run, name) for name in _HEAD}, **plain},
    }
