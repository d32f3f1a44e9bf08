"""What the messages give away: every method attacked by all that its server sees, on digits.

Ten clients with 1, 8 or 60 rows each, drawn at random; all take part in every round, which is the worst case for them.
The attacker knows the method, its settings, how many rows a client has and the blocks that it draws, all of which the
server sets; of the data only the range. It does not know labels.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.attacks.attack import Data
from losac.attacks.audit import RECOGNISED, Audit, Plan, audit, telescoping_error
from losac.data import FederatedData
from losac.models import softmax_regression, two_nn
from losac.simulation.options import Dtype
from losac.task import Task, classification
from losac_reproduction._random import rows_generator
from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.methods import name_of
from losac_reproduction.panels import Panel, draw, look_of, mark
from losac_reproduction.problems import DATASETS, algorithm, paper_data
from losac_reproduction.studies.fig6 import COLUMN, SAFE, VULNERABLE
from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study
from losac_reproduction.words import known, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CLIENTS, ROUNDS, STEP = 10, 10, 0.05
"""N = S, R and η·n_i."""
SIZES = (1, 8, 60)
SHOWN, SHOWN_ROWS = 6, 8
"""How many rows of a client are kept as pictures, and of clients of how many rows."""
KNOWN = Data((784,), (0.0, 1.0), 10, (28, 28))
"""What the attacker knows of the data."""
PRECISIONS: tuple[Dtype, ...] = ("float32", "float64")
CONTROL = "class mean"
ADAPTIVE = ("analytic", "dlg", "dlg-adam", "idlg", "inverting", "rowspace", "unrolled")
"""The attacks on what the server makes of all messages; the others take what the paper's attacker takes."""
MODELS = {"softmax": "logistic regression", "2nn": "2NN"}
CLAIMS = (
    Statement(
        VULNERABLE, "Defense against DLG, Fig. 6", "",
        "Strong attacks on all that the server receives: {stolen_count}; {few_rows}.",
    ),
    Statement(
        SAFE, "Defense ability to the gradient leakage", "",
        "Strong attacks on all that the server receives: {losac_count}; below it stay {defended}. A server that adds "
        "up a client's Δφ has its last local gradient at M = 1 to {worst64:.0e} in double precision ({worst32:.0e} in "
        "single). Every gradient, and the model at which it was taken, follows exactly from the messages in {known} "
        "of {ours} settings ({labels}).",
        headline=Headline(tuned="digits recovered in {recovered} of {ours} settings by strong attacks"),
    ),
    Statement(
        COLUMN, "Related work, Table 1", "",
        "Strong attacks on all that the server receives from FedAvg and SCAFFOLD: {others_count}.",
    ),
)  # fmt: skip


class Attacked(NamedTuple):
    """A method with its T, M and other settings."""

    name: str
    steps: int
    blocks: int = 1

    def make(self, rows: int) -> Any:
        """Return the algorithm for clients with so many rows."""
        steps = {} if self.name == "dsgd" else {"local_steps": self.steps}
        return algorithm(self.name, step_size=STEP / rows, blocks=self.blocks, **steps)


METHODS = (
    Attacked("dsgd", 1), *(Attacked(name, 5) for name in ("fedavg", "scaffold", "mime_svrg")),
    *(Attacked("losac", t, m) for m in (1, 5) for t in (1, 5)),
)  # fmt: skip
"""The methods whose leakage the paper speaks of; with one local step FedAvg and SCAFFOLD give away what DSGD does."""
PLAN = Plan(("inverting", "rowspace"), ("paper",), rounds=ROUNDS, steps=150)
CLASSICS = ("dlg", "dlg-adam", "idlg")
"""Attacks that are compared on DSGD with some rows only, which sends what they were made for."""


def jobs(options: Options) -> list[Job]:
    """Return one job for each model, number of rows and method; the short form leaves the classic attacks out."""
    return [
        Job(
            measure,
            {"data": "mnist", "model": model, "rows": rows, "method": list(method), "seed": seed,
             "quick": options.quick},
            f"Leakage: {method.name} with {model} on mnist, {rows} rows a client",
            (4.0 if model == "2nn" else 1.0) * rows**0.5 * method.blocks**0.5,
            version=2,
        )
        for model in MODELS
        for rows in SIZES
        for seed in (options.seeds[:1] if options.quick else options.seeds)
        for method in METHODS
        if method.blocks <= rows
    ]  # fmt: skip


def measure(data: str, model: str, rows: int, method: list[Any], seed: int, quick: bool) -> dict[str, Any]:
    """Attack one method on one problem; a single row is known outright, and is not searched for."""
    task, means = problem(data, model, rows, seed)
    chosen = Attacked(*method)
    classics = CLASSICS if chosen.name == "dsgd" and rows == SHOWN_ROWS and not quick else ()
    plan = replace(
        PLAN,
        attacks=() if rows == 1 else (*classics, *PLAN.attacks),
        unrolled=2 if rows == SHOWN_ROWS and chosen.steps > 1 and model == "softmax" else 0,
    )
    one = audit(task, chosen.make(rows), KNOWN, plan, clients=(0, 1), class_means=means, seed=seed)
    found = record(one, rows == SHOWN_ROWS)
    if (chosen.name, chosen.blocks) == ("losac", 1):
        run = partial(telescoping_error, task, chosen.make(rows), rounds=ROUNDS, seed=seed)
        found["telescoped"] = {dtype: max(run(i, dtype=dtype) for i in (0, 1)) for dtype in PRECISIONS}
    return found


@lru_cache(maxsize=2)
def problem(data: str, model: str, rows: int, seed: int) -> tuple[Task, np.ndarray]:
    """Return clients with so many rows each, drawn at random, and the class means of the rows that no client has."""
    every = paper_data(data, 2, "iid")
    x, y = np.asarray(every.x).reshape(len(every.x), -1), np.asarray(every.y)
    order = rows_generator(seed).permutation(len(x))
    theirs, others = order[: CLIENTS * rows].reshape(CLIENTS, rows), order[CLIENTS * rows :]
    held = FederatedData.from_clients(
        [(x[mine], y[mine]) for mine in theirs], num_classes=DATASETS[data].classes, name=data
    )
    classes = DATASETS[data].classes
    net = two_nn(x.shape[1], classes) if model == "2nn" else softmax_regression(x.shape[1], classes)
    means = np.stack([x[others][y[others] == c].mean(0) for c in range(classes)])
    return classification(net, held, test=None), means


def record(one: Audit, pictures: bool) -> dict[str, Any]:
    """Return an audit as JSON holds it; pictures as bytes, the values from 0 to 1 as 0 to 255."""
    entry = {name: value for name, value in one._asdict().items() if name != "pictures"}
    entry |= {"psnr": dict(one.psnr), "recognised": dict(one.recognised)}
    if pictures:
        entry["pictures"] = {name: encode(rows[:SHOWN]) for name, rows in one.pictures.items()}
    return entry


def encode(rows: np.ndarray) -> str:
    """Return rows with values from 0 to 1 as text."""
    return base64.b64encode((255 * np.clip(rows, 0, 1)).round().astype(np.uint8).tobytes()).decode()


# What the audit says


class Audited(NamedTuple):
    """One method on one problem: means over seeds."""

    data: str
    model: str
    rows: int
    method: str
    steps: int
    blocks: int
    entry: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The method with its T and M."""
        name = name_of(self.method)
        return (
            name
            if self.method == "dsgd"
            else f"{name}, T = {self.steps}" + (f", M = {self.blocks}" if self.method == "losac" else "")
        )

    @property
    def best(self) -> float:
        """The PSNR of the strongest attack."""
        return max(value for name, value in self.entry["psnr"].items() if name in ADAPTIVE)

    @property
    def best_name(self) -> str:
        """The strongest attack."""
        psnr = self.entry["psnr"]
        return max((name for name in psnr if name in ADAPTIVE), key=lambda name: psnr[name])


def unpacked(one: JobResult) -> JobResult:
    """Give a method's T and M columns of their own."""
    name, steps, blocks = one.arguments["method"]
    return one._replace(arguments={**one.arguments, "method": name, "steps": steps, "blocks": blocks})


def audits(frame: pd.DataFrame) -> list[Audited]:
    """Return the results, averaged over seeds; pictures are the first seed's."""
    by = ("data", "model", "rows", "method", "steps", "blocks")
    single = ("gradients", "exact", "exact_error", "printed_error", "error", "labels", "angle")
    values = {name: cells(frame, name, by) for name in single}
    parts = {name: cells(frame, name, (*by, "attack")) for name in ("psnr", "recognised", "pictures")}
    telescoped = cells(frame, "telescoped", (*by, "dtype")) if "dtype" in frame else {}
    found = []
    for key in values["gradients"]:
        entry: dict[str, Any] = {name: values[name][key][0] for name in ("gradients", "exact")}
        entry |= {name: _mean(values[name][key]) for name in single[3:]}
        entry["exact_error"] = max(known(values["exact_error"][key]), default=None)
        for name, attacks in parts.items():
            mine = {k[-1]: v for k, v in attacks.items() if k[:-1] == key}
            entry[name] = {a: v[0] if name == "pictures" else float(np.mean(v)) for a, v in mine.items()}
        entry["telescoped"] = {k[-1]: max(v) for k, v in telescoped.items() if k[:-1] == key}
        found.append(Audited._make((*key, entry)))
    return found


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that there are."""
    there = known(values)
    return float(np.mean(there)) if there else None


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Say what each method gives away, and judge what the paper says of it."""
    rows = audits(frame)
    digits = [row for row in rows if row.data == "mnist"]
    summary = (
        f"A server that uses all that it is sent recovers digits of LoSAC's clients to {RECOGNISED:.0f} dB or better "
        f"in {_share(digits, 'losac')} settings (logistic regression and 2NN, 1 to 60 rows a client, T and M of "
        f"1 and 5), against {_share(digits, 'dsgd')} of DSGD, {_share(digits, 'fedavg')} of FedAvg and "
        f"{_share(digits, 'scaffold')} of SCAFFOLD. What the paper calls a defence is an attacker who reads one "
        "message by itself. What really lowers the leakage is many rows behind each gradient, many local steps over "
        "many blocks, and noise (see the part on privacy)."
    )
    recovery = (
        "How well a client's digits are recovered (PSNR, dB; 20 dB and more is easily recognised), by the paper's "
        "attack on one message (crosses) and by the strongest attack on all of them (dots); the line is the class "
        "mean, which needs no attack."
    )
    figures = [Figure("recovery", recovery, lambda: _draw_recovery(digits))]
    for model in MODELS:
        if shown := [row for row in rows if row.model == model and row.entry["pictures"]]:
            caption = (
                f"Real digits of a client with 8 rows (top) and as the strongest attack recovers them, method by "
                f"method ({MODELS[model]}; PSNR as median over the rows of two clients)."
            )
            figures.append(Figure(f"digits-{model}", caption, partial(_draw_digits, shown)))
    return Findings(summary, judge(CLAIMS, _numbers(digits)), [_table(rows), _attack_table(rows)], figures)


def _share(rows: Sequence[Audited], method: str) -> str:
    mine = [row for row in rows if row.method == method]
    return f"{sum(row.best >= RECOGNISED for row in mine)} of {len(mine)}"


def _numbers(digits: Sequence[Audited]) -> dict[str, Any]:
    def of(*names: str) -> list[Audited]:
        return [row for row in digits if row.method in names]

    sends, ours, others = of("dsgd", "mime_svrg"), of("losac"), of("fedavg", "scaffold")
    single = [row for row in ours if row.blocks == 1]
    worst = {t: max((row.entry["telescoped"][t] for row in single), default=np.inf) for t in PRECISIONS}
    exact = [row for row in ours if row.entry["exact"] == row.entry["gradients"]]
    defended = [
        f"{row.label}, {MODELS[row.model]}, {row.rows} rows ({row.best:.0f} dB)"
        for row in ours if row.best < RECOGNISED
    ]  # fmt: skip
    return {
        "worst32": worst["float32"], "worst64": worst["float64"], "stolen_count": _count(sends),
        "few_rows": _few_rows(sends),
        "known": len(exact), "ours": len(ours), "labels": told(sorted({row.label for row in exact})) or "none",
        "losac_count": _count(ours), "recovered": sum(row.best >= RECOGNISED for row in ours),
        "defended": told(defended) or "none", "others_count": _count(others),
    }  # fmt: skip


def _count(rows: Sequence[Audited]) -> str:
    strong = sum(row.best >= RECOGNISED for row in rows)
    return f"half of the rows or more recovered to {RECOGNISED:.0f} dB or better in {strong} of {len(rows)} settings"


def _few_rows(rows: Sequence[Audited]) -> str:
    sizes = sorted({row.rows for row in rows})
    parts = []
    for size in sizes:
        mine = [(row.best, row.entry["psnr"][CONTROL]) for row in rows if row.rows == size]
        best, control = np.mean(mine, axis=0)
        parts.append(f"with {size} row{'s' if size > 1 else ''} {best:.0f} dB (class mean {control:.0f} dB)")
    return "on average " + ", ".join(parts)


def _table(rows: Sequence[Audited]) -> ResultTable:
    columns = (
        "data", "model", "rows", "method", "gradients known", "their error", "error as printed", "error, adaptive",
        "labels", "angle", "paper's DLG", "best attack", "its PSNR", "recognised", "no attack",
    )  # fmt: skip
    body = []
    for row in rows:
        entry, psnr = row.entry, row.entry["psnr"]
        body.append(
            [row.data.upper(), MODELS[row.model], row.rows, row.label,
             f"{entry['exact']:.0f} of {entry['gradients']:.0f}", _or_none(entry["exact_error"], ".0e"),
             f"{entry['printed_error']:.2g}", _or_none(entry["error"], ".1g"), _or_none(entry["labels"], ".0%"),
             f"{entry['angle']:.2g}°", f"{psnr['paper, as printed']:.1f}", row.best_name, f"{row.best:.1f}",
             told(entry["recognised"][row.best_name], ".0%"), f"{psnr[CONTROL]:.1f}"]
        )  # fmt: skip
    note = (
        "*Gradients known*: how many of a client's gradients follow exactly from what it sent, and the largest "
        "relative error of these. *Error as printed*, *adaptive*: of what is taken for a gradient at the last "
        "model sent, by the paper's attacker and by one who uses everything. *Labels*: share recovered. *Angle*: "
        "between the client's rows and what is known of their span. Recovered rows in decibels (PSNR), the median over "
        "all rows in their best order; *recognised*: the share of rows with 20 dB or more; *no attack*: the mean of "
        "each row's class, over rows that no client holds, "
        "with the labels known."
    )
    return ResultTable("audit", "What a server learns of a client", columns, body, note)


def _or_none(value: float | None, form: str) -> str | None:
    return None if value is None else told(value, form)


def _attack_table(rows: Sequence[Audited]) -> ResultTable:
    names = list(dict.fromkeys(name for row in rows for name in row.entry["psnr"]))
    body = [
        [row.data.upper(), MODELS[row.model], row.rows, row.label,
         *(None if name not in row.entry["psnr"] else f"{row.entry['psnr'][name]:.1f}" for name in names)]
        for row in rows
    ]  # fmt: skip
    note = (
        "PSNR in dB. *as printed*: on −Δx/(ηT), or the gradient where one is sent. All others: on the server's best "
        "estimates of the gradients; *rowspace*: within the span of the rows that the first layer's gradients tell; "
        "*unrolled*: by differentiating through the local steps of the first two rounds."
    )
    return ResultTable("attacks", "Every attack", ("data", "model", "rows", "method", *names), body, note)


def _draw_recovery(rows: Sequence[Audited]) -> Drawing:
    sizes = sorted({row.rows for row in rows})
    labels = list(dict.fromkeys(row.label for row in sorted(rows, key=lambda row: -row.rows)))
    models = [model for model in MODELS if any(row.model == model for row in rows)]
    grid: list[list[Panel]] = []
    for model in models:
        line = []
        for size in sizes:
            marks = []
            for row in (row for row in rows if (row.model, row.rows) == (model, size)):
                place, shown, printed = (
                    labels.index(row.label),
                    min(row.best, 100.0),
                    row.entry["psnr"]["paper, as printed"],
                )
                marks += [
                    mark("plot", [printed, shown], [place, place], color="0.85", zorder=1),
                    mark("plot", shown, place, "o", color=look_of(row.method).colour, zorder=3),
                    mark("plot", printed, place, "x", color="0.4", zorder=2),
                    mark("axvline", row.entry["psnr"][CONTROL], color="0.6", linewidth=0.8, zorder=0),
                ]
            axes: dict[str, Any] = {"title": f"{MODELS[model]}, {size} row{'s' if size > 1 else ''} a client"}
            axes |= {"yticks": range(len(labels)), "yticklabels": labels, "ylim": (len(labels) - 0.5, -0.5)}
            axes |= {"xlabel": "PSNR, dB (at most 100 shown)"} if model == models[-1] else {}
            line.append(Panel(marks, axes))
        grid.append(line)
    return draw(grid, (2.6 + 2.4 * len(sizes), 0.6 + 2.7 * len(models)), sharex=True, sharey=True)


def _draw_digits(shown: Sequence[Audited]) -> Drawing:
    pictures = shown[0].entry["pictures"]
    strips = [(name, _pictures(pictures[name])) for name in ("real", CONTROL)]
    strips += [(f"{row.label}: {row.best:.0f} dB", _pictures(row.entry["pictures"][row.best_name])) for row in shown]

    def finish(panel: Axes, name: str) -> None:
        panel.set_ylabel(name, rotation=0, ha="right", va="center")
        panel.grid(False)
        for side in panel.spines.values():
            side.set_visible(False)

    grey = {"cmap": "gray_r", "vmin": 0, "vmax": 255, "aspect": "equal"}
    rows = [
        [Panel([mark("imshow", np.concatenate(list(digits), axis=1), **grey)], {"xticks": [], "yticks": []},
               finish=partial(finish, name=name))]
        for name, digits in strips
    ]  # fmt: skip
    edges = {"left": 0.36, "right": 0.99, "top": 0.99, "bottom": 0.01}
    size = (6.4, 0.62 * len(strips) + 0.2)
    return draw(rows, size, layout=None, finish=lambda drawing: drawing.subplots_adjust(**edges))


def _pictures(code: str) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(code), np.uint8)
    return flat.reshape(-1, 28, 28)


STUDY = Study(
    "leakage", "What the messages give away", jobs, conclude, ("mnist",), place=10,
    keys={"psnr": "attack", "recognised": "attack", "pictures": "attack", "telescoped": "dtype"}, reshape=unpacked,
)  # fmt: skip
