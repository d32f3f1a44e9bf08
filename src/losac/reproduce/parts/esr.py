"""The search for ESR's preprocessing, which the paper does not state: federated runs of the cells of Table 2.

Many candidates on four cells; then, on all eighteen, the nearest of these and of ``esr-flow``, which tries still more
by gradient descent on the pooled data.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from losac.data import FederatedData, load
from losac.history import sweep
from losac.models import two_nn
from losac.reproduce.paper import BLOCKS, STEPS, TABLE_2
from losac.reproduce.parts.esr_candidates import CANDIDATES, prepare
from losac.reproduce.parts.esr_distance import METHODS, Distance, corner_distance
from losac.reproduce.problems import SHAPES, algorithm
from losac.reproduce.study import Claim, Findings, Job, Measured, Options, Study, Table
from losac.task import classification

ETA, CLIENTS, SAMPLED, ROUNDS, ROWS = 1e-4, 100, 10, 500, 9200
UNIT = ETA * ROWS / CLIENTS * ROUNDS * min(STEPS)
"""The smallest t, of which all others are multiples."""
STARTS, OUTPUTS, SPLITS = ("he", "glorot"), ("softmax", "sigmoid"), ("random", "recording")
CORNERS = tuple((m, max(STEPS)) for m in (min(BLOCKS), max(BLOCKS)))
"""M and T of the cells: with the most local steps, where the candidates differ the most."""
_PER_ROW = (name for name in CANDIDATES if ("row" in name or "unit" in name) and name != "row centred max")
FEDERATED = (*_PER_ROW, "feature", "whole")
"""The candidates for federated runs: the others are far too fast or slow by gradient descent, or like one of these."""
FINALISTS = ("row centred max", "log row", "row mean")
"""The candidates for all cells: the two nearest of ``esr-flow``, and the one that the other studies use."""


def jobs(options: Options) -> list[Job]:
    """Return one job for each cell of both methods, which tries all candidates; the short form tries one."""
    if options.quick:
        return [_job(method, ("row",), OUTPUTS[:1], 5, 2, 20, options.seeds[:1]) for method in METHODS]
    few = [_job(method, FEDERATED, OUTPUTS, m, t, ROUNDS, options.seeds) for method in METHODS for m, t in CORNERS]
    every = itertools.product(METHODS, BLOCKS, STEPS)
    return few + [_job(method, FINALISTS, OUTPUTS, m, t, ROUNDS, options.seeds) for method, m, t in every]


def _job(
    method: str, candidates: Sequence[str], outputs: Sequence[str], m: int, t: int, rounds: int, seeds: Sequence[int]
) -> Job:
    arguments = {
        "method": method, "candidates": list(candidates), "outputs": list(outputs), "m": m, "t": t, "rounds": rounds,
        "seeds": list(seeds),
    }  # fmt: skip
    return Job(corner, arguments, f"ESR: federated {method}, M={m}, T={t}, {len(candidates)} candidates", 10.0 * t)


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
    """Sort the candidates by their distance from the paper's cells, on the few and on all."""
    few, every = (_cells(measured, finalists) for finalists in (False, True))
    tables, summary = [], ""
    for name, title, cells in (("all-cells", "all cells", every), ("federated", "four cells", few)):
        if not cells:
            continue
        distances = {pair: corner_distance(found) for pair, found in cells.items()}
        ranked = sorted(distances, key=lambda pair: loss_of(distances[pair]))
        tables.append(_table(name, f"Federated runs of {title}, the nearest first", ranked, distances, cells))
        best, kept = ranked[0], ("row mean", "softmax")
        nearest = distances[best]
        summary += (
            f"Nearest of {len(cells)} in federated runs of {len(cells[best])} cells: {', '.join(best)} "
            f"({CANDIDATES[best[0]][0]}; {words(nearest)}). "
        )
        if kept in distances and best != kept:
            summary += f"What the other studies use, {', '.join(kept)}: {words(distances[kept])}. "
        if cells is every or not every:
            judged = claim(nearest, len(cells[best]))
    return Findings(summary.strip(), [judged], tables)


def _cells(measured: Sequence[Measured], finalists: bool) -> dict[tuple[str, str], dict[tuple[str, int, int], Any]]:
    """Return the runs of every candidate and output by cell, of the jobs on few cells or of those on all."""
    cells: dict[tuple[str, str], dict[tuple[str, int, int], Any]] = {}
    for one in measured:
        if (one.arguments["candidates"] == list(FINALISTS)) == finalists:
            for entry in one.result:
                key = tuple(one.arguments[name] for name in ("method", "m", "t"))
                cells.setdefault((entry["candidate"], entry["output"]), {})[key] = entry["runs"]
    return cells


def loss_of(distance: Distance | None) -> float:
    """Return the distance in loss; infinity where a run diverged."""
    return distance.loss if distance is not None and math.isfinite(distance.loss) else math.inf


def words(distance: Distance | None) -> str:
    """Return a distance as words."""
    if distance is None:
        return "diverged"
    return f"{100 * distance.loss:.1f} % in loss, {100 * distance.accuracy:.1f} points in accuracy"


def claim(best: Distance | None, cells: int) -> Claim:
    """Judge whether the cells can be reproduced, by the nearest candidate."""
    complete = best is not None and best.cells == cells
    close = best is not None and best.loss < 0.05
    return Claim(
        "ESR's cells of Table 2 can be reproduced from what the paper states.",
        "Table 2",
        "not testable" if not complete else "holds in part" if close else "fails",
        "The preprocessing is not stated; the nearest of those tried is off by "
        f"{words(best)} on average over the cells (near: below 5 %).",
    )


def _table(
    name: str,
    title: str,
    ranked: Sequence[tuple[str, str]],
    distances: Mapping[Any, Distance | None],
    cells: Mapping[Any, Any],
) -> Table:
    keys = list(cells[ranked[0]])
    columns = ["preprocessing", "output", "loss, %", "accuracy, points", *(f"{a} M={m} T={t}" for a, m, t in keys)]
    rows: list[list[Any]] = [["the paper", None, None, None, *(TABLE_2["esr", *key].loss for key in keys)]]
    for pair in ranked:
        found = distances[pair]
        numbers = [None, None] if found is None else [100 * found.loss, 100 * found.accuracy]
        rows.append([*pair, *numbers, *(_mean_loss(cells[pair][key]) for key in keys)])
    note = "Mean loss over the seeds at the last round; blank where a run diverged. He-normal start."
    return Table(name, title, columns, rows, note)


def _mean_loss(runs: Sequence[Mapping[str, Any]]) -> float | None:
    values = [run["loss"] for run in runs]
    return None if None in values else float(np.mean(values))


STUDY = Study("esr", "ESR's preprocessing, which the paper does not state", jobs, conclude, ("esr",))
