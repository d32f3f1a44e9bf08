"""Table 2: rounds to 85 %, loss and accuracy of SCAFFOLD and LoSAC for M = 2, 3, 5 and T = 2, 4, 6.

The paper does not state its initial weights, so that all cells are measured with two of the usual ones. SCAFFOLD is
also run with a server step of M, which makes its steps as long as LoSAC's at equal η: what is left of LoSAC's lead
there is the method's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.reproduce.paper import BLOCKS, STEPS, TABLE_2, Cell
from losac.reproduce.problems import START, algorithm, paper_task, run
from losac.reproduce.study import Claim, Figure, Findings, Job, Measured, Options, Study, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ETA, CLIENTS, SAMPLED, ROUNDS, TARGET = 1e-4, 100, 10, 500, 0.85
DATA, STARTS = ("mnist", "har", "esr"), ("he", "glorot")
MEMBERS = {"scaffold": "SCAFFOLD", "losac": "LoSAC", "long": "SCAFFOLD (server step M)"}
WEIGHTS = {"he": "He-normal", "glorot": "Glorot-uniform"}
_COST = {"mnist": 10.0, "har": 4.0, "esr": 2.0}


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
    return Job(measure, arguments, label, _COST[data] * t * rounds / ROUNDS)


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


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Set our cells beside the paper's, and judge what it says of them."""
    cells = {tuple(one.arguments[k] for k in ("data", "method", "m", "t", "start")): one.result for one in measured}
    starts, sets = [start for start in STARTS if any(key[4] == start for key in cells)], _sets(cells)
    distances = {start: _distances(cells, start) for start in starts}
    tables = [
        Table(
            "distance",
            "Distance from the paper's Table 2, median over the cells",
            ("data", "initial weights", "loss, relative", "accuracy, points", "rounds to 85 %, relative"),
            [
                [
                    data.upper(),
                    WEIGHTS[start],
                    *(_percent(d) if i != 1 else _number(100 * d) for i, d in enumerate(row)),
                ]
                for start in starts
                for data, row in distances[start].items()
            ],
            "Medians of |ours − the paper's| over the cells of LoSAC and SCAFFOLD; ours is the mean over the seeds.",
        ),
        *(_table(cells, data, START) for data in sets),
    ]
    if "glorot" in starts:
        tables += [_table(cells, data, "glorot") for data in sets]
    caption = (
        f"Our training loss at round {_read_at(cells)} against the paper's at round 500, one point for each M and T of "
        "Table 2; on the grey line they are equal. Points: mean over the seeds; bars: least and greatest; hollow: "
        f"without a seed that diverged. {WEIGHTS[START]} initial weights."
    )
    figures = [Figure("table2", caption, lambda: _draw(cells))]
    return Findings(_summary(distances, options), _claims(cells), tables, figures)


def _read_at(cells: Mapping[Any, Any]) -> int:
    """Return the round at which our losses and accuracies were read."""
    return int(next(iter(cells.values()))[0]["round"])


def _sets(cells: Mapping[Any, Any]) -> list[str]:
    """Return the data sets that were measured."""
    return [data for data in DATA if any(key[0] == data for key in cells)]


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the mean over the seeds; NaN where one of them has no value."""
    values = [row[name] for row in rows]
    return float("nan") if None in values else float(np.mean(values))


def _distances(cells: Mapping[Any, Any], start: str) -> dict[str, tuple[float, float, float]]:
    found = {}
    for data in _sets(cells):
        rows = [
            (
                abs(_mean(result, "loss") / paper.loss - 1),
                abs(_mean(result, "accuracy") - paper.accuracy),
                abs(_mean(result, "first") / paper.rounds - 1),
            )
            for (name, method, m, t, begun), result in cells.items()
            if (name, begun) == (data, start) and method != "long" and (paper := TABLE_2[data, method, m, t])
        ]
        losses, accuracies, rounds = (np.array(column) for column in zip(*rows))
        found[data] = tuple(_known(np.median, column) for column in (losses, accuracies, rounds))
    return found  # type: ignore[return-value]


def _known(function: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
    """Return a mean, median or maximum of the values that there are; NaN where there is none."""
    known = values[np.isfinite(values)]
    return float(function(known)) if len(known) else float("nan")


def _number(value: float, form: str = "{:.2f}") -> str:
    return form.format(value) if np.isfinite(value) else "–"


def _percent(share: float) -> str:
    return _number(100 * share, "{:.1f} %")


def _table(cells: Mapping[Any, Any], data: str, start: str) -> Table:
    columns = [
        "method", "M", "T", "rounds to 85 %", "the paper's", "to stay there", "loss", "the paper's", "accuracy, %",
        "the paper's",
    ]  # fmt: skip
    rows = []
    for (name, method, m, t, begun), result in cells.items():
        if (name, begun) != (data, start):
            continue
        paper: Cell | None = TABLE_2.get((data, method, m, t))
        rows.append(
            [
                MEMBERS[method], m, t,
                _spread(result, "first", "{:.0f}"), paper and paper.rounds, _spread(result, "stayed", "{:.0f}"),
                _spread(result, "loss", "{:.4f}"), paper and f"{paper.loss:.4f}",
                _spread(result, "accuracy", "{:.2f}", 100), paper and f"{100 * paper.accuracy:.2f}",
            ]
        )  # fmt: skip
    note = (
        "Mean ± standard deviation over the seeds; *the paper's* belongs to the column before it. *To stay there*: the "
        "first of five rounds in a row at 85 % or more. Loss and accuracy at round "
        f"{_read_at(cells)}, the paper's at round 500."
    )
    return Table(f"{data}-{start}", f"{data.upper()}, {WEIGHTS[start]} initial weights", columns, rows, note)


def _spread(rows: Sequence[Mapping[str, Any]], name: str, form: str, scale: float = 1) -> str:
    values = [scale * row[name] for row in rows if row[name] is not None]
    if not values:
        return "never" if name in ("first", "stayed") else "diverged"
    spread = f" ± {form.format(np.std(values))}" if len(values) > 1 else ""
    word = "never" if name in ("first", "stayed") else "diverged"
    missing = f" ({len(rows) - len(values)} of {len(rows)} {word})" if len(values) < len(rows) else ""
    return form.format(np.mean(values)) + spread + missing


def _summary(distances: Mapping[str, Mapping[str, tuple[float, float, float]]], options: Options) -> str:
    parts = [
        f"{data.upper()} {_percent(loss)} in loss and {_number(100 * accuracy)} points in accuracy"
        for data, (loss, accuracy, _) in distances[START].items()
    ]
    text = f"Median distance of our cells from the paper's, with {WEIGHTS[START]} initial weights: {'; '.join(parts)}."
    if len(distances) > 1:
        other = next(start for start in distances if start != START)
        parts = [f"{data.upper()} {_percent(row[0])}" for data, row in distances[other].items()]
        text += f" With {WEIGHTS[other]} weights: {', '.join(parts)} in loss."
    return text + (" The short form stops at round 50, so that its distances mean nothing." if options.quick else "")


def _claims(cells: Mapping[Any, Any]) -> list[Claim]:
    sizes = sorted({key[2] for key in cells}), sorted({key[3] for key in cells})
    sets = _sets(cells)
    table = list(itertools.product(sets, *sizes))

    def get(method: str, data: str, m: int, t: int, name: str) -> float:
        return _mean(cells[data, method, m, t, START], name)

    ratios = np.array([get("scaffold", *cell, "first") / get("losac", *cell, "first") for cell in table])
    fair = np.array([get("long", *cell, "first") / get("losac", *cell, "first") for cell in table])
    losses = np.array([get("losac", *cell, "loss") / get("scaffold", *cell, "loss") for cell in table])
    even = np.array([get("losac", *cell, "loss") / get("long", *cell, "loss") for cell in table])
    esr = np.array([cell[0] == "esr" for cell in table])
    speed, fair_speed = (_known(np.mean, values) for values in (ratios, fair))
    most_esr, fair_esr = (_number(_known(np.max, values[esr])) for values in (ratios, fair))
    lower, fair_lower = (_known(np.median, values) for values in (losses, even))
    reached, ended = bool(np.isfinite(ratios).any()), bool(np.isfinite(losses).any())
    wins, fair_wins = int(np.sum(ratios > 1)), int(np.sum(fair > 1))
    most, fewest = max(sizes[0]), min(sizes[0])
    memory = [(get("losac", d, fewest, t, "loss"), get("losac", d, most, t, "loss")) for d in sets for t in sizes[1]]
    better = sum(large < small for small, large in memory)
    middle = sizes[0][len(sizes[0]) // 2]
    cheap = [
        (get("losac", d, middle, min(sizes[1]), "first"), get("scaffold", d, middle, max(sizes[1]), "first"))
        for d in sets
    ]
    as_cheap, told = sum(a <= 1.15 * b for a, b in cheap), any(np.isfinite(a + b) for a, b in cheap)
    shown = [[_number(value, "{:.0f}") for value in pair] for pair in cheap]
    pairs = ", ".join(f"{a} against {b} on {data.upper()}" for data, (a, b) in zip(sets, shown))
    return [
        Claim(
            "LoSAC requires much fewer communication rounds than SCAFFOLD to reach a given accuracy.",
            "Ablation, communication efficiency",
            "not testable" if not reached else
            "holds only at equal step size" if wins > 0.8 * len(table) and fair_wins < 0.8 * len(table) else
            "holds" if fair_wins >= 0.8 * len(table) else "fails",
            f"Fewer in {wins} of {len(table)} cells at η = 1e-4; with SCAFFOLD's server step at M, which makes the "
            f"steps equally long, in {fair_wins}.",
        ),
        Claim(
            "The communication efficiency is improved by more than 300 % for ESR and 100 % on average.",
            "Ablation, communication efficiency",
            "not testable" if not reached else
            "holds only at equal step size" if speed > 1.8 > fair_speed else
            "holds" if fair_speed > 1.8 else "fails",
            f"Rounds of SCAFFOLD over rounds of LoSAC: {_number(speed)} on average, {most_esr} at most on ESR; with "
            f"equally long steps {_number(fair_speed)} and {fair_esr}.",
        ),
        Claim(
            "LoSAC ends at a lower loss than SCAFFOLD.",
            "Table 2",
            "not testable" if not ended else
            "holds only at equal step size" if lower < 0.95 <= fair_lower else
            "holds" if fair_lower < 0.95 else "fails",
            f"Median ratio of the losses at round {_read_at(cells)}: {_number(lower)} at η = 1e-4, "
            f"{_number(fair_lower)} with equally long steps.",
        ),
        Claim(
            f"LoSAC with T = {min(sizes[1])} and M = {middle} needs about the rounds of SCAFFOLD with "
            f"T = {max(sizes[1])}, at a third of the computation.",
            "Ablation, computation efficiency",
            "not testable" if not told else
            "holds only at equal step size" if as_cheap > len(cheap) / 2 else "fails",
            f"Rounds to 85 %, LoSAC's against SCAFFOLD's: {pairs}.",
        ),
        Claim(
            "A larger memory M leads to a better performance of LoSAC.",
            "Ablation, local memory",
            "holds only at equal step size" if better >= 0.8 * len(memory) else
            "holds in part" if better >= 0.5 * len(memory) else "fails",
            f"M = {most} ends lower than M = {fewest} in {better} of {len(memory)} pairs; at equal η the length of "
            "LoSAC's steps grows with M.",
        ),
        Claim(
            "With M = 2 LoSAC's storage is that of SCAFFOLD.",
            "Ablation, local memory",
            "fails",
            "Counted on the program (losac algorithms): a client of SCAFFOLD keeps d numbers between rounds, one of "
            "LoSAC M·d.",
        ),
    ]  # fmt: skip


def _draw(cells: Mapping[Any, Any]) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.reproduce.looks import look_of, plain_log

    sets = _sets(cells)
    drawing = Drawing((3.2 * len(sets) + 0.4, 3.6), layout="constrained")
    for panel, data in zip(drawing.subplots(1, len(sets), squeeze=False)[0], sets):
        drawn = [key for key in cells if key[0] == data and key[4] == START and key[1] != "long"]
        everything = []
        for method in ("losac", "scaffold"):
            look = look_of(method)
            for key in (key for key in drawn if key[1] == method):
                theirs = TABLE_2[data, method, key[2], key[3]].loss
                ours = [row["loss"] for row in cells[key] if row["loss"] is not None]
                if not ours:
                    continue
                mean = float(np.clip(np.mean(ours), min(ours), max(ours)))
                everything += [theirs, *ours]
                panel.errorbar(
                    theirs, mean, [[mean - min(ours)], [max(ours) - mean]], fmt=look.marker, color=look.colour,
                    markerfacecolor=look.colour if len(ours) == len(cells[key]) else "white", markersize=5, capsize=2,
                )  # fmt: skip
            panel.plot([], [], look.marker, color=look.colour, markersize=5, label=MEMBERS[method])
        ends = [0.85 * min(everything, default=0.1), 1.15 * max(everything, default=1.0)]
        panel.plot(ends, ends, color="0.5", linewidth=1, zorder=0)
        panel.set(
            title=data.upper(), xlabel="the paper's loss at round 500", xscale="log", yscale="log", xlim=ends, ylim=ends
        )
        wide = ends[1] > 8 * ends[0]
        for axis in (panel.xaxis, panel.yaxis):
            plain_log(axis, (1.0, 2.0, 5.0) if wide else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0))
    drawing.axes[0].set_ylabel(f"our loss at round {_read_at(cells)}")
    drawing.axes[0].legend()
    return drawing


STUDY = Study("table2", "Table 2: memory M and local steps T", jobs, conclude, DATA)
