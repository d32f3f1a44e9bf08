"""The paper's problems, and runs of algorithms on them as records that can be written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm
from losac.data import FederatedData, load
from losac.history import History
from losac.models import Start, two_nn
from losac.simulation import sweep
from losac.task import Task, classification


class Dataset(NamedTuple):
    """A real data set: its inputs and classes, and the paper's N, S and step size for its figures."""

    inputs: int
    classes: int
    clients: int
    sampled: int
    step_size: float
    rounds: int


DATASETS = {
    "mnist": Dataset(784, 10, 1000, 50, 4e-4, 100),
    "har": Dataset(561, 6, 100, 10, 1e-4, 500),
    "esr": Dataset(178, 2, 100, 10, 1e-4, 500),
}
START: Start = "he"
"""The paper does not state its initial weights; ``table2`` compares the candidates, and this one comes closest."""


PREPROCESSING = {"esr": "row-max"}
"""Nor does it state how ESR's rows were prepared; of those that the study ``esr`` tries, this one comes closest."""
OUTPUTS = {"esr": 1}
"""The 2NN's outputs where they are not one for each class: ESR has one and the logistic function."""


def version(data: str) -> int:
    """Return the version of jobs on a data set, raised with the way its rows are prepared."""
    return 2 if data in PREPROCESSING else 1


@lru_cache(maxsize=2)
def paper_data(name: str, clients: int, partition: str) -> FederatedData:
    """Return one of the paper's data sets, divided among clients; the last two are kept in memory."""
    options: dict[str, Any] = {"preprocessing": PREPROCESSING[name]} if name in PREPROCESSING else {}
    return load(name, clients, partition, **options)


def paper_task(
    name: str,
    clients: int = 100,
    partition: str = "sorted",
    *,
    start: Start = START,
) -> Task:
    """Return the paper's 2NN on one of its data sets."""
    model = two_nn(DATASETS[name].inputs, OUTPUTS.get(name, DATASETS[name].classes), start=start)
    return classification(model, paper_data(name, clients, partition))


def algorithm(name: str, **settings: Any) -> Algorithm:
    """Return an algorithm by its name and settings."""
    return ALGORITHMS[name](**settings)


def run(
    task: Task,
    method: Algorithm,
    seeds: Sequence[int],
    *,
    rounds: int,
    sampled: int,
    grid: Mapping[str, Sequence[Any]] | None = None,
    curve: Sequence[str] = (),
    points: int = 51,
    targets: Sequence[float] = (),
    eval_every: int = 1,
    **options: Any,
) -> list[dict[str, Any]]:
    """Return one record for every combination of the grid's settings and the seeds, which run at once.

    Args:
      task, method, seeds, grid: as for :func:`losac.sweep`.
      rounds, eval_every, options: likewise.
      sampled: S.
      curve: the metrics to keep over the rounds, thinned to so many points.
      points: how many.
      targets: accuracies; what it took to reach each, at first and to stay for five evaluations, is recorded.
    """
    grid = dict(grid or {})
    found = sweep(task, method, grid, seeds, rounds=rounds, clients_per_round=sampled, eval_every=eval_every, **options)
    return [record(one, grid, curve, points, targets) for one in found.members]


def record(
    history: History, grid: Mapping[str, Any], curve: Sequence[str], points: int, targets: Sequence[float]
) -> dict[str, Any]:
    """Return what a run reached and cost, as JSON holds it."""
    entry: dict[str, Any] = {"seed": history.seed, **{name: history.settings[name] for name in grid}}
    entry |= {
        "diverged": history.diverged,
        "rounds": int(history.rounds[-1]),
        "final": {name: None if history.diverged is not None else history.final(name) for name in history.metrics},
        "bytes": int(history.bytes_up[-1] + history.bytes_down[-1]),
        "gradients": float(history.gradients[-1]),
    }
    if targets:
        entry["reached"] = {f"{target:g}": reached(history, target) for target in targets}
        entry["stayed"] = {f"{target:g}": reached(history, target, sustained=5) for target in targets}
    if curve:
        entry["curve"] = thinned(history, curve, points)
    return entry


def reached(history: History, target: float, sustained: int = 1) -> dict[str, float] | None:
    """Return the round, bytes and gradients at which the accuracy first reached a target, or None."""
    when = history.rounds_to("accuracy", target, sustained=sustained)
    if when is None:
        return None
    at = int(np.searchsorted(history.rounds, when))
    spent = history.bytes_up[at] + history.bytes_down[at]
    return {"round": when, "bytes": int(spent), "gradients": float(history.gradients[at])}


def thinned(history: History, metrics: Sequence[str], points: int) -> dict[str, list[float]]:
    """Return metrics at some evenly spaced evaluations, the first and the last among them."""
    measured = np.flatnonzero(~np.isnan(history.metric(metrics[0])))
    at = measured[np.unique(np.linspace(0, len(measured) - 1, min(points, len(measured))).round().astype(int))]
    return {"round": history.rounds[at].tolist()} | {name: history.metric(name)[at].tolist() for name in metrics}
