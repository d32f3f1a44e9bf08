"""Every algorithm, tuned on the same budget: what the paper does not show.

Each method's step size and the setting that makes it what it is (server step, momentum, …: ``losac.tuning.spaces``)
are tuned on a fifth of every client's training rows, which nobody trains on; a grid whose best point lies at an edge is
continued. The best settings then run with fresh seeds and are judged on the test rows. ``LoSAC, by rule`` is not tuned
at all: its step comes from one measurement (``losac.tuning.suggest``). Scaffnew and TAMUNA are left out: they draw
their number of local steps, often many times T: the same rounds are not the same budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm
from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.methods import SAME, SAME_WORDS, name_of
from losac_reproduction.panels import DECADE, Mark, Panel, draw, look_of, mark, plain_log
from losac_reproduction.problems import DATASETS, algorithm, paper_task, run, version
from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study
from losac_reproduction.words import Interval, interval, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

CLIENTS, SAMPLED, STEPS, BLOCKS, ETA, VALIDATION = 100, 10, 5, 5, 1e-4, 0.2
TARGETS = {"mnist": 0.95, "har": 0.9, "esr": 0.85}
ROUNDS = 200
LOSACS: dict[str, dict[str, Any]] = {
    "losac": {},
    "losac_exact": {"scaling": "exact"},
    "losac_rule": {"scaling": "exact"},
}
QUICK = ("fedavg", "scaffold", "fedcm", "losac", "losac_rule")
OURS = ("losac", "losac_exact", "losac_rule")
PAPERS = ("losac", "scaffold", "fedavg", "fedsaga", "mime_svrg", "fedcm", "fedadmm")
TIED_WORDS = (
    "the difference of the means is at most √(a² + b²), where a and b are the half widths of the two 95 % intervals"
)
"""When the difference between two means is within its own uncertainty: see :func:`tied`."""
CLAIMS = (
    Statement(
        "LoSAC is superior to state-of-the-art federated optimisation.", "Abstract",
        "holds if named >= 0.8 * max(settings, 1) | holds in part if named >= 0.5 * max(settings, 1) | fails",
        "With tuned step sizes the paper's LoSAC needs the fewest sustained rounds, or as few as the best, in {named} "
        "of {settings} settings among the paper's rivals and in {all} among all; by first crossings in {named_first} "
        "and {all_first}.",
        "Holds if, with every method tuned on the same budget, no rival of the paper's needs clearly fewer sustained "
        "rounds to the target in four of five settings (data set, IID or not); in part: in half of them. Not clearly: "
        "{TIED_WORDS}.",
        Headline(
            "fewest rounds among the paper's rivals", "always", "", "",
            "{kind} {named} of {settings} settings (first {named_first})",
        ),
    ),
    Statement(
        "The step size is set to yield as the best performance as possible for each algorithm.", "Compared algorithms",
        "not testable if not total | holds if near >= 0.8 * total | holds in part if near >= 0.5 * total | fails",
        "At η = 1e-4, with the best second setting, {near} of {total} tunings of the paper's methods come within 10 % "
        "of the validation loss at the best η.",
        "Holds if, at the paper's step size, four of five tunings of its methods come within 10 % of the validation "
        "loss at the best step size of the grid; in part if half do.",
    ),
    Statement(
        "LoSAC improves the communication efficiency by more than 100 % on average.", "Abstract", "", "{twice}.",
        headline=Headline(tuned="{tuned}"),
    ),
    Statement(
        "LoSAC requires much fewer communication rounds than SCAFFOLD to reach a given accuracy.",
        "Ablation, communication efficiency", "", "Tuned, LoSAC needs fewer sustained rounds than SCAFFOLD in {fewer} "
        "of {settings} data sets, {kind}, and fewer to the first crossing in {fewer_first}.",
        headline=Headline(tuned="{kind} {fewer} of {settings} data sets (first {fewer_first})"),
    ),
    Statement(
        "LoSAC ends at a lower loss than SCAFFOLD.", "Ablation study, Table 2", "",
        "Test loss over SCAFFOLD's at the last round, both tuned, {kind}: {ends}.",
        headline=Headline(tuned="{kind} {ends_short}"),
    ),
    Statement(
        "FedAvg improves the communication efficiency compared with FedSGD.", "Compared algorithms", "",
        "Sustained rounds to the target, both tuned, {kind}, first crossings in brackets: {single}.",
    ),
)  # fmt: skip
_COST = {"mnist": 3.0, "har": 1.5, "esr": 1.0}


def methods() -> list[str]:
    """Return all public algorithms with T local steps, LoSAC in both scalings and by its rule."""
    return [*LOSACS, *(name for name in ALGORITHMS if name != "losac" and not random_steps(name))]


def random_steps(name: str) -> bool:
    """Whether a method draws its number of local steps."""
    return ALGORITHMS[name](ETA).draw_steps(0.5) is not None


def jobs(options: Options, partition: str) -> list[Job]:
    """Return one job for each method and data set; the short form has five methods on HAR, or two on IID data."""
    few = QUICK if partition == "sorted" else QUICK[-2:]
    names, data = (few, ["har"]) if options.quick else (methods(), list(DATASETS))
    rounds = 30 if options.quick else ROUNDS
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    for name in names:
        _plan(name, options.quick)  # an algorithm without a space, say, is refused before hours are spent on the others
    return [
        Job(
            measure,
            {"data": one, "partition": partition, "method": name, "rounds": rounds, "seeds": seeds,
             "short": options.quick},
            f"fair: {name} on {one}, {partition}",
            _COST[one] * (1 if name == "losac_rule" else 4) * (1 if _partial(name) else 6),
            version(one),
        )
        for one in data
        for name in names
    ]  # fmt: skip


def _partial(name: str) -> bool:
    return name in LOSACS or ALGORITHMS[name].partial


def measure(data: str, partition: str, method: str, rounds: int, seeds: list[int], short: bool) -> dict[str, Any]:
    """Tune a method, then run its best settings; if all its trials diverge, it is said to have failed."""
    from losac.report.profile import profile
    from losac.tuning import AllDivergedError, suggest

    whole = paper_task(data, CLIENTS, partition)
    task = dataclasses.replace(whole, data=whole.data.split(VALIDATION, seed=0)[0])
    sampled = SAMPLED if _partial(method) else CLIENTS
    found: dict[str, Any] = {"sampled": sampled}
    if method == "losac_rule":
        best = suggest(task, local_steps=STEPS, blocks=BLOCKS, clients_per_round=sampled)
        found |= {"best": {"step_size": float(best.step_size)}, "edges": {}, "trials": [], "axes": ["step_size"]}
    else:
        try:
            tuning = _tuned(whole, method, sampled, rounds, short)
        except AllDivergedError as error:
            return found | {"failed": str(error)}
        best, axes = tuning.algorithm, list(tuning.space)
        trials = [[*(trial.settings[name] for name in axes), trial.score] for trial in tuning.trials]
        found |= {"best": tuning.best, "edges": dict(tuning.edges), "trials": trials, "axes": axes}
    measured = profile(best)
    found |= {"client_state": measured.client_state + measured.table_state, "up": measured.up, "down": measured.down}
    every = 1 if rounds <= 100 else 2
    runs = run(
        task, best, seeds, rounds=rounds, sampled=sampled, eval_every=every, loss_every=rounds,
        targets=[TARGETS[data]], curve=["accuracy"], points=21,
    )  # fmt: skip
    return found | {"runs": runs}


def _tuned(task: Any, method: str, sampled: int, rounds: int, short: bool) -> Any:
    from losac.tuning import tune

    start, space = _plan(method, short)
    return tune(
        task, start, space, rounds=rounds, clients_per_round=sampled, metric="loss", validation=VALIDATION,
        widen=not short, most_widenings=4,
    )  # fmt: skip


def _plan(method: str, short: bool) -> tuple[Algorithm, Mapping[str, Sequence[float]]]:
    """Return what the search of a method starts from, and its space."""
    from losac.tuning import default_space

    name = "losac" if method in LOSACS else method
    space: Mapping[str, Sequence[float]] = default_space(name, ETA)
    if method == "losac_exact":
        space = {"step_size": space["step_size"], "correction": [0.02, 0.06, 0.2, 0.6]}
    if short:
        space = {key: list(values)[2:4] if key == "step_size" else list(values)[1:2] for key, values in space.items()}
    first = {key: values[0] for key, values in space.items()}
    return algorithm(name, **settings_of(name), **LOSACS.get(method, {}), **first), space


def settings_of(name: str) -> dict[str, Any]:
    """Return T and M, but no T for a method with a single step, as DSGD."""
    settings = {"blocks": BLOCKS, "local_steps": STEPS}
    try:
        algorithm(name, step_size=ETA, **settings)
    except ValueError:
        del settings["local_steps"]
    return settings


# What the runs say


class Line(NamedTuple):
    """One method in one setting; None where a seed never got there.

    ``first`` is what it took to cross the target for the first time, ``stayed`` what it took to the first of five
    evaluations in a row at it: rounds, bytes and gradients.
    """

    method: str
    about: Mapping[str, Any]
    first: Mapping[str, Interval | None]
    stayed: Mapping[str, Interval | None]
    accuracy: Interval | None
    loss: Interval | None


Where = tuple[str, str]
Lines = Mapping[Where, Sequence[Line]]
"""The methods by data set and partition."""
Value = Callable[[Line], Interval | None]
_SPENT = ("round", "bytes", "gradients")
_CRITERIA: dict[str, tuple[Value, int]] = {
    "sustained rounds": (lambda line: line.stayed["round"], 1),
    "rounds to the first crossing": (lambda line: line.first["round"], 1),
    "sustained bytes": (lambda line: line.stayed["bytes"], 1),
    "sustained gradients": (lambda line: line.stayed["gradients"], 1),
    "accuracy": (lambda line: line.accuracy, -1),
    "test loss": (lambda line: line.loss, 1),
}


def by_trial(one: JobResult) -> JobResult:
    """Name the settings and the score of every trial, and what was reached by none."""
    found = dict(one.result)
    axes = found.pop("axes", [])
    found["trials"] = [{"step_size": trial[0], "score": trial[-1]} for trial in found.get("trials", []) if axes]
    for each in ("best", "edges"):
        found[each] = [{"setting": name, each: value} for name, value in found.get(each, {}).items()]
    found["runs"] = [
        entry | {"reached": next(iter(entry["reached"].values())) or dict.fromkeys(("round", "bytes", "gradients"))}
        for entry in found.get("runs", [])
    ]
    return one._replace(result=found)


def lines_of(frame: pd.DataFrame) -> dict[Where, list[Line]]:
    """Return the methods of every setting."""
    where = ("data", "partition", "method")
    found = {name: cells(frame, name, where) for name in ("sampled", "client_state", "failed", "trials score")}
    crossed = {name: cells(frame, f"reached {name}", where) for name in _SPENT}
    ends = [cells(frame, f"final {name}", where) for name in ("accuracy", "test_loss")]
    steps = cells(frame, "trials score", (*where, "step_size"))
    settings = {name: cells(frame, f"{name} {name}", (*where, "setting")) for name in ("best", "edges")}
    lines: dict[Where, list[Line]] = {}
    for key in found["sampled"]:
        about = {name: found[name][key][0] for name in ("sampled", "client_state", "failed") if key in found[name]}
        for name, values in settings.items():
            about[name] = {k[3]: v for k, [v] in values.items() if k[:3] == key}
        about["trials"] = len(found["trials score"].get(key, []))
        about["scores"] = {k[3]: [v for v in scores if np.isfinite(v)] for k, scores in steps.items() if k[:3] == key}
        first, stayed = {}, {}
        for name in _SPENT:
            all_first = crossed[name].get(key, [])
            kept = cells(frame, f"stayed {TARGETS[key[0]]:g} {name}", where).get(key, [])
            first[name] = interval(all_first)
            stayed[name] = interval([*kept, *[None] * (len(all_first) - len(kept))])
        line = Line(key[2], about, first, stayed, *(interval(values.get(key, [])) for values in ends))
        lines.setdefault(key[:2], []).append(line)
    return {where: _once(rows) for where, rows in lines.items()}


def _once(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without the methods that coincide with another of them."""
    there = {line.method for line in lines}
    return [line for line in lines if SAME.get(line.method) not in there]


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Rank the methods in every setting, and say who wins where."""
    settings = lines_of(frame)
    tables = [_winners(settings), *(_table(where, lines) for where, lines in settings.items())]
    figures = [
        Figure("fair-rounds", "Sustained rounds: until the first of five evaluations in a row at the target, every "
               "method tuned, the best at the top. Points: mean; bars: 95 % confidence interval over the seeds; blue: "
               "LoSAC; vertical ticks: mean of the first crossings. Methods with a seed that did not stay at the "
               "target are named below the panel.",
               lambda: _draw(settings, _rounds, "sustained rounds to the target", log=True)),
        Figure("fair-accuracy", "Test accuracy after the last round, every method tuned, the best at the top. Points: "
               "mean; bars: 95 % confidence interval over the seeds; blue: LoSAC. An arrow stands for a mean too low "
               "for the axis.",
               lambda: _draw(settings, lambda line: line.accuracy, "test accuracy", log=False)),
    ]  # fmt: skip
    return Findings(_summary(settings), judge(CLAIMS, _numbers(settings)), tables, figures)


def _sorted(lines: Sequence[Line], value: Callable[[Line], Interval | None], sign: int = 1) -> list[Line]:
    """Return the lines in order, the best first; those without a value last, by accuracy."""

    def key(line: Line) -> tuple[int, float]:
        found = value(line)
        if found is not None:
            return 0, sign * found.mean
        return (1, -line.accuracy.mean) if line.accuracy is not None else (2, 0.0)

    return sorted(lines, key=key)


def _tied(lines: Sequence[Line], value: Callable[[Line], Interval | None]) -> list[Line]:
    """Return, of sorted lines, the best and those not told apart from it: see :data:`TIED_WORDS`."""
    best = value(lines[0]) if lines else None
    if best is None:
        return []
    near = []
    for line in lines:
        mine = value(line)
        if mine is not None and tied(mine, best):
            near.append(line)
    return near


def tied(one: Interval, other: Interval) -> bool:
    """Whether two means are too close to be told apart: see :data:`TIED_WORDS`.

    >>> tied(Interval(10, 3), Interval(14, 3)), tied(Interval(10, 3), Interval(15, 3))
    (True, False)
    """
    return bool(abs(one.mean - other.mean) <= np.hypot(one.half, other.half))


def _winners(settings: Lines) -> ResultTable:
    rows = []
    for (data, partition), lines in settings.items():
        for name, (value, sign) in _CRITERIA.items():
            ordered = _sorted(lines, value, sign)
            near = [name_of(line.method) for line in _tied(ordered, value)]
            ours = [line for line in ordered if line.method in OURS]
            place = next((k + 1 for k, line in enumerate(ordered) if line.method in OURS), None)
            rows.append(
                [data.upper(), _kind(partition), name, near[0] if near else "nobody", ", ".join(near[1:]) or None,
                 f"{name_of(ours[0].method)}: {place} of {len(ordered)}" if ours and value(ours[0]) else "not there"]
            )  # fmt: skip
    note = f"*Not told apart* from the best: {TIED_WORDS} over the seeds."
    columns = ("data", "clients", "criterion", "best", "not told apart from it", "LoSAC's best place")
    return ResultTable("winners", "Who wins where", columns, rows, note)


def _table(where: Where, lines: Sequence[Line]) -> ResultTable:
    rows, (data, partition) = [], where
    for line in _sorted(lines, _rounds):
        about = line.about
        if "failed" in about:
            rows.append([name_of(line.method), about["failed"], *[None] * 9])
            continue
        on_edge = [f"{name} {end}" for name, end in about["edges"].items() if end in ("low", "high")]
        rows.append(
            [
                name_of(line.method) + (" (all clients)" if about["sampled"] > 10 else ""),
                ", ".join(f"{name} {value:.3g}" for name, value in about["best"].items()),
                about["trials"], ", ".join(on_edge) or "inside",
                *(one and one.shown("{:.0f}") for one in (line.stayed["round"], line.first["round"])),
                (spent := line.stayed["bytes"]) and spent.shown("{:.0f}", 1e-6),
                (spent := line.stayed["gradients"]) and spent.shown("{:.0f}", 1e-3),
                line.accuracy and line.accuracy.shown("{:.2f}", 100),
                line.loss and line.loss.shown("{:.4f}"),
                round(about["client_state"], 2),
            ]
        )  # fmt: skip
    columns = (
        "method", "best settings", "trials", "optimum", "sustained rounds", "rounds to the first crossing",
        "MB, sustained", "1000 gradients, sustained", "accuracy, %", "test loss", "client keeps, models",
    )  # fmt: skip
    note = (
        "Mean ± half of the 95 % interval over the seeds; – where a seed did not get there. *Sustained*: to the first "
        "of five evaluations in a row at the target. Without a regulariser "
        f"{SAME_WORDS}; each counts once. FedSaga (1/S) averages over the sampled clients; the paper's 1/N is its "
        "server step at S/N = 0.1."
    )
    return ResultTable(f"{data}-{partition}", f"{data.upper()}, {_kind(partition)}", columns, rows, note)


def _kind(partition: str) -> str:
    """Return what the paper calls a partition."""
    return "IID" if partition == "iid" else "non-IID"


def _summary(settings: Lines) -> str:
    every = [line.about for lines in settings.values() for line in lines]
    trials = [about["trials"] for about in every if about["trials"]]
    edges = [end for about in every for end in about["edges"].values()]
    outside = sum(end in ("low", "high") for end in edges)
    parts = []
    for (data, _), lines in settings.items():
        names = [name_of(line.method) for line in _tied(_sorted(lines, _rounds), _rounds)]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        parts.append(f"{data.upper()}: {', '.join(names[:4]) or 'nobody'}{more}")
    return (
        f"Fewest sustained rounds, the best first, then those not told apart from it. {'; '.join(parts)}. "
        f"{min(trials, default=0)} trials for each method, up to {max(trials, default=0)} where a best point lay on an "
        f"edge and the grid was continued; {outside} of {len(edges)} tuned settings still lie on one."
    )


def _rounds(line: Line) -> Interval | None:
    return line.stayed["round"]


def _first(line: Line) -> Interval | None:
    return line.first["round"]


def _numbers(settings: Lines) -> dict[str, Any]:
    """Return in how many settings LoSAC is not told apart from the best, and how near the paper's steps are."""
    ahead, near, total = dict.fromkeys(("named", "all", "named_first", "all_first"), 0), 0, 0
    for lines in settings.values():
        named = [line for line in lines if line.method in PAPERS]
        for suffix, value in (("", _rounds), ("_first", _first)):
            for name, among in (("named", named), ("all", lines)):
                ahead[name + suffix] += any(one.method == "losac" for one in _tied(_sorted(among, value), value))
        for scores in (line.about["scores"] for line in named):
            at_paper = [score for step, row in scores.items() if abs(np.log10(step / 1e-4)) < 0.1 for score in row]
            if at_paper:
                total += 1
                near += min(at_paper) <= 1.1 * min(score for row in scores.values() for score in row)
    stayed, first = (_ratios(settings, "scaffold", "losac", value) for value in (_rounds, _first))
    ends = _ratios(settings, "losac", "scaffold", lambda line: line.loss)
    kind = ", ".join(dict.fromkeys(_kind(partition) for _, partition in settings))
    twice = (
        f"Sustained rounds of SCAFFOLD over LoSAC's to the target, both tuned, {kind}, where both get there: "
        f"{_by_data(stayed)}; to the first crossing {_by_data(first)}"
    )
    return ahead | {
        "settings": len(settings), "near": near, "total": total, "kind": kind, "TIED_WORDS": TIED_WORDS,
        "twice": twice if stayed or first else "No setting in which both reach the target",
        "tuned": f"{kind} {_short(settings, stayed)} (first {_short(settings, first)})" if stayed or first else "",
        "fewer": sum(ratio > 1 for ratio in stayed.values()), "fewer_first": sum(ratio > 1 for ratio in first.values()),
        "ends": _by_data(ends), "ends_short": _short(settings, ends), "single": _against(settings, "fedavg", "dsgd"),
    }  # fmt: skip


def _by_data(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{data.upper()} {ratio:.2f}" for data, ratio in ratios.items()) or "none"


def _short(settings: Lines, ratios: Mapping[str, float]) -> str:
    """Return a ratio for each data set, in their order."""
    return ", ".join(told(ratios.get(data), ".2f") for data, _ in settings)


def _by_method(lines: Sequence[Line]) -> dict[str, Line]:
    return {line.method: line for line in lines}


def _ratios(settings: Lines, above: str, below: str, value: Value) -> dict[str, float]:
    """Return a value of one method over that of another, by data set, where both have it."""
    pairs = {data: [_by_method(lines).get(name) for name in (above, below)] for (data, _), lines in settings.items()}
    found = {data: [line and value(line) for line in pair] for data, pair in pairs.items()}
    return {data: a.mean / max(b.mean, 1e-12) for data, (a, b) in found.items() if a is not None and b is not None}


def _against(settings: Lines, first: str, second: str) -> str:
    """Return the sustained rounds and the first crossings of two methods, by data set."""

    def shown(line: Line | None) -> str:
        found = [line and value(line) for value in (_rounds, _first)]
        stayed, crossed = (one.shown("{:.0f}") if one else "never" for one in found)
        return f"{stayed} ({crossed})"

    parts = []
    for (data, _), lines in settings.items():
        pair = [_by_method(lines).get(name) for name in (first, second)]
        parts.append(f"{name_of(first)} {shown(pair[0])}, {name_of(second)} {shown(pair[1])} on {data.upper()}")
    return "; ".join(parts)


def _draw(settings: Lines, value: Value, label: str, *, log: bool) -> Drawing:
    across = min(3, len(settings))
    most = max(len(lines) for lines in settings.values())
    panels = []
    for (data, partition), lines in settings.items():
        drawn = [line for line in _sorted(lines, value, 1 if log else -1) if value(line) is not None][::-1]
        missing = [name_of(line.method) for line in lines if value(line) is None]
        why = "target not sustained" if log else "diverged"
        note = "\n" + fill(f"{why}: {', '.join(missing)}", 48) if missing else ""
        finish = partial(_finish, drawn, label + note, log and bool(drawn))
        panels.append(
            Panel(_points(drawn, value, clip=not log), {"title": f"{data.upper()}, {_kind(partition)}"}, finish=finish)
        )
    rows = [panels[k : k + across] for k in range(0, len(panels), across)]
    return draw(rows, (4.2 * across, (1.2 + 0.19 * most) * len(rows)))


def _points(drawn: Sequence[Line], value: Value, *, clip: bool) -> list[Mark]:
    """Return a row for each method; with clip, a mean far below the others is an arrow with its number."""
    found = [one for line in drawn if (one := value(line)) is not None]
    means, mine, marks = np.array([one.mean for one in found]), look_of("losac"), []
    low = np.median(means) - 2 * (np.quantile(means, 0.9) - np.quantile(means, 0.1)) if clip and len(found) > 4 else -1
    for place, (line, one) in enumerate(zip(drawn, found)):
        colour, marker = (mine.colour, mine.marker) if line.method in OURS else ("0.4", "s")
        if one.mean < low:
            start = min(m.mean - m.half for m in found if m.mean >= low)
            marks.append(mark("plot", start, place, "<", color=colour, markersize=5))
            beside = {"textcoords": "offset points", "va": "center", "fontsize": 7}
            marks.append(mark("annotate", f"{one.mean:.2f}", (start, place), (6, 0), **beside))
        else:
            look = {"fmt": marker, "color": colour, "markersize": 4, "capsize": 2}
            marks.append(mark("errorbar", one.mean, place, xerr=one.half, **look))
        if (crossed := _first(line)) is not None and not clip:
            marks.append(mark("plot", crossed.mean, place, "|", color=colour, markersize=7, zorder=1))
    return marks


def _finish(drawn: Sequence[Line], label: str, log: bool, panel: Axes) -> None:
    panel.set_xlabel(label, fontsize=8)
    panel.set_yticks(range(len(drawn)), [name_of(line.method) for line in drawn], fontsize=7)
    panel.set_ylim(-0.7, len(drawn) - 0.3)
    for text, line in zip(panel.get_yticklabels(), drawn):
        if line.method in OURS:
            text.set(color=look_of("losac").colour, fontweight="bold")
    if log:
        panel.set_xscale("log")
        low, high = panel.get_xlim()
        plain_log(panel.xaxis, DECADE if high > 8 * low else (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0))


KEYS = {"setting": "setting", "step_size": "step_size", "runs": "runs"}
STUDY = Study(
    "fair", "Fair: every method tuned on the same budget, non-IID", partial(jobs, partition="sorted"), conclude,
    tuple(DATASETS), place=15, keys=KEYS, reshape=by_trial,
)  # fmt: skip
IID = Study(
    "fair-iid", "Fair: every method tuned on the same budget, IID", partial(jobs, partition="iid"), conclude,
    tuple(DATASETS), place=16, keys=KEYS, reshape=by_trial,
)  # fmt: skip
