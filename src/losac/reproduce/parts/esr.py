"""The search for ESR's preprocessing, which the paper does not state.

All eighteen cells of Table 2 for ESR lie on one curve in t = η·n_i·T·R, times M for LoSAC: that of gradient descent on
the pooled data with mean loss. So a short run of gradient descent tells, for any preprocessing, start and output, how
near all cells would come; federated runs of the four corner cells of both methods then check it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.data import FederatedData, load
from losac.history import sweep
from losac.models import two_nn
from losac.reproduce.paper import BLOCKS, STEPS, TABLE_2
from losac.reproduce.parts.esr_candidates import CANDIDATES, prepare
from losac.reproduce.parts.esr_distance import METHODS, POINTS, Distance, corner_distance, curve_distance
from losac.reproduce.problems import SHAPES, algorithm
from losac.reproduce.study import Claim, Figure, Findings, Job, Measured, Options, Study, Table
from losac.task import classification

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ETA, CLIENTS, SAMPLED, ROUNDS, ROWS = 1e-4, 100, 10, 500, 9200
UNIT = ETA * ROWS / CLIENTS * ROUNDS * min(STEPS)
"""The smallest t, of which all others are multiples."""
STARTS, OUTPUTS, SPLITS = ("he", "glorot"), ("softmax", "sigmoid"), ("random", "recording")
CORNERS = tuple(itertools.product((min(BLOCKS), max(BLOCKS)), (min(STEPS), max(STEPS))))
FEDERATED = (*(name for name in CANDIDATES if "row" in name or "unit" in name), "feature", "whole")
"""The candidates for federated runs: the others are far too fast or slow by gradient descent."""


def jobs(options: Options) -> list[Job]:
    """Return a job of gradient descent for each candidate and split, and one for each federated corner cell."""
    if options.quick:
        few = {"split": "random", "starts": ["he"], "outputs": ["softmax"], "per_unit": 20, "units": 3}
        flows = [Job(flow, {"candidate": name, **few}, f"ESR: {name}") for name in ("row", "standard")]
        cell = {
            "candidates": ["row"],
            "outputs": ["softmax"],
            "m": 5,
            "t": 2,
            "rounds": 20,
            "seeds": list(options.seeds[:1]),
        }
        return flows + [Job(corner, {"method": method, **cell}, f"ESR: {method}") for method in METHODS]
    most = max(point.units for point in POINTS)
    flows = [
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
    cells = [
        Job(
            corner,
            {
                "method": method, "candidates": list(FEDERATED), "outputs": list(OUTPUTS), "m": m, "t": t,
                "rounds": ROUNDS, "seeds": list(options.seeds),
            },
            f"ESR: federated {method}, M={m}, T={t}",
            10.0 * t,
        )
        for method, (m, t) in itertools.product(METHODS, CORNERS)
    ]  # fmt: skip
    return flows + cells


@lru_cache(maxsize=2)
def _raw(clients: int, partition: str, split: str) -> FederatedData:
    return load("esr", clients, partition, preprocessing="none", split=split)


def prepared(candidate: str, clients: int, partition: str, split: str = "random") -> FederatedData:
    """Return ESR as a candidate prepares it."""
    raw = _raw(clients, partition, split)
    if raw.test is None:
        raise ValueError("ESR has a test part")
    x, test = prepare(candidate, raw.x, raw.test[0])
    return dataclasses.replace(raw, x=x, test=(test, raw.test[1]))


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


def network(start: Any, output: str) -> Any:
    """Return the 2NN with two outputs and a softmax, or with one and the logistic function."""
    return two_nn(SHAPES["esr"].inputs, 1 if output == "sigmoid" else 2, start=start)


def corner(
    method: str, candidates: list[str], outputs: list[str], m: int, t: int, rounds: int, seeds: list[int]
) -> list[dict[str, Any]]:
    """Return loss and accuracy of one federated cell for every candidate, whose runs share a compiled program."""
    chosen = algorithm(method, step_size=ETA, local_steps=t, blocks=m)
    found = []
    for output, candidate in itertools.product(outputs, candidates):
        task = classification(network("he", output), prepared(candidate, CLIENTS, "sorted"))
        members = sweep(
            task, chosen, {}, seeds, rounds=rounds, clients_per_round=SAMPLED, eval_every=rounds
        ).members  # fmt: skip
        ends = [
            {name: None if one.diverged is not None else one.final(name) for name in ("loss", "accuracy")}
            for one in members
        ]
        found.append({"candidate": candidate, "output": output, "runs": ends})
    return found


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Sort the candidates by their distance from the paper's cells."""
    flows = {
        (one.arguments["candidate"], one.arguments["split"], run["start"], run["output"]): run
        for one in measured
        if one.arguments.get("per_unit")
        for run in one.result
    }
    cells: dict[tuple[str, str], dict[tuple[str, int, int], Any]] = {}
    for one in measured:
        if "method" in one.arguments:
            for entry in one.result:
                key = tuple(one.arguments[name] for name in ("method", "m", "t"))
                cells.setdefault((entry["candidate"], entry["output"]), {})[key] = entry["runs"]
    near = {key: curve_distance(run) for key, run in flows.items()}
    ordered = sorted(near, key=lambda key: _loss(near[key]))
    corners = {pair: corner_distance(found) for pair, found in cells.items()}
    ranked = sorted(corners, key=lambda pair: _loss(corners[pair]))
    tables = [_flow_table(ordered, near), _corner_table(ranked, corners, cells)]
    best = ordered[0]
    figure = Figure("esr", "Gradient descent on ESR beside the paper's cells", partial(_draw, flows, ordered[:4]))
    summary = (
        f"Nearest by gradient descent: {', '.join(best)} ({_words(near[best])}). Nearest in federated runs of "
        f"{len(cells[ranked[0]])} cells: {', '.join(ranked[0])} ({CANDIDATES[ranked[0][0]][0]}; "
        f"{_words(corners[ranked[0]])}); row, softmax: {_words(corners.get(('row', 'softmax')))}."
    )
    return Findings(summary, [_claim(near[best])], tables, [figure])


def _loss(distance: Distance | None) -> float:
    return distance.loss if distance is not None and math.isfinite(distance.loss) else math.inf


def _words(distance: Distance | None) -> str:
    if distance is None:
        return "diverged"
    return f"{100 * distance.loss:.1f} % in loss, {100 * distance.accuracy:.1f} points in accuracy"


def _claim(best: Distance | None) -> Claim:
    text = "ESR's cells of Table 2 can be reproduced from what the paper states."
    close = best is not None and best.loss < 0.05 and best.cells == len(POINTS)
    return Claim(
        text,
        "Table 2",
        "not testable" if best is None or best.cells < len(POINTS) else "holds in part" if close else "fails",
        "The preprocessing is not stated; the nearest of those tried is off by "
        f"{_words(best)} on average over the cells (near: below 5 %).",
    )


def _flow_table(ordered: Sequence[tuple[str, str, str, str]], near: Mapping[Any, Distance | None]) -> Table:
    columns = ("preprocessing", "what it does", "split", "start", "output", "loss, %", "accuracy, points", "cells")
    rows = []
    for key in ordered:
        found = near[key]
        numbers = (None, None, None) if found is None else (100 * found.loss, 100 * found.accuracy, found.cells)
        rows.append([key[0], CANDIDATES[key[0]][0], *key[1:], *numbers])
    note = "Mean distances from the paper's cells, of gradient descent on the pooled data; blank where it diverged."
    return Table("descent", "All candidates by gradient descent, the nearest first", columns, rows, note)


def _corner_table(
    ranked: Sequence[tuple[str, str]], corners: Mapping[Any, Distance | None], cells: Mapping[Any, Any]
) -> Table:
    keys = list(cells[ranked[0]])
    columns = ["preprocessing", "output", "loss, %", "accuracy, points", *(f"{a} M={m} T={t}" for a, m, t in keys)]
    rows: list[list[Any]] = [["the paper", None, None, None, *(TABLE_2["esr", *key].loss for key in keys)]]
    for pair in ranked:
        found = corners[pair]
        numbers = [None, None] if found is None else [100 * found.loss, 100 * found.accuracy]
        rows.append([*pair, *numbers, *(_mean_loss(cells[pair][key]) for key in keys)])
    note = "Mean loss over the seeds at the last round; blank where a run diverged. He-normal start."
    return Table("federated", "Candidates in federated runs, the nearest first", columns, rows, note)


def _mean_loss(runs: Sequence[Mapping[str, Any]]) -> float | None:
    values = [run["loss"] for run in runs]
    return None if None in values else float(np.mean(values))


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


STUDY = Study("esr", "ESR's preprocessing, which the paper does not state", jobs, conclude, ("esr",))
