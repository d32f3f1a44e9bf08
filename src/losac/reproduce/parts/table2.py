"""Table 2: rounds to 85 %, loss and accuracy of SCAFFOLD and LoSAC for M = 2, 3, 5 and T = 2, 4, 6.

The paper does not state its initial weights, so that all cells are measured with two of the usual ones. SCAFFOLD is
also run with a server step of M, which makes its steps as long as LoSAC's at equal η: what is left of LoSAC's lead
there is the method's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.reproduce.paper import BLOCKS, STEPS, TABLE_2, Cell
from losac.reproduce.problems import START, algorithm, paper_task, run
from losac.reproduce.study import Claim, Figure, Findings, Job, Measured, Options, Study, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

ETA, CLIENTS, SAMPLED, ROUNDS, TARGET = 1e-4, 100, 10, 500, 0.85
DATA, STARTS = ("mnist", "har", "esr"), ("he", "glorot")
MEMBERS = {"scaffold": "SCAFFOLD", "losac": "LoSAC", "long": "SCAFFOLD, server step M"}
_COST = {"mnist": 10.0, "har": 4.0, "esr": 2.0}


def jobs(options: Options) -> list[Job]:
    """Return one job for each cell and start; the short form has the corners of the table and a tenth of the rounds."""
    blocks, steps = ((2, 5), (2, 6)) if options.quick else (BLOCKS, STEPS)
    starts = (START,) if options.quick else STARTS
    cells = itertools.product(DATA, MEMBERS, blocks, steps, starts)
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
    starts = [start for start in STARTS if any(key[4] == start for key in cells)]
    distances = {start: _distances(cells, start) for start in starts}
    tables = [
        Table(
            "distance",
            "Distance from the paper's Table 2, median over the cells",
            ("data", "start", "loss, relative", "accuracy, points", "rounds to 85 %, relative"),
            [
                [data, start, *(_percent(d) if i != 1 else f"{100 * d:.2f}" for i, d in enumerate(row))]
                for start in starts
                for data, row in distances[start].items()
            ],
            "Medians of |ours − paper's|, ours the mean over the seeds, over the cells of both methods.",
        ),
        *(_table(cells, data, START) for data in DATA),
    ]
    if "glorot" in starts:
        tables += [_table(cells, data, "glorot") for data in DATA]
    figures = [Figure("table2", "Our loss at round 500 beside the paper's, each cell of Table 2", lambda: _draw(cells))]
    return Findings(_summary(distances, options), _claims(cells), tables, figures)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the mean over the seeds; NaN where one of them has no value."""
    values = [row[name] for row in rows]
    return float("nan") if None in values else float(np.mean(values))


def _distances(cells: Mapping[Any, Any], start: str) -> dict[str, tuple[float, float, float]]:
    found = {}
    for data in DATA:
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
        found[data] = tuple(float(np.nanmedian(column)) for column in (losses, accuracies, rounds))
    return found  # type: ignore[return-value]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if np.isfinite(share) else "–"


def _table(cells: Mapping[Any, Any], data: str, start: str) -> Table:
    columns = ["method", "M", "T", "rounds to 85 %", "paper", "to stay", "loss", "paper", "accuracy", "paper"]
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
        "Mean ± standard deviation over the seeds. *To stay*: the first of five rounds in a row at 85 % or more. "
        "Loss and accuracy at round 500."
    )
    return Table(f"{data}-{start}", f"{data.upper()}, {start} start", columns, rows, note)


def _spread(rows: Sequence[Mapping[str, Any]], name: str, form: str, scale: float = 1) -> str:
    values = [scale * row[name] for row in rows if row[name] is not None]
    if not values:
        return "never" if name in ("first", "stayed") else "diverged"
    spread = f" ± {form.format(np.std(values))}" if len(values) > 1 else ""
    missing = f" ({len(rows) - len(values)} of {len(rows)} did not)" if len(values) < len(rows) else ""
    return form.format(np.mean(values)) + spread + missing


def _summary(distances: Mapping[str, Mapping[str, tuple[float, float, float]]], options: Options) -> str:
    parts = [
        f"{data.upper()} {_percent(loss)} in loss and {100 * accuracy:.2f} points in accuracy"
        for data, (loss, accuracy, _) in distances[START].items()
    ]
    text = f"Median distance of our cells from the paper's, with {START}-normal weights: {'; '.join(parts)}."
    if len(distances) > 1:
        other = next(start for start in distances if start != START)
        parts = [f"{data.upper()} {_percent(row[0])}" for data, row in distances[other].items()]
        text += f" With {other} weights the losses lie farther off or nearer: {', '.join(parts)}."
    return text + (" The short form stops at round 50, so that its distances mean nothing." if options.quick else "")


def _claims(cells: Mapping[Any, Any]) -> list[Claim]:
    sizes = sorted({key[2] for key in cells}), sorted({key[3] for key in cells})
    table = list(itertools.product(DATA, *sizes))

    def get(method: str, data: str, m: int, t: int, name: str) -> float:
        return _mean(cells[data, method, m, t, START], name)

    ratios = np.array([get("scaffold", *cell, "first") / get("losac", *cell, "first") for cell in table])
    fair = np.array([get("long", *cell, "first") / get("losac", *cell, "first") for cell in table])
    losses = np.array([get("losac", *cell, "loss") / get("scaffold", *cell, "loss") for cell in table])
    even = np.array([get("losac", *cell, "loss") / get("long", *cell, "loss") for cell in table])
    esr = np.array([cell[0] == "esr" for cell in table])
    wins, fair_wins = int(np.sum(ratios > 1)), int(np.sum(fair > 1))
    most, fewest = max(sizes[0]), min(sizes[0])
    memory = [(get("losac", d, fewest, t, "loss"), get("losac", d, most, t, "loss")) for d in DATA for t in sizes[1]]
    better = sum(large < small for small, large in memory)
    middle = sizes[0][len(sizes[0]) // 2]
    cheap = [
        (get("losac", d, middle, min(sizes[1]), "first"), get("scaffold", d, middle, max(sizes[1]), "first"))
        for d in DATA
    ]
    pairs = ", ".join(f"{d.upper()} {a:.0f} against {b:.0f}" for d, (a, b) in zip(DATA, cheap))
    return [
        Claim(
            "LoSAC requires much fewer communication rounds than SCAFFOLD to reach a given accuracy.",
            "Ablation, communication efficiency",
            "holds only at equal step size" if wins > 0.8 * len(table) and fair_wins < 0.8 * len(table) else
            "holds" if fair_wins >= 0.8 * len(table) else "fails",
            f"Fewer in {wins} of {len(table)} cells at η = 1e-4; with SCAFFOLD's server step at M, which makes the "
            f"steps equally long, in {fair_wins}.",
        ),
        Claim(
            "The communication efficiency is improved by more than 300 % for ESR and 100 % on average.",
            "Ablation, communication efficiency",
            "holds only at equal step size" if np.nanmean(ratios) > 1.8 > np.nanmean(fair) else
            "holds" if np.nanmean(fair) > 1.8 else "fails",
            f"Rounds of SCAFFOLD over rounds of LoSAC: {np.nanmean(ratios):.2f} on average, "
            f"{np.nanmax(ratios[esr]):.2f} at most on ESR; with equally long steps {np.nanmean(fair):.2f} and "
            f"{np.nanmax(fair[esr]):.2f}.",
        ),
        Claim(
            "LoSAC ends at a lower loss than SCAFFOLD.",
            "Table 2",
            "holds only at equal step size" if np.nanmedian(losses) < 0.95 <= np.nanmedian(even) else
            "holds" if np.nanmedian(even) < 0.95 else "fails",
            f"Median ratio of the losses at round 500: {np.nanmedian(losses):.2f} at η = 1e-4, "
            f"{np.nanmedian(even):.2f} with equally long steps.",
        ),
        Claim(
            f"LoSAC with T = {min(sizes[1])} and M = {middle} needs about the rounds of SCAFFOLD with "
            f"T = {max(sizes[1])}, at a third of the computation.",
            "Ablation, computation efficiency",
            "holds only at equal step size" if sum(a <= 1.15 * b for a, b in cheap) >= 2 else "fails",
            f"Rounds to 85 %: {pairs}.",
        ),
        Claim(
            "A larger memory M leads to a better performance of LoSAC.",
            "Ablation, local memory",
            "holds only at equal step size" if better >= 0.8 * len(memory) else "fails",
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

    from losac.report.style import style

    drawing = Drawing((10, 3.6), layout="constrained")
    for panel, data in zip(drawing.subplots(1, len(DATA)), DATA):
        drawn = [key for key in cells if key[0] == data and key[4] == START and key[1] != "long"]
        for index, method in enumerate(("losac", "scaffold")):
            mine = [key for key in drawn if key[1] == method]
            theirs = [TABLE_2[data, method, key[2], key[3]].loss for key in mine]
            ours = np.array([[row["loss"] for row in cells[key]] for key in mine], float)
            mean = ours.mean(1)
            ends = np.abs(np.stack([ours.min(1), ours.max(1)]) - mean)
            look = style(index)
            panel.errorbar(theirs, mean, ends, fmt=look.marker, color=look.colour, label=MEMBERS[method], capsize=2)
        ends_at = np.array(panel.get_xlim())
        panel.plot(ends_at, ends_at, color="0.5", linewidth=1, zorder=0)
        panel.set(title=data.upper(), xlabel="the paper's loss at round 500", xscale="log", yscale="log")
    drawing.axes[0].set_ylabel("ours: mean, least and greatest")
    drawing.axes[0].legend()
    return drawing


STUDY = Study("table2", "Table 2: memory M and local steps T", jobs, conclude, DATA)
