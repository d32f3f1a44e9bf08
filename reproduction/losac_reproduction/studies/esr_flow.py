"""The search for ESR's preprocessing among many: gradient descent on the pooled data, on which all cells lie.

All eighteen cells of Table 2 for ESR lie on one curve in t = η·n_i·T·R, times M for LoSAC: that of gradient descent on
the pooled data with mean loss. So a run of gradient descent tells, for any preprocessing, start and output, how near
all cells would come. Minutes on a GPU, hours on two cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.simulation import sweep
from losac.task import classification
from losac_reproduction.frame import cells
from losac_reproduction.panels import Panel, draw, line_of, mark
from losac_reproduction.paper import BLOCKS, STEPS, TABLE_2
from losac_reproduction.problems import algorithm
from losac_reproduction.studies.esr import METHODS, OUTPUTS, UNIT, Offset, network, offset, prepared
from losac_reproduction.studies.esr_candidates import CANDIDATES
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

STARTS, SPLITS = ("he", "glorot"), ("random", "recording")


class Point(NamedTuple):
    """A cell of Table 2 as a point of the curve: how many units of t, the loss and the accuracy."""

    units: int
    loss: float
    accuracy: float


POINTS = tuple(
    Point(t // min(STEPS) * (m if method == "losac" else 1), *TABLE_2["esr", method, m, t][1:])
    for method, m, t in itertools.product(METHODS, BLOCKS, STEPS)
)


def jobs(options: Options) -> list[Job]:
    """Return a job for each candidate and split; the short form has two candidates and a fifth of the way."""
    if options.quick:
        few = {"split": "random", "starts": ["he"], "outputs": ["softmax"], "per_unit": 20, "units": 3}
        return [Job(flow, {"candidate": name, **few}, f"ESR: {name}") for name in ("row", "standard")]
    most = max(point.units for point in POINTS)
    return [
        Job(
            flow,
            {
                "candidate": name, "split": split, "per_unit": 200, "units": most,
                "starts": list(STARTS if split == "random" else STARTS[:1]),
                "outputs": list(OUTPUTS if split == "random" else OUTPUTS[:1]),
            },
            f"ESR: gradient descent, {name}, {split} split",
            4.0 if split == "random" else 1.0,
        )
        for split, name in itertools.product(SPLITS, CANDIDATES)
    ]  # fmt: skip


def flow(
    candidate: str, split: str, starts: list[Any], outputs: list[str], per_unit: int, units: int
) -> list[dict[str, Any]]:
    """Return loss and accuracy of gradient descent on the pooled data after 1, 2, … units of t."""
    data = prepared(candidate, 1, "iid", split)
    found = []
    for start, output in itertools.product(starts, outputs):
        method = algorithm("dsgd", step_size=UNIT / per_unit / len(data))
        run = sweep(
            classification(network(start, output), data), method, {}, [0], rounds=per_unit * units, eval_every=per_unit
        ).members[0]  # fmt: skip
        curve = {name: [round(float(v), 4) for v in run.metric(name)[1:]] for name in ("loss", "accuracy")}
        found.append({"start": start, "output": output, "diverged": run.diverged, **curve})
    return found


Flow = tuple[str, str, str, str]
"""Candidate, split, start and output."""


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Sort the candidates by their distance from the paper's cells."""
    by = ("candidate", "split", "start", "output")
    flows = {metric: cells(frame, metric, by) for metric in ("loss", "accuracy")}
    lost = {key: math.isfinite(value) for key, [value] in cells(frame, "diverged", by).items()}
    near = {}
    for key, losses in flows["loss"].items():
        pairs = [
            (losses[p.units - 1], flows["accuracy"][key][p.units - 1], p.loss, p.accuracy)
            for p in POINTS if p.units <= len(losses) and not lost[key]
        ]  # fmt: skip
        near[key] = offset(pairs)
    near |= {key: Offset() for key in lost if key not in near}
    ordered = sorted(near, key=lambda key: near[key].loss)
    best = ordered[0]
    figure = Figure("esr", "Gradient descent on ESR and the paper's cells", partial(_draw, flows, ordered[:4]))
    summary = f"Nearest of {len(near)} by gradient descent: {', '.join(best)} ({near[best].words})."
    return Findings(summary, (), [_table(ordered, near)], [figure])


def _table(ordered: Sequence[Flow], near: Mapping[Flow, Offset]) -> ResultTable:
    columns = ("preprocessing", "what it does", "split", "start", "output", "loss, %", "accuracy, points", "cells")
    rows = [
        [key[0], CANDIDATES[key[0]][0], *key[1:], *near[key].shown, near[key].cells or None] for key in ordered
    ]  # fmt: skip
    note = "Mean distances from the paper's cells, of gradient descent on the pooled data; blank where it diverged."
    return ResultTable("descent", "All candidates by gradient descent, the nearest first", columns, rows, note)


def _draw(flows: Mapping[str, Mapping[Flow, list[float]]], shown: Sequence[Flow]) -> Drawing:
    panels: list[Panel] = []
    for metric, name in (("loss", "training loss"), ("accuracy", "test accuracy")):
        marks = []
        for method, half, form, colour in (("SCAFFOLD", POINTS[:9], "s", "0.45"), ("LoSAC", POINTS[9:], "o", "black")):
            at, values = [UNIT * point.units for point in half], [getattr(point, metric) for point in half]
            marks.append(mark("plot", at, values, form, color=colour, label=f"the paper's {method}"))
        for index, key in enumerate(shown):
            values = flows[metric].get(key, [])
            look = line_of(index, label=", ".join(key))
            marks.append(mark("plot", UNIT * np.arange(1, len(values) + 1), values, **look))
        panels.append(Panel(marks, {"xlabel": "t = η·n_i·T·R (·M for LoSAC)", "ylabel": name, "xscale": "log"},
                            finish=_ticks))  # fmt: skip
    return draw([panels], (9, 3.6), finish=lambda drawing: drawing.axes[0].legend(fontsize=8))


def _ticks(panel: Axes) -> None:
    panel.set_xticks([10, 20, 50, 100], ["10", "20", "50", "100"])
    panel.set_xticks([], minor=True)


STUDY = Study(
    "esr-flow", "ESR's preprocessing by gradient descent", jobs, conclude, ("esr",), place=3,
    keys={"start": "start", "output": "output"},
)  # fmt: skip
