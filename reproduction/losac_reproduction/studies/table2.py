"""Table 2: rounds to 85 %, loss and accuracy of SCAFFOLD and LoSAC for M = 2, 3, 5 and T = 2, 4, 6.

The paper does not state its initial weights, so all cells are measured with two of the usual ones. SCAFFOLD is
also run with a server step of M, which makes its steps as long as LoSAC's at equal η: what is left of LoSAC's lead
there is the method's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.frame import Cells, cells
from losac_reproduction.panels import DECADE, Panel, draw, look_of, mark
from losac_reproduction.paper import BLOCKS, STEPS, TABLE_2, Cell
from losac_reproduction.problems import START, algorithm, paper_task, run, version
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import known, mean, span, spread, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

ETA, CLIENTS, SAMPLED, ROUNDS, TARGET = 1e-4, 100, 10, 500, 0.85
DATA, STARTS = ("mnist", "har", "esr"), ("he", "glorot")
MEMBERS = {"scaffold": "SCAFFOLD", "losac": "LoSAC", "long": "SCAFFOLD (server step M)"}
WEIGHTS = {"he": "He-normal", "glorot": "Glorot-uniform"}
_COST = {"mnist": 10.0, "har": 4.0, "esr": 2.0}
WHERE, TABLE, MEMORY = "Ablation, communication efficiency", "Ablation study, Table 2", "Ablation, local memory"
CLAIMS = (
    Statement(
        "LoSAC requires much fewer communication rounds than SCAFFOLD to reach a given accuracy.", WHERE,
        "not testable if not reached | holds only at equal step size if min(wins, stay_wins) > 0.8 * cells > "
        "min(fair_wins, fair_stay_wins) | holds if min(fair_wins, fair_stay_wins) >= 0.8 * cells | holds in part if "
        "max(wins, stay_wins) | fails",
        "At η = 1e-4 LoSAC reaches 85 % first in {wins} of {cells} cells ({wins_each}), and is first to hold it for "
        "five evaluations in a row in {stay_wins} ({stay_each}){later}. With SCAFFOLD's server step at M, which makes "
        "the steps equally long, in {fair_wins} ({fair_each}) and {fair_stay_wins} ({fair_stay_each}). The paper has "
        "all {cells}.{never}",
        "Holds if it needs fewer rounds in four of five cells, by first crossings and by sustained rounds, at equal η "
        "and with equally long steps: the paper's claim is of every cell, so both counts must agree. A seed that "
        "never gets there loses to all that do.",
        Headline(
            "fewer rounds than SCAFFOLD to 85 %", "{cells} of {cells} cells", "{wins} ({wins_short})",
            "{fair_wins} ({fair_short}); sustained {fair_stay_wins} ({fair_stay_short})", "",
            "{stay_wins} ({stay_short})",
        ),
    ),
    Statement(
        "LoSAC improves the communication efficiency by more than 100 % on average.", "Abstract",
        "not testable if not reached | holds only at equal step size if max(speed, stay_speed) > 2 > max(fair_speed, "
        "fair_stay_speed) | holds if min(fair_speed, fair_stay_speed) > 2 | holds in part if max(speed, stay_speed) > "
        "1.5 | fails",
        "Rounds of SCAFFOLD over rounds of LoSAC, mean over the cells of Table 2: {speed:.2f} by first crossings and "
        "{stay_speed:.2f} sustained; with equally long steps {fair_speed:.2f} and {fair_stay_speed:.2f}. The paper's "
        "own cells have {paper_speed:.2f}.{left_out}",
        "More than 100 %: more than twice as few rounds, on average over the cells. Holds if so with equally long "
        "steps too, by first crossings and by sustained rounds; at equal η one of the two is enough, since the paper "
        "gives this size as an average and does not say how it counts the rounds.",
        Headline(
            "rounds of SCAFFOLD over LoSAC's, mean", "{paper_speed:.2f} (> 2)", "{speed:.2f}",
            "{fair_speed:.2f}; sustained {fair_stay_speed:.2f}", "", "{stay_speed:.2f}",
        ),
    ),
    Statement(
        "LoSAC needs more than 50 % fewer communication rounds than the state-of-the-art method to reach a specific "
        "accuracy.", "Introduction",
        "not testable if not reached | holds only at equal step size if max(saved, stay_saved) > 0.5 > "
        "max(fair_saved, fair_stay_saved) | holds if min(fair_saved, fair_stay_saved) > 0.5 | holds in part if halved "
        "or stay_halved | fails",
        "Rounds saved against SCAFFOLD, mean over the cells of Table 2: {saved:.0%} by first crossings ({halved} of "
        "{cells} cells save more than half) and {stay_saved:.0%} sustained ({stay_halved}); with equally long steps "
        "{fair_saved:.0%} and {fair_stay_saved:.0%}. The paper's own cells save {paper_saved:.0%} ({paper_halved} of "
        "{cells}).{left_out}",
        "Holds if more than half of the rounds are saved on average over the cells, with equally long steps too; in "
        "part if in some cells.",
    ),
    Statement(
        "The communication efficiency is improved by more than 300 % for ESR.", WHERE,
        "not testable if not there | holds only at equal step size if max(esr, stay_esr) > 4 > fair_esr | "
        "holds if min(esr, fair_esr) > 4 | fails",
        "Rounds of SCAFFOLD over rounds of LoSAC on ESR: at most {esr:.2f}, sustained {stay_esr:.2f}; with equally "
        "long steps {fair_esr:.2f}. The paper's greatest is {paper_esr:.2f}, its mean on ESR {paper_esr_mean:.2f}.",
        "More than 300 %: more than four times as few rounds, in the best cell, since the paper's mean on ESR is below "
        "that.",
    ),
    Statement(
        "LoSAC ends at a lower loss than SCAFFOLD.", TABLE,
        "not testable if not ended | holds only at equal step size if lower < 0.95 <= fair_lower | "
        "holds if fair_lower < 0.95 | fails",
        "Median ratio of the losses at round {at}: {lower:.2f} at η = 1e-4 (the paper's {paper_lower:.2f}), "
        "{fair_lower:.2f} with equally long steps, over the {ended} and {fair_ended} of {cells} cells where no seed "
        "diverged."
        "{unstable}",
        "Holds if the median ratio over the cells is below 0.95 with equally long steps too.",
        Headline(
            "final loss over SCAFFOLD's, median", "{paper_lower:.2f}", "{lower:.2f} ({ended} of {cells} cells)",
            "{fair_lower:.2f} ({fair_ended} of {cells} cells)"
        ),
    ),
    Statement(
        "LoSAC with T = {few} and M = {middle} needs about the rounds of SCAFFOLD with T = {many}, at a third of the "
        "computation.", "Ablation, computation efficiency",
        "not testable if not told | holds if min(as_cheap, fair_cheap) > sets / 2 | "
        "holds only at equal step size if as_cheap > sets / 2 | holds in part if as_cheap | fails",
        "Rounds to 85 %, LoSAC's against SCAFFOLD's: {pairs}; sustained: {stay_pairs}. Against SCAFFOLD with equally "
        "long steps: {fair_pairs}.",
        "Comparable: at most 15 % more first crossings. Holds if so on most data sets, also against SCAFFOLD with "
        "equally long steps.",
    ),
    Statement(
        "A larger memory M leads to a better performance of LoSAC.", MEMORY,
        "holds if better >= 0.8 * compared and fair_better > sets / 2 | holds only at equal step size if "
        "better >= 0.75 * compared | holds in part if better >= 0.5 * compared | fails",
        "M = {most} ends lower than M = {fewest} in {better} of {compared} pairs, but at equal η LoSAC's steps grow "
        "with M. {alike}",
        "Holds if the loss is lower in four of five pairs, and on most data sets also where both go equally far in a "
        "round; at equal step size alone, three of four pairs are enough.",
    ),
    Statement(
        "With M = 2 LoSAC performs more than 40 % better than SCAFFOLD on average.", MEMORY,
        "not testable if not small_there | holds only at equal step size if max(small, stay_small) > 0.4 > "
        "max(fair_small, fair_stay_small) | holds if min(fair_small, fair_stay_small) > 0.4 | holds in part if "
        "max(small, stay_small) > 0.2 | fails",
        "Rounds saved with M = {fewest}, mean over the cells: {small:.0%} by first crossings and {stay_small:.0%} "
        "sustained; with equally long steps {fair_small:.0%} and {fair_stay_small:.0%}. The paper's own cells save "
        "{paper_small:.0%}; their losses are {paper_loss:.0%} lower.{left_out}",
        "The paper does not say which performance. Its cells save {paper_small:.0%} of the rounds and {paper_loss:.0%} "
        "of the loss, so it means rounds. Holds if more than 40 % are saved with equally long steps too; at equal η "
        "one of first crossings and sustained rounds is enough; in part if more than 20 %.",
    ),
    Statement(
        "With M = 2 LoSAC's storage is that of SCAFFOLD.", MEMORY, "fails",
        "Counted on the program (losac algorithms): a client of SCAFFOLD keeps d numbers between rounds, one of LoSAC "
        "M·d.",
        "Holds if a client keeps as many numbers between rounds.",
    ),
)  # fmt: skip


def jobs(options: Options) -> list[Job]:
    """Return one job for each cell and start; the short form has the corners for HAR and a tenth of the rounds."""
    sets, blocks, steps = (("har",), (2, 5), (2, 6)) if options.quick else (DATA, BLOCKS, STEPS)
    starts = (START,) if options.quick else STARTS
    cells = itertools.product(sets, MEMBERS, blocks, steps, starts)
    return [
        _job(data, method, m, t, start, options)
        for data, method, m, t, start in cells
        if method != "long" or start == START
    ]


def _job(data: str, method: str, m: int, t: int, start: str, options: Options) -> Job:
    printed = TABLE_2[data, "losac" if method == "long" else method, m, t].rounds
    rounds = 50 if options.quick else max(ROUNDS, -(-printed * 7 // 500) * 100)
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    arguments = {"data": data, "method": method, "m": m, "t": t, "start": start, "rounds": rounds, "seeds": seeds}
    label = f"Table 2: {data} {MEMBERS[method]} M={m} T={t}, {start}"
    return Job(measure, arguments, label, _COST[data] * t * rounds / ROUNDS, version(data))


def measure(data: str, method: str, m: int, t: int, start: Any, rounds: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return, for every seed, what Table 2 has; the loss and accuracy are those of round 500."""
    task = paper_task(data, CLIENTS, "sorted", start=start)
    name, extra = ("scaffold", {"server_step": float(m)}) if method == "long" else (method, {})
    chosen = algorithm(name, step_size=ETA, local_steps=t, blocks=m, **extra)
    at = min(rounds, ROUNDS)
    records = run(
        task, chosen, seeds, rounds=rounds, sampled=SAMPLED, targets=[TARGET], curve=["loss", "accuracy"],
        points=1 + rounds // at, loss_every=at,
    )  # fmt: skip
    return [_row(one, at) for one in records]


def _row(record: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Keep what the table shows, at the round where it is read."""
    curve = record["curve"]
    there = at in curve["round"]
    place = curve["round"].index(at) if there else -1
    key = f"{TARGET:g}"
    return {
        "seed": record["seed"],
        "diverged": record["diverged"],
        "first": (record["reached"][key] or {}).get("round"),
        "stayed": (record["stayed"][key] or {}).get("round"),
        "loss": curve["loss"][place] if there else None,
        "accuracy": curve["accuracy"][place] if there else None,
        "round": at,
    }


class CellRuns:
    """The runs by (data, method, M, T, start), and what was measured."""

    def __init__(self, frame: pd.DataFrame) -> None:
        metrics = ("first", "stayed", "loss", "accuracy", "round")
        found = {name: cells(frame, name, ("data", "method", "m", "t", "start")) for name in metrics}
        self.first, self.stayed, self.loss, self.accuracy, rounds = found.values()
        self.keys = list(self.loss)
        self.sets = [data for data in DATA if any(key[0] == data for key in self.keys)]
        self.starts = [start for start in STARTS if any(key[4] == start for key in self.keys)]
        self.at = int(next(iter(rounds.values()))[0])
        """The round at which losses and accuracies were read."""


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare our cells with the paper's, and judge what it says of them."""
    found = CellRuns(frame)
    distances = {start: _distances(found, start) for start in found.starts}
    rows = [
        [data.upper(), WEIGHTS[start], told(one.loss, ".1%"), told(one.mean_loss, ".1%"),
         told(100 * one.accuracy, ".2f"), told(one.rounds, ".1%"), f"{one.cells} of {one.of}"]
        for start in found.starts
        for data, one in distances[start].items()
    ]  # fmt: skip
    columns = ("data", "initial weights", "loss, median", "loss, mean", "accuracy, points", "rounds to 85 %", "cells")
    note = (
        "|ours − the paper's| over the cells of LoSAC and SCAFFOLD, medians where not said otherwise, relative but for "
        "the accuracy; ours is the mean over the seeds. *Cells*: those where no seed diverged; the others are left "
        "out of losses and accuracies."
    )
    title = "Distance from the paper's Table 2"
    caption = (
        f"Our training loss at round {found.at} against the paper's at round 500, one point for each M and T of Table "
        "2; on the grey line they are equal. Points: mean over the seeds; bars: least and greatest; hollow: without a "
        f"seed that diverged. {WEIGHTS[START]} initial weights."
    )
    return Findings(
        _summary(found, distances, options),
        judge(CLAIMS, _numbers(found)),
        [
            ResultTable("distance", title, columns, rows, note),
            *(_table(found, data, start) for start in found.starts for data in found.sets),
        ],
        [Figure("table2", caption, lambda: _draw(found))],
    )


class CellDistance(NamedTuple):
    """How far the cells of a data set are from the paper's: medians, the mean for the loss, and of how many cells."""

    loss: float
    mean_loss: float
    accuracy: float
    rounds: float
    cells: int
    of: int


def _distances(found: CellRuns, start: str) -> dict[str, CellDistance]:
    """Return the distances in loss, accuracy and rounds, by data set."""
    distances: dict[str, CellDistance] = {}
    for data in found.sets:
        mine = [key for key in found.keys if (key[0], key[4]) == (data, start) and key[1] != "long"]
        papers = [TABLE_2[key[:4]] for key in mine]
        losses = [abs(mean(found.loss[key]) / paper.loss - 1) for key, paper in zip(mine, papers)]
        points = [abs(mean(found.accuracy[key]) - paper.accuracy) for key, paper in zip(mine, papers)]
        rounds = [abs(mean(found.first[key]) / paper.rounds - 1) for key, paper in zip(mine, papers)]
        loss, accuracy, first = (_known(np.median, column) for column in (losses, points, rounds))
        distances[data] = CellDistance(loss, _known(np.mean, losses), accuracy, first, len(known(losses)), len(mine))
    return distances


def _known(function: Callable[[Any], Any], values: Iterable[float]) -> float:
    """Return a mean, median or maximum of the values that there are; NaN where there is none."""
    there = known(values)
    return float(function(there)) if there else float("nan")


def _table(found: CellRuns, data: str, start: str) -> ResultTable:
    columns = [
        "method", "M", "T", "rounds to 85 %", "the paper's", "sustained", "loss", "the paper's", "accuracy, %",
        "the paper's",
    ]  # fmt: skip

    def cell(values: Cells, form: str, missing: str, scale: float = 1) -> str:
        scaled = [scale * value for value in values[key]]
        return spread(scaled, form, missing, "{lost} of {all} {missing}")

    rows = []
    for key in (key for key in found.keys if (key[0], key[4]) == (data, start)):
        paper: Cell | None = TABLE_2.get(key[:4])
        rows.append(
            [
                MEMBERS[key[1]], *key[2:4],
                cell(found.first, ".0f", "never"), paper and paper.rounds, cell(found.stayed, ".0f", "never"),
                cell(found.loss, ".4f", "diverged"), paper and f"{paper.loss:.4f}",
                cell(found.accuracy, ".2f", "diverged", 100), paper and f"{100 * paper.accuracy:.2f}",
            ]
        )  # fmt: skip
    note = (
        "Mean ± standard deviation over the seeds; *the paper's* belongs to the column before it. *Sustained*: the "
        "first of five evaluations in a row at 85 % or more, even if it falls below later. Loss and accuracy at round "
        f"{found.at}, the paper's at round 500."
    )
    title = f"{data.upper()}, {WEIGHTS[start]} initial weights"
    return ResultTable(f"{data}-{start}", title, columns, rows, note, inline=start == START)


def _summary(found: CellRuns, distances: Mapping[str, Mapping[str, CellDistance]], options: Options) -> str:
    parts = [
        f"{data.upper()} {told(one.loss, '.1%')} in loss (mean {told(one.mean_loss, '.1%')}) and "
        f"{told(100 * one.accuracy, '.2f')} points in accuracy{_without(one)}"
        for data, one in distances[START].items()
    ]
    text = f"Median distance of our cells from the paper's, with {WEIGHTS[START]} initial weights: {'; '.join(parts)}."
    for start in (start for start in distances if start != START):
        parts = [f"{data.upper()} {told(one.loss, '.1%')}{_without(one)}" for data, one in distances[start].items()]
        text += f" With {WEIGHTS[start]} weights: {', '.join(parts)} in loss."
    text += f" {unstable}" if (unstable := instabilities(found)) else ""
    return text + (" The short form stops at round 50: its distances mean nothing." if options.quick else "")


def _without(one: CellDistance) -> str:
    """Say how many cells a mean or median leaves out."""
    left_out = one.of - one.cells
    return f" (without {left_out} of {one.of} cells, where a seed diverged)" if left_out else ""


def _numbers(found: CellRuns) -> dict[str, Any]:
    """Return what the claims are judged by, all with the same initial weights."""
    blocks, steps = (sorted({key[place] for key in found.keys}) for place in (2, 3))
    table = list(itertools.product(found.sets, blocks, steps))
    few = np.array([m == min(blocks) for _, m, _ in table])
    esr = np.array([data == "esr" for data, _, _ in table])
    paper = np.array([TABLE_2[d, "scaffold", m, t].rounds / TABLE_2[d, "losac", m, t].rounds for d, m, t in table])
    paper_loss = np.array([TABLE_2[d, "losac", m, t].loss / TABLE_2[d, "scaffold", m, t].loss for d, m, t in table])
    numbers: dict[str, Any] = {
        "cells": len(table), "sets": len(found.sets), "at": found.at, "few": steps[0], "many": steps[-1],
        "most": max(blocks), "fewest": min(blocks), "middle": blocks[len(blocks) // 2],
        "paper_speed": paper.mean(), "paper_saved": (1 - 1 / paper).mean(), "paper_halved": int((paper > 2).sum()),
        "paper_esr": _known(np.max, paper[esr]), "paper_esr_mean": _known(np.mean, paper[esr]),
        "paper_lower": np.median(paper_loss), "paper_small": (1 - 1 / paper[few]).mean(),
        "paper_loss": (1 - paper_loss[few]).mean(),
    }  # fmt: skip
    kinds = (("", found.first, "scaffold"), ("stay_", found.stayed, "scaffold"), ("fair_", found.first, "long"),
             ("fair_stay_", found.stayed, "long"))  # fmt: skip
    for kind, rounds, rival in kinds:
        speed = _speeds(rounds, rival, table)
        wins = {data: [bool(v > 1) for v, cell in zip(speed, table) if cell[0] == data] for data in found.sets}
        finite = speed[np.isfinite(speed) & (speed > 0)]
        own = speed[few][np.isfinite(speed[few]) & (speed[few] > 0)]
        numbers |= {
            f"{kind}wins": int(np.sum(speed > 1)), f"{kind}speed": _known(np.mean, finite),
            f"{kind}saved": _known(np.mean, 1 - 1 / finite), f"{kind}halved": int(np.sum(speed > 2)),
            f"{kind}esr": _known(np.max, speed[esr]), f"{kind}small": _known(np.mean, 1 - 1 / own),
            f"{kind}short" if kind else "wins_short": told([sum(row) for row in wins.values()]),
            f"{kind}each" if kind else "wins_each": ", ".join(
                f"{data.upper()} {sum(row)} of {len(row)}" for data, row in wins.items()
            ),
        }  # fmt: skip
    first = _speeds(found.first, "scaffold", table)
    numbers |= {"reached": np.isfinite(first).any(), "there": np.isfinite(numbers["esr"]),
                "small_there": np.isfinite(numbers["small"]), "never": _never(found, table),
                "later": _later(found, table),
                "left_out": _left_out(first, table)}  # fmt: skip
    return numbers | _losses(found, table) | _cheap(found, steps, numbers["middle"]) | _memory(found, blocks, steps)


def _speeds(rounds: Cells, rival: str, table: Sequence[tuple[str, int, int]]) -> np.ndarray:
    """Return the rounds of a rival over LoSAC's, cell by cell: infinite or 0 where a seed of one never gets there, NaN
    where neither does.
    """
    pairs = [
        [mean(rounds[d, method, m, t, START], np.inf) for method in (rival, "losac")] for d, m, t in table
    ]  # fmt: skip
    return np.array([np.nan if np.isinf(a + b) and a == b else a / b for a, b in pairs])


def _left_out(speed: np.ndarray, table: Sequence[tuple[str, int, int]]) -> str:
    """Name the cells that a mean of ratios of rounds leaves out."""
    names = [f"{d.upper()} M = {m}, T = {t}" for v, (d, m, t) in zip(speed, table) if not (np.isfinite(v) and v > 0)]
    return f" The means leave out {'; '.join(names)}, where a seed never gets there." if names else ""


def _never(found: CellRuns, table: Sequence[tuple[str, int, int]]) -> str:
    """Name the runs that never hold the target for five evaluations."""
    lost = [
        f"{MEMBERS[method]} on {d.upper()} M = {m}, T = {t} ({count} of {len(stayed)})"
        for d, m, t in table for method in MEMBERS
        if (count := len(stayed := found.stayed[d, method, m, t, START]) - len(known(stayed)))
    ]  # fmt: skip
    return f" Seeds that never hold it for five evaluations: {'; '.join(lost)}." if lost else ""


def _losses(found: CellRuns, table: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    """Return the median ratios of losses over the cells where no seed diverged, and how many these are."""

    def ratios(rival: str) -> np.ndarray:
        pairs = [[mean(found.loss[d, method, m, t, START]) for method in ("losac", rival)] for d, m, t in table]
        return np.array([a / b for a, b in pairs])

    equal, fair = ratios("scaffold"), ratios("long")
    return {
        "lower": _known(np.median, equal), "fair_lower": _known(np.median, fair),
        "ended": int(np.isfinite(equal).sum()), "fair_ended": int(np.isfinite(fair).sum()),
        "unstable": f" {text}" if (text := instabilities(found)) else "",
    }  # fmt: skip


def _later(found: CellRuns, table: Sequence[tuple[str, int, int]]) -> str:
    """Name the cells where LoSAC is first to hold the target, and a run of it does not hold it to the end."""
    speed = _speeds(found.stayed, "scaffold", table)
    won = {cell for cell, v in zip(table, speed) if v > 1}
    names = [one.told for one in unstable(found) if one.method == "losac" and (one.data, one.m, one.t) in won]
    return f", of which {len(names)} do not hold it to the end with every seed: {'; '.join(names)}" if names else ""


class Unstable(NamedTuple):
    """A cell where some seeds diverged, or ended below the target although they had held it.

    ``lost`` of ``seeds`` seeds diverged; ``ends`` are the accuracies of those that fell.
    """

    data: str
    method: str
    m: int
    t: int
    lost: int
    seeds: int
    ends: tuple[float, ...]

    @property
    def told(self) -> str:
        """Return what happened, in words."""
        parts = [f"{self.lost} of {self.seeds} seeds diverge{'s' if self.lost == 1 else ''}"] if self.lost else []
        if self.ends:
            end = span(self.ends, ".1%")
            parts.append(f"{len(self.ends)} of {self.seeds} seeds end{'s' if len(self.ends) == 1 else ''} at {end}")
        return f"{self.data.upper()} M = {self.m}, T = {self.t} ({', '.join(parts)})"


def unstable(found: CellRuns) -> list[Unstable]:
    """Return the cells that are not stable, with the initial weights that the claims are judged by."""
    cases = []
    for (data, method, m, t, start), values in found.accuracy.items():
        if start == START:
            held = found.stayed[data, method, m, t, start]
            there = [(v, round_) for v, round_ in zip(values, held) if np.isfinite(v)]
            ends = tuple(float(v) for v, round_ in there if v < TARGET and round_ < found.at)
            if len(there) < len(values) or ends:
                cases.append(Unstable(data, method, m, t, len(values) - len(there), len(values), ends))
    return cases


def instabilities(found: CellRuns) -> str:
    """Name, for each method, the cells that are not stable."""
    parts = []
    for method, name in MEMBERS.items():
        if names := [one.told for one in unstable(found) if one.method == method]:
            parts.append(f"{name}: {'; '.join(names)}")
    return f"Not stable at the paper's own η: {'. '.join(parts)}." if parts else ""


def _cheap(found: CellRuns, steps: Sequence[int], middle: int) -> dict[str, Any]:
    """Compare LoSAC with the fewest local steps to SCAFFOLD with the most."""

    def pairs(rounds: Cells, rival: str) -> dict[str, tuple[float, float]]:
        keys = [((d, "losac", middle, steps[0], START), (d, rival, middle, steps[-1], START)) for d in found.sets]
        return {a[0]: (mean(rounds[a], np.inf), mean(rounds[b], np.inf)) for a, b in keys}

    def shown(found_pairs: Mapping[str, tuple[float, float]]) -> str:
        return ", ".join(
            f"{told(a, '.0f|never')} against {told(b, '.0f|never')} on {d.upper()}"
            for d, (a, b) in found_pairs.items()
        )  # fmt: skip

    first, stayed = pairs(found.first, "scaffold"), pairs(found.stayed, "scaffold")
    long = pairs(found.first, "long")
    return {
        "as_cheap": sum(np.isfinite(a) and a <= 1.15 * b for a, b in first.values()),
        "fair_cheap": sum(np.isfinite(a) and a <= 1.15 * b for a, b in long.values()),
        "told": any(np.isfinite(a + b) for a, b in first.values()),
        "pairs": shown(first), "stay_pairs": shown(stayed), "fair_pairs": shown(long),
    }  # fmt: skip


def _memory(found: CellRuns, blocks: Sequence[int], steps: Sequence[int]) -> dict[str, Any]:
    """Compare LoSAC's losses for different M at equal T, and at equal M·T, where a round moves equally far."""

    def last(data: str, m: int, t: int) -> float:
        return mean(found.loss[data, "losac", m, t, START], np.inf)

    pairs = [(last(d, blocks[0], t), last(d, blocks[-1], t)) for d in found.sets for t in steps]
    same = [(m, t, n, u) for m, t in itertools.product(blocks, steps) for n, u in itertools.product(blocks, steps)
            if m < n and m * t == n * u]  # fmt: skip
    alike = {(d, *one): (last(d, *one[:2]), last(d, *one[2:])) for one in same for d in found.sets}
    shown = "; ".join(
        f"{d.upper()} M = {m}, T = {t}: {told(a, '.4f|diverged')}, M = {n}, T = {u}: {told(b, '.4f|diverged')}"
        for (d, m, t, n, u), (a, b) in alike.items()
    )
    return {
        "better": sum(large < small for small, large in pairs), "compared": len(pairs),
        "fair_better": sum(large < small for small, large in alike.values()),
        "alike": f"Where the way of a round is the same, M·T: {shown}." if shown else "",
    }  # fmt: skip


def _draw(found: CellRuns) -> Drawing:
    panels: list[Panel] = []
    for data in found.sets:
        marks, everything = [], []
        for method in ("losac", "scaffold"):
            look = look_of(method)
            for key in (key for key in found.keys if (key[0], key[1], key[4]) == (data, method, START)):
                theirs, ours = TABLE_2[key[:4]].loss, known(found.loss[key])
                if not ours:
                    continue
                middle = float(np.clip(np.mean(ours), min(ours), max(ours)))
                everything += [theirs, *ours]
                marks.append(mark(
                    "errorbar", theirs, middle, [[middle - min(ours)], [max(ours) - middle]], fmt=look.marker,
                    color=look.colour, markersize=5, capsize=2,
                    markerfacecolor=look.colour if len(ours) == len(found.loss[key]) else "white",
                ))  # fmt: skip
            marks.append(mark("plot", [], [], look.marker, color=look.colour, markersize=5, label=MEMBERS[method]))
        ends = [0.85 * min(everything, default=0.1), 1.15 * max(everything, default=1.0)]
        marks.append(mark("plot", ends, ends, color="0.5", linewidth=1, zorder=0))
        subs = DECADE if ends[1] > 8 * ends[0] else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
        axes = {
            "title": data.upper(), "xlabel": "the paper's loss at round 500", "xscale": "log", "yscale": "log",
            "xlim": ends, "ylim": ends, **({} if panels else {"ylabel": f"our loss at round {found.at}"}),
        }  # fmt: skip
        panels.append(Panel(marks, axes, {"x": subs, "y": subs}))
    return draw([panels], (3.2 * len(panels) + 0.4, 3.6), finish=lambda drawing: drawing.axes[0].legend())


STUDY = Study("table2", "Table 2: memory M and local steps T", jobs, conclude, DATA, place=1)
