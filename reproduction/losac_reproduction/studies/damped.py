"""The damped correction: which δ, γ and step size LoSAC's exact scaling wants, and a rule for them.

All step sizes are in natural units: the *length* of a method's rounds is γηTL, how far a round moves along the mean
gradient in units of 1/L, with L the curvature of the objective at the start (``losac.tuning.curvature``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.algorithms.losac import damping
from losac.data import FederatedData, quadratic
from losac.models import linear
from losac.simulation import sweep
from losac.task import regression
from losac.tuning import curvature, suggest
from losac.tuning.steps import LENGTH
from losac_reproduction.frame import cells
from losac_reproduction.panels import DECADE, Panel, draw, line_of, mark
from losac_reproduction.problems import DATASETS, algorithm, paper_task, run, version
from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study
from losac_reproduction.words import known, mean, none, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LENGTHS = (1.5, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0)
SHORT = (0.1, 0.2, 0.4, 0.8, *LENGTHS)
"""The lengths for quadratics."""
DELTAS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.4, 1.0)
ROUNDS, RULE_ROUNDS = 300, 500
TARGET = {"mnist": 0.95, "har": 0.9, "esr": 0.85}


class Federation(NamedTuple):
    """N, S, M, T and γ on a data set."""

    data: str
    partition: str = "sorted"
    clients: int = 100
    sampled: int = 10
    blocks: int = 5
    steps: int = 5
    gamma: float = 1.0


def settings(data: str) -> list[Federation]:
    """Return the base setting and what differs from it in one thing."""
    base = Federation(data)
    if data == "mnist":
        return [base, base._replace(steps=2), base._replace(partition="iid")]
    return [
        base,
        *(base._replace(steps=steps) for steps in (1, 2, 20)),
        *(base._replace(blocks=blocks) for blocks in (1, 10)),
        *(base._replace(sampled=sampled) for sampled in (30, 100)),
        *(base._replace(gamma=gamma) for gamma in (0.5, 3.0)),
        base._replace(clients=300),
        base._replace(partition="iid"),
    ]


QUADRATICS = tuple(
    {**one, "scales": scales}
    for scales in (1.0, 30.0)
    for one in (
        {"clients": 20, "sampled": 4, "blocks": 4, "steps": 4},
        {"clients": 20, "sampled": 4, "blocks": 4, "steps": 1},
        {"clients": 20, "sampled": 20, "blocks": 4, "steps": 4},
        {"clients": 50, "sampled": 5, "blocks": 2, "steps": 4},
    )
)
"""``scales`` is the greatest feature's over the least one's: 1 makes the mean Hessian well conditioned, 30 ill."""


def jobs(options: Options) -> list[Job]:
    """Return the maps over (length, δ), the quadratics, and runs of the rule; the short form has one or two of each."""
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    chosen = [Federation("har")] if options.quick else [one for data in DATASETS for one in settings(data)]
    few = options.quick
    maps = [
        Job(
            measure_map,
            {**one._asdict(), "lengths": list(LENGTHS[3:5] if few else LENGTHS),
             "deltas": list(DELTAS[3:6:2] if few else DELTAS), "rounds": 20 if few else ROUNDS},
            f"damped: map {_named(one)}",
            {"mnist": 12.0, "har": 4.0, "esr": 3.0}[one.data] * max(one.steps, 2) / 5 * one.sampled / 10,
            version(one.data),
        )
        for one in chosen
    ]  # fmt: skip
    flat = [
        Job(
            measure_quadratic,
            {**one, "lengths": list(SHORT), "deltas": list(DELTAS), "rounds": 40 if few else 400},
            f"damped: quadratic {one}",
        )
        for one in QUADRATICS[: 1 if few else None]
    ]
    ruled = [one for one in chosen if one.gamma == 1] + ([] if few else [Federation("mnist", clients=1000, sampled=50)])
    rules = [
        Job(
            measure_rule,
            {**one._asdict(), "scaling": scaling, "rounds": 20 if few else RULE_ROUNDS, "seeds": seeds},
            f"damped: {scaling} {_named(one)}",
            {"mnist": 6.0, "har": 2.0, "esr": 1.5}[one.data] * one.steps / 5 * one.sampled / 10,
            version(one.data),
        )
        for one in ruled
        for scaling in ("rule", "paper")
    ]
    return maps + flat + rules


def _named(one: Federation) -> str:
    return " ".join(f"{name}={value}" for name, value in one._asdict().items())


def measure_map(
    data: str, partition: str, clients: int, sampled: int, blocks: int, steps: int, gamma: float,
    lengths: Sequence[float], deltas: Sequence[float], rounds: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the final loss and accuracy for every length and δ; None where a run diverged."""
    task = paper_task(data, clients, partition)
    bend = curvature(task, clients_per_round=sampled)
    method = algorithm(
        "losac", step_size=1.0, local_steps=steps, blocks=blocks, scaling="exact", correction=1.0, server_step=gamma
    )
    grid = {"step_size": [length / (gamma * steps * bend) for length in lengths], "correction": list(deltas)}
    records = run(task, method, [0], rounds=rounds, sampled=sampled, grid=grid, eval_every=rounds, loss_every=rounds)
    shape = len(lengths), len(deltas)
    table = {name: np.array([one["final"][name] for one in records], object).reshape(shape) for name in METRICS}
    return {"curvature": bend, **{name: values.tolist() for name, values in table.items()}}


METRICS = ("loss", "accuracy")


def measure_quadratic(
    clients: int, sampled: int, blocks: int, steps: int, scales: float, lengths: Sequence[float],
    deltas: Sequence[float], rounds: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the measured contraction of the distance to the optimum per round, for every length and δ."""
    plain = quadratic(clients=clients, samples=4 * blocks, dim=6, seed=0)
    made = [(x * np.geomspace(1, 1 / scales, 6), y) for x, y in map(plain.client, range(clients))]
    task = regression(linear(6), FederatedData.from_clients(made, name="quadratic"))
    hessian = sum(x.T @ x for x, _ in made) / clients
    values = np.linalg.eigvalsh(hessian)
    method = algorithm("losac", step_size=1.0, local_steps=steps, blocks=blocks, scaling="exact", correction=1.0)
    grid = {"step_size": [length / (steps * values[-1]) for length in lengths], "correction": list(deltas)}
    runs = sweep(
        task, method, grid, rounds=rounds, clients_per_round=sampled, eval_every=rounds // 2, loss_every=rounds,
        dtype="float64",
    ).members  # fmt: skip
    optimum = np.linalg.solve(hessian, sum(x.T @ y for x, y in made) / clients)
    begun = float(np.linalg.norm(optimum))
    rates = [
        None if one.diverged is not None else (float(np.linalg.norm(one.params - optimum)) / begun) ** (1 / rounds)
        for one in runs
    ]
    shape = len(lengths), len(deltas)
    return {"eigenvalues": values.tolist(), "rate": np.array(rates, object).reshape(shape).tolist()}


def measure_rule(
    data: str, partition: str, clients: int, sampled: int, blocks: int, steps: int, gamma: float, scaling: str,
    rounds: int, seeds: list[int],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the runs of LoSAC by its rule, or in the paper's scaling at the paper's step size."""
    task = paper_task(data, clients, partition)
    if scaling == "rule":
        method: Algorithm = suggest(task, local_steps=steps, blocks=blocks, clients_per_round=sampled)
    else:
        eta = DATASETS[data].step_size if clients == DATASETS[data].clients else 1e-4
        method = algorithm("losac", step_size=eta, local_steps=steps, blocks=blocks)
    rounds = min(rounds, 100) if clients >= 1000 else rounds
    return run(
        task, method, seeds, rounds=rounds, sampled=sampled, loss_every=rounds, targets=[TARGET[data]],
    )  # fmt: skip


# Maps of the final loss over length and δ, and the rules for δ that are held against them


CEILING = 3.0
"""A loss above the start's counts as this, and so does a divergence."""


class Map(NamedTuple):
    """The final losses of a setting, [lengths, δ]."""

    setting: Mapping[str, Any]
    lengths: np.ndarray
    deltas: np.ndarray
    loss: np.ndarray

    @property
    def refreshed(self) -> float:
        """The share of the table that a round renews."""
        s = self.setting
        return float(s["sampled"] / s["clients"] * (1 - (1 - 1 / s["blocks"]) ** s["steps"]))

    @property
    def name(self) -> str:
        """The setting in full."""
        s = self.setting
        return (
            f"{s['data'].upper()} {s['partition']} N={s['clients']} S={s['sampled']} M={s['blocks']} T={s['steps']} "
            f"γ={s['gamma']:g}"
        )

    @property
    def short(self) -> str:
        """The data, how they are dealt, and only what differs from the base setting."""
        s = self.setting
        parts = [s["data"].upper(), "IID" if s["partition"] == "iid" else "non-IID"]
        return ", ".join(parts + [f"{_SYMBOLS[k]} = {s[k]:g}" for k, usual in USUAL.items() if s[k] != usual])


USUAL = {"clients": 100, "sampled": 10, "blocks": 5, "steps": 5, "gamma": 1.0}
BASE = "where not said otherwise N = 100, S = 10, M = 5, T = 5 and γ = 1"
_SYMBOLS = {"clients": "N", "sampled": "S", "blocks": "M", "steps": "T", "gamma": "γ"}

RULES: dict[str, Callable[[Map], float]] = {
    "√(S/N)/5, the default": lambda m: float(damping(m.setting["clients"], m.setting["sampled"])),
    "√p/5": lambda m: m.refreshed**0.5 / 5,
    "p": lambda m: m.refreshed,
    "0.06": lambda m: 0.06,
    "S/(NM), the paper's": lambda m: m.setting["sampled"] / (m.setting["clients"] * m.setting["blocks"]),
    "1, unbiased": lambda m: 1.0,
}
"""δ by rule; p is the share of the table that a round renews."""
DEFAULT = RULES["√(S/N)/5, the default"]


def at(one: Map, length: float, delta: float) -> float:
    """Return the loss at a point, log-bilinear between those measured, the nearest edge beyond them."""
    keep = one.deltas > 0
    x, y, z = np.log(one.lengths), np.log(one.deltas[keep]), np.log(one.loss[:, keep])
    by_delta = [np.interp(np.log(delta), y, row) for row in z]
    return float(np.exp(np.interp(np.log(length), x, by_delta)))


def regret(one: Map, length: float, delta: float) -> float:
    """Return how much greater the loss at a point is than the best of its map, as a ratio."""
    return at(one, length, delta) / float(one.loss.min())


SETTING = ("data", "partition", "clients", "sampled", "blocks", "steps")
Pairs = Mapping[tuple[Any, ...], Mapping[str, Mapping[str, list[float]]]]
"""By setting and scaling (the rule's, the paper's): the runs' last losses and accuracies, and rounds to the target."""


def by_point(one: JobResult) -> JobResult:
    """Name the length and δ of every point of a map, and what was reached by none."""
    found, given = one.result, one.arguments
    if isinstance(found, list):
        runs = [r | {"reached": next(iter(r["reached"].values())) or {"round": None}} for r in found]
        return one._replace(result=runs)
    points = [
        {"length": length, "delta": delta} | {name: found[name][i][j] for name in ("loss", "rate") if name in found}
        for i, length in enumerate(given["lengths"])
        for j, delta in enumerate(given["deltas"])
    ]
    rest = {name: found[name] for name in ("curvature", "eigenvalues") if name in found}
    return one._replace(result=rest | {"points": points})


def maps_of(frame: pd.DataFrame) -> list[Map]:
    """Return the final losses of every setting."""
    by = (*SETTING, "gamma")
    points = cells(frame, "loss", (*by, "length", "delta"))
    found = []
    for key in cells(frame, "curvature", by):
        mine = {k[-2:]: CEILING if np.isnan(v) else min(v, CEILING) for k, [v] in points.items() if k[: len(by)] == key}
        lengths, deltas = (list(dict.fromkeys(column)) for column in zip(*mine))
        loss = np.array(list(mine.values()), float).reshape(len(lengths), len(deltas))
        found.append(Map(dict(zip(by, key)), np.array(lengths, float), np.array(deltas, float), loss))
    return found


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare the rules on the maps, and the default with the paper's scaling."""
    maps = maps_of(frame)
    pairs: dict[tuple[Any, ...], dict[str, dict[str, list[float]]]] = {}
    for name in ("final loss", "final accuracy", "reached round"):
        for (*setting, scaling), values in cells(frame, name, (*SETTING, "scaling")).items():
            pairs.setdefault(tuple(setting), {}).setdefault(scaling, {})[name.split()[1]] = values
    drawn = selected(maps)
    some = f" {len(drawn)} of {len(maps)} settings, the others are in the table." if len(drawn) < len(maps) else ""
    figures = [
        Figure("maps", f"Training loss at the end of the run over the length γηTL and δ, as a multiple of the best of "
               f"the map; {BASE}. Circle: the rule; star: the best; grey: diverged, or a loss above {CEILING:g}.{some}",
               lambda: draw_maps(drawn)),
        Figure("deltas", f"Which δ is good, setting by setting: the range of δ whose loss at its best length comes "
               f"within 20 % of the map's best, the best δ, and the rule's; {BASE}.", lambda: draw_deltas(maps)),
    ]  # fmt: skip
    lost = _lost(pairs)
    tables = [_rules(maps), _settings(maps), _against(pairs), _quadratics(frame)]
    return Findings(_summary(maps, len(pairs), lost), (), [table for table in tables if table.rows], figures)


def _rules(maps: Sequence[Map]) -> ResultTable:
    rows = []
    for name, rule in RULES.items():
        fixed = np.array([regret(one, LENGTH, rule(one)) for one in maps])
        free = np.array([min(regret(one, length, rule(one)) for length in one.lengths) for one in maps])
        if len(maps):
            rows.append(
                [f"δ = {name}", *(f"{v:.2f}" for v in (_geometric(fixed), fixed.max(), _geometric(free), free.max()))]
            )
    columns = ("rule", "length 12, mean", "length 12, worst", "best length, mean", "best length, worst")
    note = (
        "Ratio of the loss by the rule to the best of the map (length × δ), geometric mean and maximum over the "
        "settings; *best length* takes the best of the measured lengths in each setting. The rule's form and constants "
        "were chosen on settings like these; the runs with other seeds and with N = 1000 below were not used for it."
    )
    return ResultTable("rules", "Rules for δ", columns, rows, note)


def _geometric(values: np.ndarray) -> float:
    return float(np.exp(np.log(values).mean()))


def _settings(maps: Sequence[Map]) -> ResultTable:
    rows = []
    for one in maps:
        place = np.unravel_index(one.loss.argmin(), one.loss.shape)
        delta = DEFAULT(one)
        rows.append(
            [one.name, f"{one.refreshed:.3f}", f"{one.lengths[place[0]]:g}", f"{one.deltas[place[1]]:g}",
             f"{one.loss.min():.4f}", f"{delta:.3f}", _loss(at(one, LENGTH, delta)), _loss(at(one, LENGTH, 1.0))]
        )  # fmt: skip
    columns = ("setting", "p", "best length", "best δ", "best loss", "δ by rule", "loss by rule", "loss with δ = 1")
    note = (
        "p: the share of the table of gradients that a round renews. One seed; the losses by rule and with δ = 1 are "
        f"those at length {LENGTH:g}, interpolated between the measured points."
    )
    return ResultTable("settings", "The best point of each map, and the rule's", columns, rows, note)


def _loss(value: float) -> str:
    return f"{value:.4f}" if value < CEILING else "diverged"


def _named_setting(setting: Sequence[Any]) -> str:
    data, partition, clients, sampled, blocks, steps = setting
    return f"{data.upper()} {partition} N={clients} S={sampled} M={blocks} T={steps}"


def _against(pairs: Pairs) -> ResultTable:
    rows = []
    for setting, both in pairs.items():
        line: list[Any] = [_named_setting(setting)]
        for runs in (both["rule"], both["paper"]):
            losses = runs["loss"]
            lost = f"{len(losses) - len(known(losses))} of {len(losses)} diverged"
            accuracy, first = none(mean(runs["accuracy"])), none(mean(runs["round"]))
            line += [told(mean(losses), f".4f|{lost}"), accuracy and f"{100 * accuracy:.2f}", first and f"{first:.0f}"]
        rows.append(line)
    columns = (
        "setting", "by rule: loss", "accuracy, %", "rounds to target", "the paper's scaling: loss", "accuracy, %",
        "rounds to target",
    )  # fmt: skip
    note = (
        "Means over the seeds after 500 rounds (100 with N = 1000). The paper's scaling at the paper's step size; the "
        "rule's ten rounds of measurement are not counted. Targets: MNIST 95 %, HAR 90 %, ESR 85 %."
    )
    return ResultTable("against-paper", "By rule, and in the paper's scaling", columns, rows, note)


def _quadratics(frame: pd.DataFrame) -> ResultTable:
    by = ("clients", "sampled", "blocks", "steps", "scales")
    rates = cells(frame, "rate", (*by, "length", "delta")) if "scales" in frame else {}
    rows = []
    for key, eigenvalues in cells(frame, "eigenvalues", by).items() if rates else ():
        n, s, m, t = key[:4]
        mine = {k[-2:]: np.inf if np.isnan(v) else v for k, [v] in rates.items() if k[: len(by)] == key}
        length, delta = min(mine, key=lambda point: mine[point])
        p = s / n * (1 - (1 - 1 / m) ** t)
        computed = best_delta(np.array(eigenvalues), p, t)
        rows.append(
            [f"N={n} S={s} M={m} T={t}", f"{p:.3f}", f"{computed[1]:.3f}", f"{computed[2]:.3f}", f"{delta:g}",
             f"{length:g}", f"{mine[length, delta]:.4f}", f"{(s / n) ** 0.5 / 5:.3f}"]
        )  # fmt: skip
    columns = (
        "quadratic", "p", "computed best δ", "its rate", "measured best δ", "its length", "its rate", "δ by rule"
    )  # fmt: skip
    note = (
        "Rate: contraction of the distance to the optimum per round. Computed: the mean of one round, "
        "G ← (1 − p)G + p·H(x − uαG), x ← x − α((1 − δ)G + δHx), with u = (T − 1)/2T for how far ahead the local "
        "steps look; the least spectral radius over α and δ. It leaves out the noise of the draws, which bounds δ "
        "and α from above in the measured runs."
    )
    return ResultTable("quadratics", "Quadratics: the best δ, computed and measured", columns, rows, note)


def best_delta(eigenvalues: np.ndarray, refreshed: float, steps: int) -> tuple[float, float, float]:
    """Return the α, δ and spectral radius that contract the mean of a round the fastest, over a fine grid."""
    ahead = (steps - 1) / (2 * steps)
    best = (0.0, 0.0, np.inf)
    for length in np.geomspace(0.5, 200, 60):
        alpha = length / eigenvalues[-1]
        for delta in np.geomspace(0.005, 1, 60):
            h = alpha * eigenvalues
            matrices = np.stack(
                [np.stack([1 - delta * h, -(1 - delta) * np.ones_like(h)], -1),
                 np.stack([refreshed * h, 1 - refreshed - refreshed * ahead * h], -1)], -2
            )  # fmt: skip
            radius = float(np.abs(np.linalg.eigvals(matrices)).max())
            if radius < best[2]:
                best = (float(alpha), float(delta), radius)
    return best


def _summary(maps: Sequence[Map], settings: int, lost: Sequence[str]) -> str:
    ratios = np.array([regret(one, LENGTH, DEFAULT(one)) for one in maps])
    unbiased = np.array([min(regret(one, length, 1.0) for length in one.lengths) for one in maps])
    where = f" (not on {'; '.join(lost)})" if lost else ""
    return (
        f"The rule: γ = 1, δ = √(S/N)/5 and η = 12/(γTL), with L measured once in ten rounds. Over {len(maps)} "
        f"settings its loss is {_geometric(ratios):.2f} times that of the best point of the map on average and "
        f"{ratios.max():.2f} times at worst; the unbiased δ = 1 with the best step is at {_geometric(unbiased):.2f} "
        f"and {unbiased.max():.2f}. "
        f"Against the paper's scaling at the paper's step size the rule ends lower in {settings - len(lost)} of "
        f"{settings} settings{where}."
    )


def _lost(pairs: Pairs) -> list[str]:
    """Return the settings in which the rule does not end at a lower loss than the paper's scaling."""
    return [
        _named_setting(setting)
        for setting, both in pairs.items()
        if not mean(both["rule"]["loss"]) < mean(both["paper"]["loss"], np.inf)
    ]


def selected(maps: Sequence[Map]) -> list[Map]:
    """Return the maps that the figure shows: the base setting of each data set, IID data, and some S, T and N."""
    if len(maps) <= 9:
        return list(maps)
    wanted: Sequence[Mapping[str, Any]] = ({}, {"partition": "iid"}, {"sampled": 100}, {"steps": 2}, {"clients": 300})
    found: list[Map] = []
    for changes in wanted:
        setting = {"partition": "sorted", **USUAL, **changes}
        found += [one for one in maps if all(one.setting[k] == value for k, value in setting.items())]
    return found[:9]


def draw_maps(maps: Sequence[Map]) -> Drawing:
    """Draw the losses over δ and length, one panel for each setting."""
    from matplotlib.colors import LogNorm

    across = min(3, max(1, len(maps)))
    rows = [list(maps[k : k + across]) for k in range(0, max(1, len(maps)), across)]
    grid = [
        [_map(one, last=row is rows[-1], first=place == 0, norm=LogNorm(1, 20)) for place, one in enumerate(row)]
        for row in rows
    ]

    def bar(drawing: Drawing) -> None:
        images = [axes.images[0] for axes in drawing.axes if axes.images]
        if images:
            side = drawing.colorbar(images[-1], ax=drawing.axes, extend="max", shrink=0.6, label=_BAR)
            side.set_ticks([1, 2, 5, 10, 20], labels=["1", "2", "5", "10", "20"])
            side.ax.minorticks_off()

    return draw(grid, (3.1 * across + 1, 2.5 * len(rows) + 0.5), finish=bar, sharex=True, sharey=True)


_BAR = "loss over the best of the map"


def _map(one: Map, *, last: bool, first: bool, norm: Any) -> Panel:
    shown = np.where(one.loss >= CEILING, np.nan, one.loss / one.loss.min())
    x = np.interp(np.log(DEFAULT(one)), np.log(np.maximum(one.deltas, 0.005)), range(len(one.deltas)))
    y = np.interp(np.log(LENGTH), np.log(one.lengths), range(len(one.lengths)))
    best = np.unravel_index(one.loss.argmin(), one.loss.shape)
    ring = {"markerfacecolor": "none", "markeredgecolor": "#D55E00", "markersize": 10, "markeredgewidth": 2}
    marks = [
        mark("imshow", shown, origin="lower", aspect="auto", cmap="viridis_r", norm=norm),
        mark("plot", x, y, "o", **ring),
        mark("plot", best[1], best[0], "*", color="white", markeredgecolor="black", markersize=11),
    ]

    def finish(panel: Axes) -> None:
        panel.set_facecolor("0.85")
        panel.set_xticks(range(len(one.deltas)), [f"{d:g}" for d in one.deltas], fontsize=8)
        panel.set_yticks(range(len(one.lengths)), [f"{v:g}" for v in one.lengths], fontsize=8)
        panel.set_title(one.short, fontsize=9)
        panel.grid(visible=False)

    names = ({"xlabel": "δ"} if last else {}) | ({"ylabel": "length γηTL"} if first else {})
    return Panel(marks, names, finish=finish)


def draw_deltas(maps: Sequence[Map]) -> Drawing:
    """Draw the good range of δ, the best and the rule's, one row for each setting."""
    fine, marks = np.geomspace(0.01, 1, 60), []
    for place, one in enumerate(maps[::-1]):
        ratios = np.array([min(regret(one, length, delta) for length in one.lengths) for delta in fine])
        good = fine[ratios <= 1.2]
        wide = {"linewidth": 5, "alpha": 0.4, "solid_capstyle": "butt", "label": "within 20 % of the best loss"}
        best, rule = (line_of(k, marker=True, linestyle="", markersize=4 + k) for k in (0, 1))
        if len(good):
            marks.append(mark("plot", [good.min(), good.max()], [place, place], color=best["color"], **wide))
        marks.append(mark("plot", fine[ratios.argmin()], place, **best, label="best δ"))
        label = "the rule, δ = √(S/N)/5"
        marks.append(mark("plot", DEFAULT(one), place, **rule, label=label))

    def finish(panel: Axes) -> None:
        panel.set_yticks(range(len(maps)), [one.short for one in maps[::-1]], fontsize=8)

    axes = {"xscale": "log", "xlabel": "δ", "xlim": (0.008, 1.2), "ylim": (-0.7, len(maps) - 0.3)}
    legend = {"loc": "outside upper center", "ncols": 3}
    return draw([[Panel(marks, axes, {"x": DECADE}, finish)]], (7.5, 1.1 + 0.22 * len(maps)), legend=legend)


STUDY = Study(
    "damped", "Damped: a rule for LoSAC's correction and step", jobs, conclude, tuple(DATASETS), place=17,
    keys={"length": "length", "delta": "delta", "points": "points"}, reshape=by_point,
)  # fmt: skip
