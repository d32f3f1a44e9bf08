"""Search with Optuna, which asks for points in batches; each batch runs as one program."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from losac._extras import need
from losac.tuning.space import Axis, Point, Range, is_ordered
from losac.tuning.trials import Evaluate, Trial


def optuna_search(axes: Mapping[str, Axis], trials: int, seed: int, batch: int, evaluate: Evaluate) -> list[Trial]:
    """Search with Optuna's TPE sampler; diverged trials are reported as pruned, which it counts as the worst.

    Args:
      axes: setting → values or range.
      trials: how many points to ask for; repeated points run once.
      seed: the sampler's seed.
      batch: how many points to ask for and run at once.
      evaluate: runs a list of points.
    """
    optuna = _optuna()
    found: list[tuple[Point, Trial]] = []
    with _silence(optuna):
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction="minimize", sampler=sampler)
        for start in range(0, trials, batch):
            asked = [study.ask() for _ in range(min(batch, trials - start))]
            points = [{name: _suggest(one, name, axis) for name, axis in axes.items()} for one in asked]
            known = [point for point, _ in found]
            new = [point for i, point in enumerate(points) if point not in known and point not in points[:i]]
            found += zip(new, evaluate(new) if new else [])
            for one, point in zip(asked, points):
                trial = next(trial for settings, trial in found if settings == point)
                if trial.diverged is None:
                    study.tell(one, trial.cost)
                else:
                    study.tell(one, state=optuna.trial.TrialState.PRUNED)
    return [trial for _, trial in found]


def _suggest(trial: Any, name: str, axis: Axis) -> Any:
    """Return Optuna's suggestion; it gets numbers in a list as indices, and so knows their order."""
    if isinstance(axis, Range):
        return trial.suggest_float(name, axis.low, axis.high, log=axis.log)
    places = len(axis)
    at = trial.suggest_int(name, 0, places - 1) if is_ordered(axis) else trial.suggest_categorical(name, range(places))
    return axis[at]


def _optuna() -> Any:
    return need("optuna", "search='optuna'", "tune")


@contextlib.contextmanager
def _silence(optuna: Any) -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
