"""Figure 7: low-rank matrix estimation, the error and the rank of what each proximal method returns.

The paper states neither n_i nor λ nor T. Here n_i = 100 and T = 5; with 50 samples the paper's step size is too long.
λ = 0.1 is the smallest of the grid whose exact optimum has the right rank for all five truths. All methods get the
same λ: all that are exact must end at the same optimum, which a centralised solver finds for comparison.
LoSAC-Prox and SCAFFOLD-Prox take no proximal step on the average of the clients' models; what one would give is read
off besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.simulation import sweep
from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.lowrank import CLIENTS, COUNTED, lowrank_data, lowrank_task, one_thread_each, optimum
from losac_reproduction.panels import DECADE, Panel, draw, line_of, mark
from losac_reproduction.problems import algorithm, record
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import known, mean, none, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

RANKS, SAMPLED, BLOCKS, STEPS, ETA, ROUNDS = (32, 16, 8, 4, 2), 10, 5, 5, 2e-3, 400
SAMPLES, STRENGTH, STRENGTHS, SEARCHED = 100, 0.1, (0.05, 0.1, 0.2, 0.4), 8
RHO, SERVER_STEPS = (0.2, 1.0, 5.0, 20.0), (1.5, 2.0, 3.0, 5.0)
CURVES = ["error", "rank", "error after prox", "rank after prox"]


class Curve(NamedTuple):
    """A curve.

    Args:
      label: its name.
      name: of the algorithm.
      settings: besides η, T and M.
      prox: the length of its proximal steps over η; 0 where the server's model is the image of one anyway.
      sampled: S.
      cost: seconds for a run, roughly.
    """

    label: str
    name: str
    settings: Mapping[str, Any] = {}
    prox: float = 0.0
    sampled: int = SAMPLED
    cost: float = 20.0


ONE = {"variant": "exact", "local_steps": 1}
"""One local step a round, with which FedADMM is the linearised ADMM of its appendix, and stable with all clients."""
METHODS = {
    "losac": Curve("LoSAC-Prox", "losac", prox=CLIENTS * BLOCKS / SAMPLED),
    "printed": Curve("LoSAC-Prox, prox step as printed", "losac", {"prox_step": "printed"}, 1.0),
    "exact": Curve("LoSAC-Prox, exact scaling", "losac", {"scaling": "exact"}, 1.0),
    "scaffold": Curve("SCAFFOLD-Prox", "scaffold", prox=1.0),
    "feddualavg": Curve("FedDualAvg", "feddualavg"),
    "fedadmm": Curve("FedADMM, as printed", "fedadmm", {"step_size": 1e-4}, cost=8.0),
    "fedadmm-exact": Curve("FedADMM, exact server step", "fedadmm", {"variant": "exact"}, cost=4.0),
    "fedadmm-all": Curve("FedADMM, as printed, all clients", "fedadmm", {"step_size": 1e-4}, 0.0, CLIENTS),
    "fedadmm-exact-all": Curve("FedADMM, exact, all clients", "fedadmm", {"variant": "exact"}, 0.0, CLIENTS, 16.0),
    "fedadmm-one": Curve("FedADMM, exact, T = 1", "fedadmm", ONE, cost=4.0),
    "fedadmm-one-all": Curve("FedADMM, exact, T = 1, all clients", "fedadmm", ONE, 0.0, CLIENTS, 16.0),
}
PARTIAL = {
    "fedadmm": "as printed", "fedadmm-exact": "exact server step", "fedadmm-one": "exact server step, T = 1"
}  # fmt: skip
"""The forms of FedADMM that run with a tenth of the clients and with all."""
LOOKS = {
    "fedadmm-one": "fedadmm_exact",
    "printed": "losac_printed",
    "exact": "losac_exact",
    "fedadmm-exact": "fedadmm_exact",
}
"""The method that lends a variant its look, where that is not the one of its name."""
WHERE = "Low rank matrix estimation, Fig. 7"
MARGIN = 1.05
"""An error counts as larger than another where it is so by 5 %."""
LARGE = 1.5
"""An error counts as large against another if it is half as much again, a rank where it is a quarter off, or two."""
CLAIMS = (
    Statement(
        "LoSAC-Prox has the smallest recovery error.",
        WHERE,
        "holds if smallest == of and MARGIN * own < fair | holds only at equal step size if smallest == of | "
        "holds in part if smallest | fails",
        "Smallest of the three in {smallest} of {of} ranks. Errors for truths of rank {ranks}: LoSAC {losac}; SCAFFOLD "
        "{scaffold}; FedADMM {fedadmm}.{exact}{optimum}{longer}{tuned}",
        "Holds if it is the smallest of the paper's three at every rank, and smaller by 5 % than SCAFFOLD's with the "
        "best server step at rank 8; without the latter only at equal step size.",
    ),
    Statement(
        "LoSAC-Prox finds the exact rank.",
        WHERE,
        "holds if found == of | holds in part if found | fails",
        "For truths of rank {ranks} it finds {losac_rank}{exact_rank}{printed_rank}.",
        "Holds if the number of singular values above 1e-3 is the truth's at every rank, at the one λ that all methods "
        "share.",
        Headline(
            "LoSAC-Prox: exact rank, smallest error",
            "both",
            "exact in {found} of {of} ranks, smallest in {smallest}; rank 8: {own:.3g}",
            "SCAFFOLD at its best server step, rank 8: {fair:.3g}",
        ),
    ),
    Statement(
        "SCAFFOLD works poorly: its error is large, and its rank differs significantly from the truth's.",
        WHERE,
        "fails if not off and not larger | holds if off == larger == of | holds in part",
        "For truths of rank {ranks} it finds {scaffold_rank} ({shrunk} after one proximal step at the server); its "
        "error is {ratios} times LoSAC's.",
        "Large: half as much again as LoSAC's. Significantly different: a quarter off, and by more than two. Holds if "
        "both at every rank; in part if in some.",
    ),
)
DEGRADED = Statement(
    "FedADMM is substantially degraded by partial participation.", WHERE,
    "not testable if not reached | holds if cheaper | holds in part if worse | fails", "{evidence}",
    "Degraded: its error is half as much again as with all clients, at every rank and in every form where FedADMM "
    "with all clients is stable; holds if so also after as many visits to each client, in part if only after as many "
    "rounds.",
)  # fmt: skip
PROXIMAL = ("losac", "printed", "exact", "scaffold", "feddualavg")


def jobs(options: Options) -> list[Job]:
    """Return the runs of all methods at all ranks, the searches of λ, ρ, γ and n_i, and the optima.

    All seeds at rank 8, the first at the others. The short form has one rank, four methods and 40 rounds.
    """
    seeds = list(options.seeds)
    if options.quick:
        return [
            _job(name, SEARCHED, STRENGTH, seeds[:1], 40) for name in ("losac", "scaffold", "feddualavg", "fedadmm")
        ]
    found = [Job(best, {"rank": rank, "strengths": list(STRENGTHS)}, f"Figure 7: optimum, rank {rank}", 20.0)
             for rank in RANKS]  # fmt: skip
    found += [
        _job(name, rank, STRENGTH, seeds if rank == SEARCHED else seeds[:1]) for rank in RANKS for name in METHODS
    ]
    found += [_job(name, SEARCHED, s, seeds[:1]) for s in STRENGTHS if s != STRENGTH for name in PROXIMAL]
    found += [_job(f"fedadmm-exact{who}", SEARCHED, STRENGTH, seeds[:1], rho=list(RHO)) for who in ("", "-all")]
    found += [_job("scaffold", SEARCHED, STRENGTH, seeds[:1], server_step=list(SERVER_STEPS))]
    return found + [_job(name, SEARCHED, STRENGTH, seeds[:1], 100, 50) for name in ("losac", "exact", "scaffold")]


def _job(
    name: str, rank: int, strength: float, seeds: list[int], rounds: int = ROUNDS, samples: int = SAMPLES, **grid: Any
) -> Job:
    label = f"Figure 7: {METHODS[name].label}, rank {rank}, λ = {strength:g}, n_i = {samples}"
    arguments = {"method": name, "rank": rank, "strength": strength, "seeds": seeds, "rounds": rounds,
                 "samples": samples, "grid": grid}  # fmt: skip
    members = len(seeds) * max([1, *map(len, grid.values())])
    return Job(measure, arguments, label, METHODS[name].cost * members * rounds / ROUNDS)


def measure(
    method: str, rank: int, strength: float, seeds: list[int], rounds: int, samples: int, grid: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return one record per seed (and ρ): curves, and how far the end is from the optimum."""
    chosen = METHODS[method]
    made = algorithm(
        chosen.name, **({"step_size": ETA, "local_steps": STEPS, "blocks": BLOCKS} | dict(chosen.settings))
    )
    task = lowrank_task(samples, rank, strength, strength * ETA * chosen.prox)
    with one_thread_each():
        found = sweep(
            task, made, grid, seeds, rounds=rounds, clients_per_round=chosen.sampled, eval_every=10, loss_every=rounds
        ).members
        goal = optimum(samples, rank, strength)[0] if (samples, rounds) == (SAMPLES, ROUNDS) else None
    return [
        record(one, grid, CURVES, 41, ()) | {
            "to optimum": None if goal is None or one.diverged is not None
            else float(np.linalg.norm(np.asarray(one.params) - goal))
        }
        for one in found
    ]  # fmt: skip


def best(rank: int, strengths: list[float]) -> list[dict[str, Any]]:
    """Return the error and the rank of the exact optimum for each λ: what any exact method must end at."""
    truth = lowrank_data(SAMPLES, rank).info["truth"]
    with one_thread_each():
        found = [(strength, *optimum(SAMPLES, rank, strength)) for strength in strengths]
    return [
        {"strength": strength, "error": float(np.linalg.norm(x - truth)), "moved": moved,
         "rank": int(np.sum(np.linalg.svd(x, compute_uv=False) > COUNTED))}
        for strength, x, moved in found
    ]  # fmt: skip


Values = dict[str, dict[int, float]]
"""A final metric by method and rank, infinite where a run diverged."""
RUN = ("method", "rank", "strength", "samples", "rho", "server_step")


class Recoveries:
    """The runs at the λ that all methods share, the searches, and the exact optima."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.optima = {
            name: {key: value for key, [value] in cells(frame, name, ("rank", "strength"), method=None).items()}
            for name in ("error", "rank")
        }
        self.final = {name: cells(frame, f"final {name}", RUN) for name in CURVES}
        self.away, self.rounds = cells(frame, "to optimum", RUN), cells(frame, "rounds", RUN)
        self.curves = {name: cells(frame, f"curve {name}", (*RUN, "seed", "round")) for name in ("error", "rank")}
        self.main = [key for key in self.away if key[2:] == (STRENGTH, SAMPLES, None, None)]

    def last(self, metric: str) -> Values:
        """Return a final metric of all methods at the shared λ; ranks that were not run are left out."""
        found: Values = {name: {} for name in METHODS}
        for key in self.main:
            found[key[0]][key[1]] = mean(self.final[metric][key], np.inf)
        return found

    def goal(self, metric: str, strength: float = STRENGTH) -> dict[int, float]:
        """Return the exact optimum's error or rank."""
        return {rank: value for (rank, s), value in self.optima[metric].items() if s == strength}

    def curve(self, key: Any, metric: str) -> dict[int, dict[int, float]]:
        """Return a metric over the rounds, for every seed that did not diverge."""
        found: dict[int, dict[int, float]] = {}
        for (*run, seed, at), [value] in self.curves[metric].items():
            if tuple(run) == key:
                found.setdefault(seed, {})[at] = value
        return found

    def numbers(self, key: Any, first: bool = False) -> list[Any]:
        """Return error, rank, distance to the optimum, error and rank after a proximal step; means over the seeds."""
        columns = [self.final["error"], self.final["rank"], self.away, *(self.final[name] for name in CURVES[2:])]
        errors = self.final["error"][key][: 1 if first else None]
        if len(known(errors)) < len(errors):
            return ["diverged", *[None] * 4]
        return [none(mean(column[key][: len(errors)])) for column in columns]


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare the methods with each other and with the optimum."""
    found = Recoveries(frame)
    error, rank = found.last("error"), found.last("rank")
    numbers = _numbers(found, error, rank)
    tables = [_main_table(found)]
    if found.optima["error"]:
        tables += [_strength_table(found), _search_table(found)]
    caption = (
        f"Error (above) and rank (below) of the estimate over the rounds, one column for each rank of the truth; "
        f"λ = {STRENGTH:g} for all methods. Grey: the exact optimum's error and the truth's rank. Mean over the seeds; "
        "runs that diverged are left out."
    )
    claims = [*judge(CLAIMS, numbers), *judge([DEGRADED], _participation(found, error))]
    return Findings(_summary(found, error, rank), claims, tables, [Figure("fig7", caption, lambda: _draw(found))])


def _numbers(found: Recoveries, error: Values, rank: Values) -> dict[str, Any]:
    """Return what the claims at the λ that all methods share are judged by."""
    ours, theirs = error["losac"], error["scaffold"]
    rivals = [error[name] for name in ("scaffold", "fedadmm") if error[name]]
    steps = {1.0: (theirs[8], rank["scaffold"][8])} | {
        key[5]: (mean(values), mean(found.final["rank"][key]))
        for key, values in found.final["error"].items()
        if key[5] is not None
    }
    there = ((g, s) for g, s in steps.items() if not np.isnan(s[0]))
    gamma, (fair, fair_rank) = min(there, key=lambda pair: pair[1][0])
    goals = found.goal("error")
    return {
        "MARGIN": MARGIN, "of": len(ours), "own": ours[8], "fair": fair, "ranks": told(sorted(ours, reverse=True)),
        "smallest": sum(all(ours[r] <= rival.get(r, np.inf) for rival in rivals) for r in ours),
        "found": sum(rank["losac"][r] == r for r in ours),
        "off": sum(abs(rank["scaffold"][r] - r) > max(2, r / 4) for r in ours),
        "larger": sum(theirs[r] > LARGE * ours[r] for r in ours),
        "losac": _list(ours), "scaffold": _list(theirs), "fedadmm": _list(error["fedadmm"]),
        "exact": (error["exact"] and " LoSAC in the exact scaling, whose steps are as long as SCAFFOLD's: "
        f"{_list(error['exact'])}.") or "",
        "optimum": f" The exact optimum: {_list(goals)}." if goals else "",
        "longer": f" For a truth of rank 8, SCAFFOLD at the best of {len(steps)} server steps, γ = {gamma:g}: "
        f"{fair:.3g} and rank {fair_rank:g}." if len(steps) > 1 else "",
        "tuned": _at_best(found) if goals else "",
        "losac_rank": _list(rank["losac"], "g"), "scaffold_rank": _list(rank["scaffold"], "g"),
        "exact_rank": f"; in the exact scaling {_list(rank['exact'], 'g')}" if rank["exact"] else "",
        "printed_rank": "; with the prox step as printed, which minimises f + (S/NM)Ψ, "
        f"{_list(rank['printed'], 'g')}" if rank["printed"] else "",
        "shrunk": _list(found.last("rank after prox")["scaffold"], "g"),
        "ratios": _list({r: theirs[r] / ours[r] for r in theirs if r in ours and ours[r] > 0}, ".2f"),
    }  # fmt: skip


def _at_best(found: Recoveries) -> str:
    """Say what LoSAC and SCAFFOLD reach at the λ of the grid with their least error, by the first seed."""
    best: dict[str, tuple[float, float, float]] = {}
    for key, errors in found.final["error"].items():
        name, rank, strength, samples, *grid = key
        better = name not in best or errors[0] < best[name][1]
        if (rank, samples, *grid) == (SEARCHED, SAMPLES, None, None) and np.isfinite(errors[0]) and better:
            best[name] = (strength, errors[0], found.final["rank"][key][0])
    if not {"losac", "scaffold"} <= set(best):
        return ""
    ours, theirs = ("{1:.3g} and rank {2:g} at λ = {0:g}".format(*best[name]) for name in ("losac", "scaffold"))
    return f" For a truth of rank 8, each at the λ with its least error: LoSAC {ours}, SCAFFOLD {theirs}."


def _participation(found: Recoveries, error: Values) -> dict[str, Any]:
    """FedADMM with a tenth of the clients against all of them, after as many rounds and after as many visits."""
    pairs = [(name, f"{name}-all") for name in PARTIAL]
    pairs = [(a, b) for a, b in pairs if error[a] and error[b] and set(error[b]) <= set(error[a])]
    if not pairs:
        evidence = "The short form does not run FedADMM with all clients."
        return {"reached": False, "cheaper": False, "worse": False, "evidence": evidence}
    parts, worse, cheaper = [], [], []
    for some, every in pairs:
        early = {r: _early(found, some, every, r) for r in error[every]}
        stable = [r for r in early if np.isfinite(error[every][r])]
        worse += [error[some][r] > LARGE * error[every][r] for r in stable]
        cheaper += [error[some][r] > LARGE * early[r] for r in stable]
        parts.append(
            f"{PARTIAL[some]}: {_list(error[some])} with a tenth of the "
            f"clients, {_list(error[every])} with all, {_list(early)} with all after as many visits to each"
        )
    penalties = [
        [mean(v, np.inf) for k, v in found.final["error"].items() if k[0] == name and k[4] is not None]
        for name in ("fedadmm-exact", "fedadmm-exact-all")
    ]
    if all(penalties):
        sampled, full = map(min, penalties)
        worse.append(sampled > LARGE * full)
        parts.append(f"exact server step, each at its best ρ, rank 8: {_list({8: sampled})} and {_list({8: full})}")
    reached = any(np.isfinite(error[every][r]) for _, every in pairs for r in error[every])
    lost = "With all clients FedADMM diverges, and there is nothing to be degraded from. "
    ranks = told(sorted(error[pairs[0][0]], reverse=True))
    evidence = f"{'' if reached else lost}Error for truths of rank {ranks}, {'; '.join(parts)}."
    return {"reached": reached, "cheaper": bool(cheaper) and all(cheaper), "worse": any(worse), "evidence": evidence}


def _early(found: Recoveries, some: str, every: str, rank: int) -> float:
    """Return the error with all clients after a tenth of the rounds that some had."""
    first = next(iter(found.curve((some, rank, STRENGTH, SAMPLES, None, None), "error").values()))
    at = max(first) / 10
    runs = found.curve((every, rank, STRENGTH, SAMPLES, None, None), "error").values()
    return mean([run[min(run, key=lambda r: abs(r - at))] if max(run) >= at else None for run in runs], np.inf)


def _summary(found: Recoveries, error: Values, rank: Values) -> str:
    text = (
        f"At the same λ for all and for truths of rank {told(sorted(error['losac'], reverse=True))}, LoSAC-Prox "
        f"(paper's scaling, matched prox step) ends at an error of {_list(error['losac'])} and a rank of "
        f"{_list(rank['losac'], 'g')}; SCAFFOLD-Prox at {_list(error['scaffold'])} and {_list(rank['scaffold'], 'g')}."
    )
    if goals := found.goal("error"):
        ranks = _list(found.goal("rank"), "g")
        text += f" The exact optimum, which any exact method must reach, has {_list(goals)} and {ranks}."
    if error["feddualavg"]:
        text += f" FedDualAvg: {_list(error['feddualavg'])} and {_list(rank['feddualavg'], 'g')}."
    return text


def _list(values: Mapping[int, float], form: str = ".3g") -> str:
    if len(values) > 1 and not any(map(np.isfinite, values.values())):
        return "diverged at every rank"
    return told([values[r] for r in sorted(values, reverse=True)], f"{form}|diverged") or "not run"


def _main_table(found: Recoveries) -> ResultTable:
    rows: list[list[Any]] = []
    goals, ranks = found.goal("error"), found.goal("rank")
    for rank in sorted({key[1] for key in found.main}, reverse=True):
        if rank in goals:
            rows.append([rank, "the exact optimum", goals[rank], int(ranks[rank]), 0.0, None, None])
        rows += [[rank, METHODS[key[0]].label, *found.numbers(key)] for key in found.main if key[1] == rank]
    columns = (
        "rank", "method", "error", "rank found", "distance to the optimum", "error after prox", "rank after prox",
    )  # fmt: skip
    note = (
        f"At the last round, means over the seeds, λ = {STRENGTH:g}. *After prox*: of the server's model after one "
        "more proximal step of the method's own length, as a read-out only; FedDualAvg and FedADMM return such a model "
        "anyway."
    )
    return ResultTable("methods", "All methods at the same λ", columns, rows, note)


def _strength_table(found: Recoveries) -> ResultTable:
    rows: list[list[Any]] = [
        ["the exact optimum", rank, strength, error, int(found.optima["rank"][rank, strength]), None, None]
        for (rank, strength), error in found.optima["error"].items()
    ]
    for key in found.away:
        if (key[1], *key[3:]) == (SEARCHED, SAMPLES, None, None):
            numbers = found.numbers(key, first=True)
            rows.append([METHODS[key[0]].label, SEARCHED, key[2], *numbers[:3], numbers[4]])
    columns = ("method", "rank", "λ", "error", "rank found", "distance to the optimum", "rank after prox")
    note = "The printed prox step at λ is the matched one at λ·S/(NM) = λ/50, step for step."
    return ResultTable("strengths", "The search of λ", columns, rows, note)


def _search_table(found: Recoveries) -> ResultTable:
    rows: list[list[Any]] = []
    for key in found.away:
        name, (samples, rho, step) = METHODS[key[0]].label, key[3:]
        if rho is not None or step is not None:
            rows.append([name, f"ρ = {rho:g}" if rho is not None else f"γ = {step:g}", *found.numbers(key)[:2]])
        elif samples != SAMPLES:
            rows.append([name, f"n_i = {samples}, {found.rounds[key][0]:.0f} rounds", *found.numbers(key)[:2]])
    title = f"The searches of ρ, of the server step γ and of n_i, at rank {SEARCHED}"
    return ResultTable("search", title, ("method", "setting", "error", "rank found"), rows)


def _draw(found: Recoveries) -> Drawing:
    ranks = sorted({key[1] for key in found.main}, reverse=True)
    goals = found.goal("error")
    above: list[Panel] = []
    below: list[Panel] = []
    for rank in ranks:
        marks: dict[str, list[Any]] = {"error": [], "rank": []}
        for name in (name for name in METHODS if not name.endswith("-all")):
            key = (name, rank, STRENGTH, SAMPLES, None, None)
            for metric, lines in marks.items():
                errors = dict(enumerate(found.final["error"].get(key, [])))
                runs = [
                    run for place, run in enumerate(found.curve(key, metric).values()) if np.isfinite(errors[place])
                ]
                if runs:
                    values = np.array([list(run.values()) for run in runs])
                    values[values == 0] = np.nan  # the start's rank has no place on a logarithmic axis
                    look = line_of(LOOKS.get(name, name), linewidth=1.4, label=METHODS[name].label)
                    lines.append(mark("plot", list(runs[0]), values.mean(0), **look))
        grey = {"color": "0.5", "linewidth": 1, "zorder": 0}
        if rank in goals:
            marks["error"].append(mark("axhline", goals[rank], **grey))
        marks["rank"].append(mark("axhline", rank, **grey))
        names = ({}, {}) if above else ({"ylabel": r"error $\|X - X_G\|_F$"}, {"ylabel": "rank of the estimate"})
        above.append(Panel(marks["error"], {"title": f"rank {rank}", "yscale": "log", **names[0]}, {"y": DECADE}))
        scale = {"xlabel": "round", "yscale": "log", "yticks": [2, 4, 8, 16, 32, 64], "ylim": (1.5, 80), **names[1]}
        below.append(Panel(marks["rank"], scale, finish=_whole))
    legend = {"loc": "outside lower center", "ncols": 4 if len(ranks) > 3 else 2}
    size = (max(2.4 * len(ranks), 5) + 0.6, 5.6)
    return draw([above, below], size, legend=legend, sharex=True, sharey="row")


def _whole(panel: Axes) -> None:
    panel.yaxis.set_major_formatter("{x:.0f}")
    panel.minorticks_off()


STUDY = Study(
    "fig7", "Figure 7: low-rank matrix estimation", jobs, conclude, place=11,
    keys={name: name for name in ("strength", "rho", "server_step")},
)  # fmt: skip
