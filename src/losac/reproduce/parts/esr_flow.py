"""The search for ESR's preprocessing among many: gradient descent on the pooled data, on which all cells lie.

All eighteen cells of Table 2 for ESR lie on one curve in t = η·n_i·T·R, times M for LoSAC: that of gradient descent on
the pooled data with mean loss. So a run of gradient descent tells, for any preprocessing, start and output, how near
all cells would come. Minutes on a GPU, hours on two cores.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.history import sweep
from losac.reproduce.parts.esr import OUTPUTS, UNIT, claim, loss_of, network, prepared, words
from losac.reproduce.parts.esr_candidates import CANDIDATES
from losac.reproduce.parts.esr_distance import POINTS, Distance, curve_distance
from losac.reproduce.problems import algorithm
from losac.reproduce.study import Figure, Findings, Job, Measured, Options, Study, Table
from losac.task import classification

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

STARTS, SPLITS = ("he", "glorot"), ("random", "recording")


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


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Sort the candidates by their distance from the paper's cells."""
    flows = {
        (one.arguments["candidate"], one.arguments["split"], run["start"], run["output"]): run
        for one in measured
        for run in one.result
    }
    near = {key: curve_distance(run) for key, run in flows.items()}
    ordered = sorted(near, key=lambda key: loss_of(near[key]))
    best = ordered[0]
    figure = Figure("esr", "Gradient descent on ESR beside the paper's cells", partial(_draw, flows, ordered[:4]))
    summary = f"Nearest of {len(near)} by gradient descent: {', '.join(best)} ({words(near[best])})."
    return Findings(summary, [claim(near[best], len(POINTS))], [_flow_table(ordered, near)], [figure])


def _flow_table(ordered: Sequence[tuple[str, str, str, str]], near: Mapping[Any, Distance | None]) -> Table:
    columns = ("preprocessing", "what it does", "split", "start", "output", "loss, %", "accuracy, points", "cells")
    rows = []
    for key in ordered:
        found = near[key]
        numbers = (None, None, None) if found is None else (100 * found.loss, 100 * found.accuracy, found.cells)
        rows.append([key[0], CANDIDATES[key[0]][0], *key[1:], *numbers])
    note = "Mean distances from the paper's cells, of gradient descent on the pooled data; blank where it diverged."
    return Table("descent", "All candidates by gradient descent, the nearest first", columns, rows, note)


def _draw(flows: Mapping[Any, Mapping[str, Any]], shown: Sequence[tuple[str, str, str, str]]) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.report.style import style

    drawing = Drawing((9, 3.6), layout="constrained")
    for axes, metric in zip(drawing.subplots(1, 2), ("loss", "accuracy")):
        for method, marker, colour in (("SCAFFOLD", "s", "0.45"), ("LoSAC", "o", "black")):
            half = POINTS[:9] if method == "SCAFFOLD" else POINTS[9:]
            at = [UNIT * point.units for point in half]
            axes.plot(at, [getattr(p, metric) for p in half], marker, color=colour, label=f"the paper's {method}")
        for index, key in enumerate(shown):
            values = np.array(flows[key][metric], float)
            look = style(index)
            axes.plot(
                UNIT * np.arange(1, len(values) + 1),
                values,
                color=look.colour,
                linestyle=look.dashes,
                label=", ".join(key),
            )
        name = "training loss" if metric == "loss" else "test accuracy"
        axes.set(xlabel="t = η·n_i·T·R (·M for LoSAC)", ylabel=name, xscale="log")
        axes.set_xticks([10, 20, 50, 100], ["10", "20", "50", "100"])
        axes.set_xticks([], minor=True)
    drawing.axes[0].legend(fontsize=8)
    return drawing


STUDY = Study("esr-flow", "ESR's preprocessing by gradient descent", jobs, conclude, ("esr",))
