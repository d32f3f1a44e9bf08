"""``losac.runs.record``: :func:`losac.simulate` into a folder, from where it can go on."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from losac._devices import prepare_jax
from losac._files import locked, write_whole
from losac.algorithms.contract import Algorithm
from losac.history import Callback, History, simulate
from losac.history.history import plain_settings
from losac.history.simulate import check_counts, make_plan
from losac.runs.checkpoints import Checkpoint, Checkpoints
from losac.runs.clients import write_clients
from losac.runs.interrupt import Interrupted, interruptible
from losac.runs.keeper import FolderError, Keeper, now
from losac.runs.layout import ABOUT, CHECKPOINTS, EXPERIMENT, FILES, HISTORY, LOCK
from losac.runs.log import logged
from losac.runs.machine import hardware, versions
from losac.runs.run import open_run
from losac.runs.sections import difference, to_toml
from losac.simulation import setup
from losac.task import Task

LOG = logging.getLogger("losac.runs")
_FREE = {("simulation", "rounds"), ("simulation", "target")}
"""What may differ between the parts of a run: it can be made longer."""


def record(
    task: Task,
    algorithm: Algorithm,
    folder: str | Path,
    *,
    rounds: int,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float = 10.0,
    experiment: Mapping[str, Mapping[str, Any]] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> History:
    """Simulate, and keep the run in a folder: configuration, versions, metrics as they come, checkpoints, log.

    Ctrl-C and SIGTERM end the run after the rounds in progress, save it and raise :class:`KeyboardInterrupt`. A run
    that was stopped or killed goes on with ``resume=True`` bit for bit, from its last checkpoint.

    Args:
      task: the problem.
      algorithm: from :mod:`losac.algorithms`.
      folder: of this run alone; made where it is not there.
      rounds: of the whole run, whatever was done before; a finished run is made longer by more.
      seed: decides client sampling, local data and initial weights.
      resume: go on with the run in the folder; begin it where there is none.
      overwrite: replace the run that is there.
      checkpoint_seconds: least time between checkpoints; they never take more than about a tenth of the time.
      experiment: what ``experiment.toml`` is to say, by sections; made of the arguments if not given.
      callbacks: told of the run as well.
      options: further arguments of :func:`losac.simulate`.

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
    folder = Path(folder)
    if resume and overwrite:
        raise ValueError("resume goes on with what is in the folder, and overwrite deletes it: use one of both")
    if jax.process_count() > 1:
        raise ValueError("a run over several processes cannot be kept in a folder; use losac.simulate")
    check(task, algorithm, rounds, options)
    if experiment is None:
        experiment = _describe(task, algorithm, rounds, seed, options)
    with _own(folder):
        found = _go_on(folder, experiment) if resume else _make_way(folder, overwrite)
        write_whole(folder / EXPERIMENT, to_toml(experiment))
        write_clients(folder, task.data)
        with logged(folder), contextlib.closing(Checkpoints(folder)) as checkpoints:
            start = checkpoints.latest() if found else None
            earlier = None if start is None else _history(task, algorithm, seed, start)
            if earlier is not None and _complete(folder, earlier, rounds):
                return History.load(folder / HISTORY)
            about = _about(folder, found)
            keeper = Keeper(folder, checkpoints, about, checkpoint_seconds, earlier)
            done = 0 if earlier is None else int(earlier.rounds[-1])
            if done > rounds:
                raise ValueError(f"the run in {folder} is at round {done} already; rounds={rounds} is less")
            with interruptible(keeper), _noted():
                history = simulate(
                    task,
                    algorithm,
                    rounds=rounds - done,
                    seed=seed,
                    state=earlier,
                    callbacks=[*callbacks, keeper],
                    **options,
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


def check(task: Task, algorithm: Algorithm, rounds: int, options: Mapping[str, Any]) -> None:
    """Refuse what cannot be run, before any folder is made or cleared for it."""
    sampled = options.get("clients_per_round") or task.data.num_clients
    make_plan(
        task,
        sampled,
        options.get("dtype", "float32"),
        options.get("layout"),
        options.get("local_steps"),
        options.get("loss_every"),
    )
    check_counts(rounds, options.get("eval_every", 1))
    setup.check(task, algorithm, sampled)


@contextlib.contextmanager
def _own(folder: Path) -> Iterator[None]:
    """Have the folder to ourselves, and leave nothing in it where no run has begun."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; give a folder")
    new = not folder.exists()
    empty = new or not any(folder.iterdir())
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(folder))
        except BlockingIOError:
            raise FolderError(f"another run writes into {folder}; give each run a folder of its own") from None
        except OSError as error:
            raise FolderError(f"cannot write into {folder}: {error.strerror or error}") from error
        try:
            yield
        finally:
            if empty and not (folder / ABOUT).exists():
                _clear(folder)
                (folder / LOCK).unlink(missing_ok=True)
                if new:
                    folder.rmdir()


def _make_way(folder: Path, overwrite: bool) -> bool:
    """Refuse a folder that holds a run, or delete the run where that is asked for; return that there is none."""
    if any((folder / name).exists() for name in (ABOUT, CHECKPOINTS)) and not overwrite:
        raise FolderError(
            f"{folder} holds a run already; resume it (--resume), replace it (--overwrite), or give another folder"
        )
    _clear(folder)
    return False


def _clear(folder: Path) -> None:
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _go_on(folder: Path, experiment: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether there is a run to go on with; refuse where it was made otherwise."""
    if not (folder / ABOUT).exists():
        if any(path.name.isdigit() for path in (folder / CHECKPOINTS).glob("*")):
            raise FolderError(f"{folder} has checkpoints but no {ABOUT}, so that nobody knows what run they are of")
        return False
    before = open_run(folder).experiment
    found = difference(before, experiment, _FREE)
    if found is not None:
        name, old, new = found
        raise ValueError(
            f"the run in {folder} was made with {name} = {old!r}, and now it is {new!r}; leave that as it was, or "
            "begin another run in another folder"
        )
    return True


def _complete(folder: Path, earlier: History, rounds: int) -> bool:
    return int(earlier.rounds[-1]) == rounds and open_run(folder).status == "finished" and (folder / HISTORY).exists()


def _about(folder: Path, found: bool) -> dict[str, Any]:
    """Return what run.json says of this part of the run, with when and how it was begun."""
    began = open_run(folder).about if found else {}
    return {
        "started": began.get("started", now()),
        "resumed": [*began.get("resumed", []), now()] if found else [],
        "command": " ".join(sys.argv),
        "versions": versions(),
        "hardware": hardware(),
    }


def _history(task: Task, algorithm: Algorithm, seed: int, start: Checkpoint) -> History:
    return History(algorithm.label, algorithm.settings(), task.name, seed, **start.record, state=start.state)


def _describe(task: Task, algorithm: Algorithm, rounds: int, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a run that no file describes: names and numbers, for its readers and its resumption."""
    problem = {"task": task.name, "clients": task.data.num_clients, "rows": len(task.data), "reduction": task.reduction}
    plain = {k: v for k, v in options.items() if isinstance(v, str | int | float | bool)}
    return {
        "problem": problem,
        "algorithm": {"name": algorithm.label, **plain_settings(algorithm.settings())},
        "simulation": {"rounds": rounds, "seed": seed, **plain},
    }
