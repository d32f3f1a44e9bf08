"""How far a candidate for ESR's preprocessing lies from the cells of Table 2."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.reproduce.paper import BLOCKS, STEPS, TABLE_2

METHODS = ("scaffold", "losac")


class Point(NamedTuple):
    """A cell of Table 2 as a point of the curve: how many units of t, the loss and the accuracy."""

    units: int
    loss: float
    accuracy: float


POINTS = tuple(
    Point(t // min(STEPS) * (m if method == "losac" else 1), *TABLE_2["esr", method, m, t][1:])
    for method, m, t in itertools.product(METHODS, BLOCKS, STEPS)
)


class Distance(NamedTuple):
    """How far a candidate lies from the paper: the mean relative distance in loss, and in accuracy, of some cells."""

    loss: float
    accuracy: float
    cells: int


def curve_distance(run: Mapping[str, Any], points: Sequence[Point] = POINTS) -> Distance | None:
    """Return the distance of a gradient descent from the cells that it got to; None where it diverged before."""
    reached = [point for point in points if point.units <= len(run["loss"])]
    if run["diverged"] is not None or not reached:
        return None
    loss = [abs(run["loss"][point.units - 1] / point.loss - 1) for point in reached]
    accuracy = [abs(run["accuracy"][point.units - 1] - point.accuracy) for point in reached]
    return Distance(float(np.mean(loss)), float(np.mean(accuracy)), len(reached))


def corner_distance(cells: Mapping[tuple[str, int, int], Sequence[Mapping[str, Any]]]) -> Distance | None:
    """Return the distance of a candidate's federated cells from the paper's; None where a run diverged."""
    rows = []
    for (method, m, t), runs in cells.items():
        paper = TABLE_2["esr", method, m, t]
        values = [[run["loss"], run["accuracy"]] for run in runs]
        if any(value is None for pair in values for value in pair):
            return None
        loss, accuracy = np.mean(values, 0)
        rows.append((abs(loss / paper.loss - 1), abs(accuracy - paper.accuracy)))
    if not rows:
        return None
    off_loss, off_accuracy = np.mean(rows, 0)
    return Distance(float(off_loss), float(off_accuracy), len(rows))
