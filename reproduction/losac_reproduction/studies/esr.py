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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.data import FederatedData, load
from losac.models import two_nn
from losac.simulation import sweep
from losac.task import classification
from losac_reproduction.frame import Cells, cells
from losac_reproduction.paper import BLOCKS, STEPS, TABLE_2
from losac_reproduction.problems import DATASETS, algorithm
from losac_reproduction.studies.esr_candidates import CANDIDATES, prepare
from losac_reproduction.study import Findings, Job, JobResult, Options, ResultTable, Study
from losac_reproduction.words import mean, none

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("scaffold", "losac")
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
    return two_nn(DATASETS["esr"].inputs, 1 if output == "sigmoid" else 2, start=start)


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


class Offset(NamedTuple):
    """How far a candidate lies from the paper: the mean relative distance in loss, and in accuracy, of some cells; the
    loss is infinite where a run diverged.
    """

    loss: float = math.inf
    accuracy: float = math.inf
    cells: int = 0

    @property
    def words(self) -> str:
        """As words."""
        if math.isinf(self.loss):
            return "diverged"
        return f"{100 * self.loss:.1f} % in loss, {100 * self.accuracy:.1f} points in accuracy"

    @property
    def shown(self) -> list[float | None]:
        """In per cent and in points, for a table."""
        return [none(100 * self.loss), none(100 * self.accuracy)]


def offset(pairs: Sequence[tuple[float, float, float, float]]) -> Offset:
    """Return the distance of losses and accuracies from those of the paper: (ours, ours, the paper's, the paper's)."""
    if not pairs or not np.isfinite(pairs).all():
        return Offset()
    rows = [(abs(loss / paper - 1), abs(accuracy - papers)) for loss, accuracy, paper, papers in pairs]
    loss, accuracy = (float(np.mean(column)) for column in zip(*rows))
    return Offset(loss, accuracy, len(rows))


def by_stage(one: JobResult) -> JobResult:
    """Say whether a job was on few cells or on all."""
    stage = "all" if one.arguments["candidates"] == list(FINALISTS) else "few"
    return one._replace(arguments={**one.arguments, "stage": stage})


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Sort the candidates by their distance from the paper's cells, on the few and on all."""
    tables: list[ResultTable] = []
    summary = ""
    by = ("candidate", "output", "method", "m", "t")
    for stage, name, title in (("all", "all-cells", "all cells"), ("few", "federated", "four cells")):
        losses, accuracies = (cells(frame, metric, by, stage=stage) for metric in ("loss", "accuracy"))
        if not losses:
            continue
        offsets = {}
        for pair in dict.fromkeys(key[:2] for key in losses):
            mine = [key for key in losses if key[:2] == pair]
            paper = {key: TABLE_2["esr", *key[2:]] for key in mine}
            offsets[pair] = offset([(mean(losses[key]), mean(accuracies[key]), *paper[key][1:]) for key in mine])
        ranked = sorted(offsets, key=lambda pair: offsets[pair].loss)
        tables.append(_table(name, f"Federated runs of {title}, the nearest first", ranked, offsets, losses))
        best, kept = ranked[0], ("row centred max", "sigmoid")
        of = sum(key[:2] == best for key in losses)
        summary += (
            f"Nearest of {len(offsets)} in federated runs of {of} cells: {', '.join(best)} "
            f"({CANDIDATES[best[0]][0]}; {offsets[best].words}). "
        )
        if kept in offsets and best != kept:
            summary += f"What the other studies use, {', '.join(kept)}: {offsets[kept].words}. "
    return Findings(summary.strip(), (), tables)


def _table(
    name: str, title: str, ranked: Sequence[tuple[str, str]], offsets: Mapping[Any, Offset], losses: Cells
) -> ResultTable:
    keys = [key[2:] for key in losses if key[:2] == ranked[0]]
    columns = ["preprocessing", "output", "loss, %", "accuracy, points", *(f"{a} M={m} T={t}" for a, m, t in keys)]
    rows: list[list[Any]] = [["the paper", None, None, None, *(TABLE_2["esr", *key].loss for key in keys)]]
    rows += [[*pair, *offsets[pair].shown, *(none(mean(losses[*pair, *key])) for key in keys)] for pair in ranked]
    note = "Mean loss over the seeds at the last round; blank where a run diverged. He-normal start."
    return ResultTable(name, title, columns, rows, note)


STUDY = Study(
    "esr", "ESR's preprocessing, which the paper does not state", jobs, conclude, ("esr",), place=2,
    keys={"candidate": "candidate", "output": "output", "runs": "runs"}, reshape=by_stage,
)  # fmt: skip
