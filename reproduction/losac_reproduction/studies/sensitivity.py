"""What Figs. 2 to 5 share: one problem, a few algorithms at one step size, their curves, and the claims about them.

Besides the paper's six algorithms we run SCAFFOLD with a server step of M: its steps are as long as LoSAC's at equal η,
so a lead that LoSAC has over SCAFFOLD but not over this one is the step's, not the method's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.history import History
from losac.report.profile import profile
from losac.simulation import sweep
from losac_reproduction.claims import Headline, JudgedClaim, Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.methods import NAMES
from losac_reproduction.panels import DECADE, Panel, draw, handle, line_of, mark
from losac_reproduction.problems import DATASETS, algorithm, paper_task, reached
from losac_reproduction.study import Figure, Job, Options, ResultTable
from losac_reproduction.words import known, mean, spread, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BLOCKS, TARGET, POINTS, QUICK_CLIENTS = 5, 0.85, 21, 100
LONG, MEAN_SAGA = "scaffold_long", "fedsaga_mean"
PAPER = ("losac", "scaffold", "mime_svrg", "fedcm", "fedavg", "fedsaga")
MEMBERS = {name: NAMES[name] for name in PAPER} | {
    "fedsaga": "FedSaga (1/N, as printed)", MEAN_SAGA: "FedSaga (1/S)", LONG: "SCAFFOLD (server step M)",
}  # fmt: skip
SGD, LONG_SGD = "fedsgd", "fedsgd_long"
SINGLE = {SGD: "FedSGD (one step η)", LONG_SGD: "FedSGD (one step ηT)"}
"""Federated SGD, one full gradient a round: at the same step size as FedAvg, and with rounds as long as FedAvg's."""
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedsaga": ("fedsaga", {"average": "all"}),
    MEAN_SAGA: ("fedsaga", {}),
    LONG: ("scaffold", {"server_step": float(BLOCKS)}),
}
"""The algorithm and its settings, where a member is not an algorithm with its defaults."""
TITLES = MEMBERS | SINGLE
NOTE = (
    "Mean ± standard deviation over the seeds, at the last round. FedCM has the library's α = 0.1, as the paper states "
    "none; SCAFFOLD with server step M takes steps as long as LoSAC's at equal η."
)
KEYS = {"runs": "partition"}
ALL, BOTH = "Parameter sensitivity, Figs. 3 to 5", "Parameter sensitivity, Figs. 3 and 4"
DEGRADED, CLEARLY, ALIKE = 1.2, 0.95, 0.1
"""The ratio of losses that counts as significantly degraded, the one that counts as clearly lower, and the relative
difference up to which two losses are alike."""
MOST = "holds if right >= 0.75 * of | holds in part if right | fails"
LEAD = (
    "holds if equal >= 0.75 * of and fair >= 0.75 * of | holds only at equal step size if equal >= 0.75 * of | "
    "holds in part if equal | fails"
)
"""The rules for what is so in most settings, and for LoSAC's lead at equal η and with equally long steps."""


class Case(NamedTuple):
    """One panel of a figure: a data set, how it is dealt, and S and T."""

    data: str
    partition: str
    s: int
    t: int

    @property
    def kind(self) -> str:
        """What the paper calls the partition."""
        return "IID" if self.partition == "iid" else "non-IID"

    def value(self, parameter: str) -> int:
        """S or T."""
        return self.s if parameter == "S" else self.t


Runs = Mapping[str, np.ndarray]
"""Metrics of a method's runs: losses and accuracies [seeds, rounds], and numbers [seeds]; NaN where there is none."""
Found = Mapping[Case, Mapping[str, Runs]]


def job(figure: str, data: str, method: str, partitions: Sequence[str], s: int, t: int, options: Options) -> Job:
    """Return the job of one algorithm on a data set dealt in several ways, which share a compiled program."""
    shape = DATASETS[data]
    rounds = 6 if options.quick else shape.rounds
    arguments = {
        "data": data,
        "method": method,
        "partitions": list(partitions),
        "clients": QUICK_CLIENTS if options.quick else shape.clients,
        "s": s,
        "t": t,
        "rounds": rounds,
        "seeds": list(options.seeds[:1] if options.quick else options.seeds),
        "every": 3 if options.quick else 1,
    }
    label = f"{figure}: {data} {TITLES[method]} S={s} T={t}"
    return Job(measure, arguments, label, 3 + len(partitions) * rounds * s * t / 2000, version=2)


def measure(
    data: str,
    method: str,
    partitions: list[str],
    clients: int,
    s: int,
    t: int,
    rounds: int,
    seeds: list[int],
    every: int,
) -> dict[str, Any]:
    """Return the curves of every seed on every partition, at the paper's step size.

    With fewer clients than the paper's the step is shortened to keep η·n_i.
    """
    shape = DATASETS[data]
    eta = shape.step_size * clients / shape.clients
    if method in SINGLE:
        chosen = algorithm("dsgd", step_size=eta * (t if method == LONG_SGD else 1))
    else:
        name, extra = SETTINGS.get(method, (method, {}))
        chosen = algorithm(name, step_size=eta, local_steps=t, blocks=BLOCKS, **extra)
    kept = max(1, rounds // (POINTS - 1), every)
    at = [*range(0, rounds, kept), rounds]
    found = {}
    for partition in partitions:
        task = paper_task(data, clients, partition)
        members = sweep(
            task, chosen, {}, seeds, rounds=rounds, clients_per_round=s, eval_every=every, loss_every=kept
        ).members
        found[partition] = [_run(history, at) for history in members]
    return {"round": at, "runs": found}


def _run(history: History, at: Sequence[int]) -> dict[str, Any]:
    """Keep a run's curves at some rounds (None beyond a divergence) and how its accuracy went up and down."""
    where = {int(r): place for place, r in enumerate(history.rounds)}
    accuracy, half = history.metric("accuracy"), at[-1] // 2
    first, stayed = (reached(history, TARGET, sustained=times) for times in (1, 5))
    return {
        "seed": history.seed,
        "diverged": history.diverged,
        "reached": first and first["round"],
        "stayed": stayed and stayed["round"],
        "early": fluctuation(accuracy[: max(int(np.sum(history.rounds <= at[-1] // 10)), 3)]),
        "late": fluctuation(accuracy[history.rounds >= half]) if history.diverged is None else None,
        **{name: [_at(history, name, where.get(r)) for r in at] for name in ("loss", "accuracy")},
    }


def _at(history: History, metric: str, place: int | None) -> float | None:
    value = math.nan if place is None else float(history.metric(metric)[place])
    return float(f"{value:.4g}") if math.isfinite(value) else None


def fluctuation(series: Sequence[float] | np.ndarray) -> float | None:
    """Return the back and forth of a series per step: its total variation less its net change.

    >>> fluctuation([0.1, 0.3, 0.6]), fluctuation([0.5, 0.4, 0.5])
    (0.0, 0.1)
    """
    steps = np.diff(np.asarray(series, float))
    return round(float((np.abs(steps).sum() - abs(steps.sum())) / len(steps)), 6) if len(steps) else None


def runs_of(frame: pd.DataFrame) -> tuple[dict[Case, dict[str, Runs]], dict[str, list[int]]]:
    """Return the runs of every case by algorithm, and the rounds of each data set's curves."""
    found: dict[Case, dict[str, Any]] = {}
    for metric in ("loss", "accuracy", "reached", "stayed", "early", "late", "diverged"):
        for (*case, method), values in cells(frame, metric, (*Case._fields, "method")).items():
            runs = found.setdefault(Case(*case), {}).setdefault(method, {})
            runs[metric] = np.array(values, float)
    for runs in (runs for methods in found.values() for runs in methods.values()):
        runs.update({name: runs[name].reshape(len(runs["late"]), -1) for name in ("loss", "accuracy")})
    curves = frame[frame["metric"] == "loss"]
    return found, {data: [int(r) for r in sorted(set(part["round"]))] for data, part in curves.groupby("data")}


def last(runs: Runs, metric: str = "loss") -> float:
    """Return the mean of a metric at the last round; infinity (for an accuracy 0) where a run diverged."""
    return mean(runs[metric][:, -1], math.inf if metric == "loss" else 0.0)


def beyond(above: np.ndarray, below: np.ndarray) -> bool:
    """Return whether the mean of some values exceeds that of others by more than the spread of the seeds, which is the
    root of the sum of their variances; a run that diverged counts as infinite.

    >>> beyond(np.array([3.0, 3.2]), np.array([1.0, 2.0])), beyond(np.array([3.0]), np.array([np.nan]))
    (True, False)
    """
    if np.isnan(below).any():
        return False
    return bool(np.isnan(above).any() or above.mean() - below.mean() > np.hypot(above.std(), below.std()))


def sustained(runs: Runs) -> float:
    """Return the mean round from which the accuracy stays at the target; infinity where a run never does."""
    return mean(runs["stayed"], math.inf)


def over(above: float, below: float) -> float:
    """Return a ratio of losses; infinity where the lower one diverged."""
    return above / below if math.isfinite(below) and below > 0 else math.inf


def losses(found: Found, cases: Sequence[Case], method: str) -> list[float]:
    """Return a method's last losses."""
    return [last(found[case][method]) for case in cases]


def fluctuations(found: Found, cases: Sequence[Case], method: str, when: str = "late") -> list[float]:
    """Return a method's fluctuations in points; infinity where a run diverged."""
    return [100 * mean(found[case][method][when], math.inf) for case in cases]


def tables(found: Found, name: Callable[[Case], str]) -> list[ResultTable]:
    """Return the last losses and accuracies, the rounds to 85 % and the fluctuations, a row for each case."""
    members = [method for method in TITLES if any(method in methods for methods in found.values())]
    kinds: list[tuple[str, str, str, str, Callable[[Runs], Any], str]] = [
        ("loss", "Training loss", ".4f", "diverged", lambda runs: runs["loss"][:, -1], NOTE),
        ("accuracy", "Test accuracy, %", ".2f", "diverged", lambda runs: 100 * runs["accuracy"][:, -1], NOTE),
        ("rounds", "Rounds to 85 % test accuracy", ".0f", "never", lambda runs: runs["reached"],
         "The first round at 85 % or more, mean ± standard deviation over the seeds that reach it."),
        ("sustained", "Sustained rounds to 85 % test accuracy", ".0f", "never", lambda runs: runs["stayed"],
         "The first of five evaluations in a row at 85 % or more, mean ± standard deviation over the seeds that have "
         "one."),
        ("fluctuation", "Fluctuation of the test accuracy, points per round", ".3f", "diverged",
         lambda runs: 100 * runs["late"],
         "Total variation less net change over the second half of the rounds, per evaluation: 0 for a curve that only "
         "rises."),
    ]  # fmt: skip
    return [
        ResultTable(
            kind, title, ["setting", *(TITLES[method] for method in members)],
            [[name(case), *(spread(get(runs[m]), form, none) if m in runs else None for m in members)]
             for case, runs in found.items()], note,
        )
        for kind, title, form, none, get, note in kinds
    ]  # fmt: skip


def diverged(found: Found, name: Callable[[Case], str]) -> str:
    """Return a sentence that names the runs that diverged."""
    counts = [
        (method, case, len(known(runs["diverged"])), len(runs["diverged"]))
        for case, methods in found.items()
        for method, runs in methods.items()
    ]
    lost = [f"{TITLES[m]} at {name(case)} ({number} of {of})" for m, case, number, of in counts if number]
    return f" Diverged: {'; '.join(lost)}." if lost else " No run diverged."


def ranking(methods: Mapping[str, Runs]) -> str:
    """Return the last losses of a case, the lowest first."""
    ordered = sorted((last(runs), TITLES[method]) for method, runs in methods.items())
    return ", ".join(f"{who} {told(loss, '.3f|diverged')}" for loss, who in ordered)


# Figures

Entry = tuple[str, str, Sequence[int], Mapping[str, Runs]]
"""What a panel shows: its title, the metric, the rounds, and the runs by algorithm."""


def figure(name: str, about: str, rows: Sequence[Sequence[Entry]]) -> Figure:
    """Return a figure of curves over the rounds, in rows."""
    caption = (
        f"{about}. Lines: mean over the seeds; bands: least and greatest. All at the paper's step size η; SCAFFOLD "
        f"with server step M = {BLOCKS} takes steps as long as LoSAC's."
    )
    return Figure(name, caption, partial(draw_curves, rows))


def draw_curves(rows: Sequence[Sequence[Entry]]) -> Drawing:
    """Draw a panel for each entry, one line and band for each algorithm; those of a metric have the same scale."""
    entries = [entry for row in rows for entry in row]
    one_metric = len({metric for _, metric, _, _ in entries}) == 1
    drawn = [method for method in MEMBERS if any(method in entry[3] for entry in entries)]
    grid = []
    for row in rows:
        scale, plain = _scale(entries if one_metric else row)
        below: dict[str, Any] = {"xlabel": "round"} if row is rows[-1] else {}
        grid.append([
            Panel(_curves(*entry[1:]), below | (scale if place == 0 else {}), plain if place == 0 else {},
                  partial(_finish, entry))
            for place, entry in enumerate(row)
        ])  # fmt: skip
    return draw(
        grid,
        (2.5 * len(rows[0]) + 0.6, 2.1 * len(rows) + 0.9),
        legend={
            "loc": "outside lower center", "ncols": {1: 2, 2: 3, 3: 4}.get(len(rows[0]), len(drawn)),
            "columnspacing": 1.2, "handlelength": 2.6,
        },
        handles={MEMBERS[method]: handle(**_look(method)) for method in drawn},
        sharey="all" if one_metric else "row",
        sharex=True,
    )  # fmt: skip


def _look(method: str) -> dict[str, Any]:
    return line_of(method, linewidth=1.0 if method == LONG else 1.5)


def _curves(metric: str, rounds: Sequence[int], methods: Mapping[str, Runs]) -> list[Any]:
    """Return the mean over the runs that are still finite, their range, and a cross where the first was lost."""
    marks = []
    for method in (method for method in [*MEMBERS][::-1] if method in methods):
        values, look = methods[method][metric], _look(method)
        finite = np.isfinite(values)
        there = finite.any(0)
        kept = np.ma.masked_invalid(values[:, there])
        at, middle = np.asarray(rounds)[there], kept.mean(0)
        marks.append(mark("plot", at, middle, **look))
        if len(values) > 1:
            band = {"color": look["color"], "alpha": 0.07 if method == LONG else 0.12, "linewidth": 0}
            marks.append(mark("fill_between", at, kept.min(0), kept.max(0), **band))
        if known(methods[method]["diverged"]):
            end = max(int(finite.all(0).sum()) - 1, 0)
            marks.append(mark("plot", at[end], middle[end], "x", color=look["color"], markersize=7, markeredgewidth=2))
    return marks


def _finish(entry: Entry, axes: Axes) -> None:
    title, metric, _, methods = entry
    axes.set_title(title, fontsize=9)
    numbers = {
        m: (len(known(methods[m]["diverged"])), len(methods[m]["diverged"])) for m in [*MEMBERS][::-1] if m in methods
    }
    lost = [f"{MEMBERS[m]} ({number} of {of})" for m, (number, of) in numbers.items() if number]
    if lost:
        y, side = (0.97, "top") if metric == "loss" else (0.03, "bottom")
        axes.text(0.97, y, "\n".join(["diverged (×):", *lost]), fontsize=7, ha="right", va=side,
                  transform=axes.transAxes)  # fmt: skip


def _scale(entries: Sequence[Entry]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a logarithmic scale of losses that a run on its way to infinity does not stretch, or one of accuracies
    from where they are after the first twentieth of the rounds.
    """
    if entries[0][1] != "loss":
        late = [
            runs["accuracy"][:, np.asarray(rounds) >= rounds[-1] / 20]
            for _, _, rounds, methods in entries
            for runs in methods.values()
        ]
        values = known(np.concatenate([part.ravel() for part in late]).tolist())
        return {"ylabel": "test accuracy", "ylim": (max(0.0, min(values) - 0.05) if values else None, None)}, {}
    every = [runs["loss"] for *_, methods in entries for runs in methods.values()]
    low = 0.8 * max(min(known(np.concatenate([v.ravel() for v in every]).tolist())), 1e-4)
    high = 1.5 * max(float(v[:, 0].max()) for v in every)
    plain = DECADE if high > 8 * low else (1.0, 2.0, 3.0, 4.0, 5.0, 7.0)
    return {"ylabel": "training loss", "yscale": "log", "ylim": (low, high)}, {"y": plain}


# Claims: the statements that several figures share, with the numbers that go into them. They are judged by counts,
# which add up over the figures.

HELPS = Statement(
    "{text}", ALL, "holds if right == of | holds in part if right or some | fails",
    "LoSAC, {trails}.",
    "Holds if from the least value to the greatest the accuracy rises and the sustained rounds to 85 % fall in every "
    "series, both by more than the spread of the seeds; in part if one of the two does in some.",
)  # fmt: skip
FEDCM_HELPED = Statement(
    "More clients lead to a higher performance of FedCM.", BOTH, MOST,
    "{trails}.",
    "Holds if the loss falls from the fewest to the most clients by more than the spread of the seeds, in three of "
    "four series: the paper says generally, not by how much.",
)  # fmt: skip
FEDCM_HURT = Statement(
    "In the non-IID case more local steps degrade the performance of FedCM.", BOTH,
    "holds if whole and rises == of | holds in part if whole or end | fails",
    "{trails}.",
    "Holds if the loss rises with every T; in part if it is higher at the largest T than at the smallest, or than at "
    "the best, by more than the spread of the seeds.",
)  # fmt: skip
DEGRADES = Statement(
    "Non-IID data significantly degrade the performance of FedAvg and MimeSVRG.", BOTH, MOST,
    "Last loss non-IID over IID for {varied}: {shown}.",
    "Significantly: the loss rises by a fifth or more. Holds if it does in three of four settings of both methods "
    "together.",
)  # fmt: skip
AFFECTS = Statement(
    "The non-IID case affects the performance of FedCM.", BOTH, MOST,
    "Last loss non-IID over IID for {varied}: {shown}.",
    "The paper claims an effect, of no size: holds if the loss is higher than with IID data by more than the spread of "
    "the seeds in three of four settings.",
)  # fmt: skip
SAGA = Statement(
    "FedSaga performs worse than FedAvg.", "Limitation of FedSaga",
    "holds if printed >= 0.75 * of | holds in part if printed or mean | fails",
    "As printed, with the sum of the updates over N, its last loss is more than 5 % above FedAvg's in {printed} of "
    "{of} settings; averaged over the sampled clients, 1/S, in {mean} of {of}. {shown}.",
    "Holds if, as Algorithm 1 prints it (1/N), the last loss is more than 5 % above FedAvg's in three of four "
    "settings. The count with 1/S, as FedAvg averages here, is given as well.",
    Headline(
        "FedSaga is worse than FedAvg", "worse", "1/N as printed: worse in {printed} of {of} settings; 1/S: in {mean}"
    ),
)  # fmt: skip
BEATS = Statement(
    "In the non-IID setting LoSAC outperforms SCAFFOLD.", BOTH, LEAD,
    "LoSAC's last loss is lower by more than 5 % in {equal} of {of} settings at equal η, and in {fair} with SCAFFOLD's "
    "server step at M = {BLOCKS}, which makes the steps equally long. Sustained rounds to 85 % for {varied}: LoSAC "
    "{rounds}, SCAFFOLD {rival_rounds}, with equally long steps {long_rounds}.",
    "Holds if the last loss is lower by more than 5 % in three of four settings, both at equal η and with equally long "
    "steps.",
)  # fmt: skip
PROMINENT = Statement(
    "LoSAC exhibits prominent performance improvements over the others.", BOTH, LEAD,
    "It has the lowest loss of the paper's algorithms in {equal} of {of} settings{others}, and in {fair} when SCAFFOLD "
    "with equally long steps takes part.",
    "Holds if it has the lowest last loss in three of four settings, also when SCAFFOLD with equally long steps takes "
    "part.",
)  # fmt: skip
SECOND = Statement(
    "SCAFFOLD performs the second best in overall performance.", "Ablation study, Table 2", MOST,
    "By the last loss SCAFFOLD is first or second of the paper's algorithms in {right} of {of} settings (its places: "
    "{places}).",
    "Holds if it is first or second by the last loss, among the algorithms of the paper's figure, in three of four "
    "settings.",
)  # fmt: skip
COMPARABLE = Statement(
    "MimeSVRG's performance is comparable to SCAFFOLD's, at twice the computation.", "Compared algorithms",
    "holds if near >= 0.75 * of and not dear | holds in part if near | fails",
    "Its last loss is within {ALIKE:.0%} of SCAFFOLD's in {near} of {of} settings (MimeSVRG over SCAFFOLD, {shown}). "
    "A client evaluates {cost:g} times as many gradients in a round as SCAFFOLD's, at T = {steps} and M = "
    "{BLOCKS}.",
    "Holds if the last losses differ by at most {ALIKE:.0%} in three of four settings, and the gradients that a client "
    "evaluates in a round are twice as many, or fewer.",
)  # fmt: skip
FLUCTUATES = Statement(
    "MimeSVRG shows large fluctuations in the non-IID setting.", BOTH, MOST,
    "Back and forth of the accuracy in the second half, points per round, for {varied}: MimeSVRG {own:.2f|diverged} "
    "non-IID and {iid:.2f|diverged} IID; the larger of LoSAC's and SCAFFOLD's {rivals:.2f|diverged} non-IID.",
    "Large: at least twice its own with IID data, and more than LoSAC's and SCAFFOLD's. Holds if so in three of four "
    "settings.",
)  # fmt: skip
GROWS = Statement(
    "More local iterations lead to larger fluctuations of MimeSVRG.", BOTH,
    "holds if grows == of and whole | holds in part if whole | fails",
    "Back and forth of its accuracy in the second half, points per round, for {varied}: {own:.2f|diverged}.",
    "Holds if they grow with every T, and from the smallest T to the largest by more than the spread of the seeds; in "
    "part if only the latter.",
)  # fmt: skip


def varied(cases: Sequence[Case]) -> str:
    """Return which values the parameter that differs between the cases has.

    >>> varied([Case("mnist", "iid", 10, 5), Case("mnist", "iid", 30, 5)])
    'S = 10, 30'
    """
    if len({case.partition for case in cases}) > 1:
        return f"c = {', '.join(case.partition.partition(':')[2] for case in cases)}"
    parameter = _parameter(cases)
    return f"{parameter} = {', '.join(str(case.value(parameter)) for case in cases)}"


def _parameter(cases: Sequence[Case]) -> str:
    return "T" if len({case.t for case in cases}) > 1 else "S"


def by_kind(cases: Sequence[Case], text: Callable[[list[Case]], str]) -> str:
    """Return what is said of the cases of each data set and partition, one after the other."""
    parts = []
    for data, word in dict.fromkeys((case.data, case.kind) for case in cases):
        mine = [case for case in cases if (case.data, case.kind) == (data, word)]
        parts.append(f"{data.upper()}, {word}, {varied(mine)}: {text(mine)}")
    return "; ".join(parts)


def more_helps(found: Found, all_series: Sequence[Sequence[Case]], text: str) -> list[JudgedClaim]:
    """Judge that a larger S or T makes LoSAC faster and better, from the least value to the greatest."""
    right, some, parts = 0, 0, []
    for series in all_series:
        runs = [found[case]["losac"] for case in series]
        accuracy = [100 * last(one, "accuracy") for one in runs]
        first, stayed = [mean(one["reached"], math.inf) for one in runs], [sustained(one) for one in runs]
        better = beyond(-runs[0]["accuracy"][:, -1], -runs[-1]["accuracy"][:, -1])
        faster = beyond(runs[0]["stayed"], runs[-1]["stayed"])
        right += better and faster
        some += better or faster
        parts.append(
            f"{series[0].data.upper()}, {series[0].kind}, {varied(series)}: accuracy {told(accuracy, '.1f')} % "
            f"({_rise(better)}), sustained rounds to 85 % {told(stayed, '.0f|never')} ({_rise(faster)}; first "
            f"crossings {told(first, '.0f|never')}), last loss "
            f"{told(losses(found, series, 'losac'), '.3f|diverged')}"
        )
    numbers = {"right": right, "some": some, "of": len(all_series), "text": text, "trails": "; ".join(parts)}
    return judge([HELPS], numbers)


def _rise(there: bool) -> str:
    return "beyond the spread" if there else "within the spread of the seeds"


def _trail(found: Found, series: Sequence[Case], method: str) -> str:
    return f"{series[0].kind}, {varied(series)}: {told(losses(found, series, method), '.3f|diverged')}"


def fedcm_helped(found: Found, all_series: Sequence[Sequence[Case]]) -> list[JudgedClaim]:
    """Judge that more clients lower FedCM's loss."""
    ends = [[found[case]["fedcm"]["loss"][:, -1] for case in (series[0], series[-1])] for series in all_series]
    trails = "; ".join(_trail(found, series, "fedcm") for series in all_series)
    right = sum(beyond(few, many) for few, many in ends)
    return judge([FEDCM_HELPED], {"right": right, "of": len(ends), "trails": f"FedCM's last loss, {trails}"})


def fedcm_hurt(found: Found, series: Sequence[Case]) -> list[JudgedClaim]:
    """Judge that more local steps raise FedCM's loss."""
    values = losses(found, series, "fedcm")
    ends = [found[case]["fedcm"]["loss"][:, -1] for case in series]
    best = int(np.argmin(values))
    numbers = {
        "rises": sum(b > a for a, b in pairwise(values)), "of": len(values) - 1, "whole": beyond(ends[-1], ends[0]),
        "end": beyond(ends[-1], ends[best]), "trails": f"FedCM's last loss, {_trail(found, series, 'fedcm')}",
    }  # fmt: skip
    return judge([FEDCM_HURT], numbers)


def _non_iid(found: Found, iid: Sequence[Case], skewed: Sequence[Case]) -> list[JudgedClaim]:
    def ratios(method: str) -> list[float]:
        return list(map(over, losses(found, skewed, method), losses(found, iid, method)))

    def shown(method: str) -> str:
        return f"{MEMBERS[method]} {told(ratios(method), '.2f|diverged')}"

    both = ("fedavg", "mime_svrg")
    every = [ratio for method in both for ratio in ratios(method)]
    pairs = [(found[a]["fedcm"]["loss"][:, -1], found[b]["fedcm"]["loss"][:, -1]) for a, b in zip(skewed, iid)]
    words = {"varied": varied(skewed)}
    degraded = {"right": sum(ratio >= DEGRADED for ratio in every), "of": len(every)}
    affected = {"right": sum(beyond(a, b) for a, b in pairs), "of": len(pairs)}
    return [
        *judge([DEGRADES], words | degraded | {"shown": "; ".join(map(shown, both))}),
        *judge([AFFECTS], words | affected | {"shown": shown("fedcm")}),
    ]


def compared(found: Found, iid: Sequence[Case], skewed: Sequence[Case]) -> list[JudgedClaim]:
    """Judge what the paper says of Figs. 3 and 4 alike."""
    cases = [*iid, *skewed]
    best = [min((m for m in PAPER if m in found[c]), key=lambda m: last(found[c][m])) for c in cases]
    fair = [min((m for m in (*PAPER, LONG) if m in found[c]), key=lambda m: last(found[c][m])) for c in cases]
    others = ", ".join(sorted({MEMBERS[m] for m in best if m != "losac"}))
    numbers: dict[str, Any] = {"equal": best.count("losac"), "fair": fair.count("losac"), "of": len(cases)}
    prominent = judge([PROMINENT], numbers | {"others": f" (else {others})" if others else ""})
    ours, rival, long = (losses(found, skewed, m) for m in ("losac", "scaffold", LONG))
    equal, fair_wins = (sum(a < CLEARLY * b for a, b in zip(ours, theirs)) for theirs in (rival, long))
    rounds, rival_rounds, long_rounds = (
        told([sustained(found[c][m]) for c in skewed], ".0f|never") for m in ("losac", "scaffold", LONG)
    )
    lead = {"equal": equal, "fair": fair_wins, "of": len(skewed), "BLOCKS": BLOCKS, "varied": varied(skewed)}
    lead |= {"rounds": rounds, "rival_rounds": rival_rounds, "long_rounds": long_rounds}
    return [
        *prominent, *judge([BEATS], lead), *_non_iid(found, iid, skewed), *saga_worse(found, cases),
        *second_best(found, cases), *comparable(found, cases), *_fluctuates(found, iid, skewed),
    ]  # fmt: skip


def saga_worse(found: Found, cases: Sequence[Case]) -> list[JudgedClaim]:
    """Judge that FedSaga is worse than FedAvg, averaged as printed and over the sampled clients."""
    average = losses(found, cases, "fedavg")
    numbers: dict[str, Any] = {"of": len(cases)}
    for name, method in (("printed", "fedsaga"), ("mean", MEAN_SAGA)):
        mine = losses(found, cases, method) if all(method in found[case] for case in cases) else []
        numbers[name] = sum(CLEARLY * a > b for a, b in zip(mine, average))

    def rows(mine: list[Case]) -> str:
        printed, mean_, own = (
            told([last(found[c][m]) if m in found[c] else None for c in mine], ".3f|diverged")
            for m in ("fedsaga", MEAN_SAGA, "fedavg")
        )
        return f"{printed} as printed, {mean_} with 1/S, FedAvg {own}"

    return judge([SAGA], numbers | {"shown": f"Last losses: {by_kind(cases, rows)}"})


def places(found: Found, cases: Sequence[Case], method: str) -> list[int]:
    """Return a method's places among the paper's algorithms by the last loss, 1 for the lowest."""
    return [
        1 + sum(last(found[c][m]) < last(found[c][method]) for m in PAPER if m != method and m in found[c])
        for c in cases
    ]


def second_best(found: Found, cases: Sequence[Case]) -> list[JudgedClaim]:
    """Judge that SCAFFOLD comes second."""
    ranks = dict(zip(cases, places(found, cases, "scaffold")))
    shown = by_kind(cases, lambda mine: told([ranks[c] for c in mine]))
    right = sum(rank <= 2 for rank in ranks.values())
    return judge([SECOND], {"right": right, "of": len(cases), "places": shown})


def comparable(found: Found, cases: Sequence[Case]) -> list[JudgedClaim]:
    """Judge that MimeSVRG does as SCAFFOLD does, and what it costs."""
    mime, scaffold = (losses(found, cases, m) for m in ("mime_svrg", "scaffold"))
    ratios = dict(zip(cases, map(over, mime, scaffold)))
    steps = max(case.t for case in cases)
    cost = gradients_of("mime_svrg", steps) / gradients_of("scaffold", steps)
    numbers = {
        "near": sum(abs(ratio - 1) <= ALIKE for ratio in ratios.values()), "of": len(cases), "dear": cost > 2.1,
        "cost": cost, "steps": steps, "BLOCKS": BLOCKS, "ALIKE": ALIKE,
        "shown": by_kind(cases, lambda mine: told([ratios[c] for c in mine], ".2f|diverged")),
    }  # fmt: skip
    return judge([COMPARABLE], numbers)


@lru_cache
def gradients_of(name: str, steps: int) -> float:
    """Return the gradients that a client of a method evaluates in a round, in passes over its rows."""
    costs = profile(algorithm(name, step_size=1.0, local_steps=steps, blocks=BLOCKS))
    return sum(phase.gradients for phase in costs.phases)


def _fluctuates(found: Found, iid: Sequence[Case], skewed: Sequence[Case]) -> list[JudgedClaim]:
    own, level = (fluctuations(found, cases, "mime_svrg") for cases in (skewed, iid))
    rivals = list(map(max, *(fluctuations(found, skewed, m) for m in ("losac", "scaffold"))))
    right = sum(a > 2 * b and a > c for a, b, c in zip(own, level, rivals))
    numbers = {"own": own, "iid": level, "rivals": rivals, "right": right, "of": len(iid)}
    return judge([FLUCTUATES], numbers | {"varied": varied(skewed)})


def fluctuates_more(found: Found, series: Sequence[Case]) -> list[JudgedClaim]:
    """Judge that MimeSVRG's fluctuations on sorted data grow with the local steps."""
    own = fluctuations(found, series, "mime_svrg")
    grows = sum(b > a for a, b in pairwise(own))
    few, many = (found[case]["mime_svrg"]["late"] for case in (series[0], series[-1]))
    numbers = {"own": own, "grows": grows, "whole": beyond(many, few), "of": len(own) - 1}
    return judge([GROWS], numbers | {"varied": varied(series)})
