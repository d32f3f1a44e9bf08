"""Lemma 1: whether the variance of the search direction vanishes, and what it is at the start.

E‖g̃ − E g̃‖² over clients and blocks is measured with the probe at the server's states after some rounds: on strongly
convex problems, where the lemma's premise (x^r → x*) is met, and on the paper's 2NN with its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.convex import convex, method
from losac_reproduction.frame import cells
from losac_reproduction.panels import Panel, draw, line_of, mark
from losac_reproduction.problems import algorithm, paper_task
from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

EXACT = {"scaling": "exact", "correction": 1.0}
MEMBERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "losac": ("LoSAC", "losac", {}),
    "exact": ("LoSAC, exact, δ = 1", "losac", EXACT),
    "default": ("LoSAC, exact, default", "losac", {"scaling": "exact"}),
    "scaffold": ("SCAFFOLD", "scaffold", {}),
    "mime_svrg": ("MimeSVRG", "mime_svrg", {}),
    "fedavg": ("FedAvg", "fedavg", {}),
}
"""Name → legend, algorithm, settings."""
OURS = ("losac", "exact", "default")
LOOKS = {"exact": "losac_exact", "default": "losac_damped"}
"""The method that lends a variant of LoSAC its look."""
TITLES = {
    "quadratic": "least squares",
    "a9a": "logistic regression, a9a",
    "har": "2NN, HAR",
    "mnist": "2NN, MNIST",
}
CONVEX = ("quadratic", "a9a")
ROUNDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
STEPS, BLOCKS, CLIENTS, SAMPLED, ETA = 4, 5, 100, 10, 1e-4
SHARES = {"quadratic": 0.1, "a9a": 0.3}
"""The step sizes of the convex problems, in units of 1/L: stable for every method."""
PLAYS = {"quadratic": 200, "a9a": 40, "har": 10, "mnist": 10}
"""Rounds played at each state; the variance is over S times as many directions."""
CLAIMS = (
    Statement(
        "The variance of LoSAC's search direction vanishes where the iterates converge.",
        "Lemma 1",
        "holds if gone == of | holds in part if gone | fails",
        "On strongly convex problems it falls to at most {most:.1g} of its largest value, in {gone} of {of} cases "
        "below 1e-10{nets}.",
        "Holds if it falls below 1e-10 of its largest value on the strongly convex problems, where the iterates "
        "converge as the lemma supposes, in every scaling.",
        Headline("the variance of the search direction vanishes", "→ 0", "{most:.1g} of its largest value"),
    ),
    Statement(
        "The variance is reduced to zero in LoSAC, but not in FedAvg, nor as well in MimeSVRG and SCAFFOLD.",
        "Global variance reduction",
        "holds if gone == of and stay == rivals | holds in part if stay | fails",
        "With sampled clients and blocks the others keep a share of it at the end: {names}.",
        "Holds if LoSAC's falls below 1e-10 of its largest value and that of each other method stays above 1e-4.",
    ),
)
FIRST_ROUNDS = Statement(
    "HAR: LoSAC fluctuates much in the first updates, and less later.", "Parameter sensitivity, Fig. 5", "",
    "The reason that the paper gives, the variance of the direction as taken, in the first 20 rounds: {parts}.",
)  # fmt: skip
_COST = {"quadratic": 1.0, "a9a": 4.0, "har": 8.0, "mnist": 30.0}


def jobs(options: Options) -> list[Job]:
    """Return one job for each problem and method; MNIST has one seed, the short form two problems and few methods."""
    chosen = {
        "quadratic": ("losac", "exact", "scaffold", "fedavg"),
        "har": ("losac", "scaffold"),
    } if options.quick else dict.fromkeys(TITLES, tuple(MEMBERS))  # fmt: skip
    found = []
    for problem, members in chosen.items():
        last = 1000 if problem in CONVEX else 20 if options.quick else 500
        at = [r for r in ROUNDS if r <= last and not (options.quick and problem == "har" and r in (1, 2, 10))]
        seeds = list(options.seeds[:1] if options.quick or problem == "mnist" else options.seeds)
        for member in members:
            plays = PLAYS[problem] // (3 if options.quick else 1)
            arguments = {"problem": problem, "member": member, "at": at, "plays": plays, "seeds": seeds}
            label = f"Lemma 1: {TITLES[problem]}, {MEMBERS[member][0]}"
            found.append(Job(measure, arguments, label, _COST[problem] * len(seeds)))
    return found


def measure(problem: str, member: str, at: list[int], plays: int, seeds: list[int]) -> dict[str, Any]:
    """Return, for every seed, the variance of the search direction after some rounds, in the method's own units."""
    from losac_reproduction.probe import trace

    _, name, settings = MEMBERS[member]
    if problem in CONVEX:
        made = convex(problem)
        task, n, s, m = made.task, made.clients, made.sampled, made.blocks
        chosen = method(made, name, SHARES[problem], 5, **settings)
    else:
        task, n, s, m = paper_task(problem, CLIENTS, "sorted"), CLIENTS, SAMPLED, BLOCKS
        chosen = algorithm(name, step_size=ETA, local_steps=STEPS, blocks=m, **settings)
    dtype = "float64" if problem in CONVEX else "float32"
    runs = [trace(task, chosen, seed, sampled=s, at=at, plays=plays, dtype=dtype) for seed in seeds]
    kept = ("round", "loss", "variance", "square")
    return {
        "unit": m * n / s if member == "losac" else 1.0,
        "runs": [[{name: one[name] for name in kept} for one in run] for run in runs],
    }


Curves = Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]]


def by_seed(one: JobResult) -> JobResult:
    """Name the seed of every run."""
    runs = [{"seed": seed, "runs": run} for seed, run in zip(one.arguments["seeds"], one.result["runs"])]
    return one._replace(result={"unit": one.result["unit"], "runs": runs})


def curves(frame: pd.DataFrame) -> Curves:
    """Return (problem, method) → rounds that all seeds came to and the mean variance over them, in units of ∇f."""
    units = cells(frame, "unit", ("data", "method"))
    variance = cells(frame, "variance", ("data", "method", "round", "seed"))
    found = {}
    for key, [unit] in units.items():
        seeds = dict.fromkeys(k[3] for k in variance if k[:2] == key)
        rounds = dict.fromkeys(k[2] for k in variance if k[:2] == key)
        whole = [r for r in rounds if all((*key, r, seed) in variance for seed in seeds)]
        values = [np.mean([float(np.mean(variance[*key, r, seed])) for seed in seeds]) for r in whole]
        found[key] = np.array(whole), np.array(values, float) / unit**2
    return found


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Say where the variance vanishes."""
    found = curves(frame)
    falls = {key: float(values[-1] / values.max()) for key, (_, values) in found.items()}
    problems = [name for name in TITLES if any(key[0] == name for key in found)]
    parts = []
    for name in problems:
        shares = [f"{MEMBERS[m][0]}: {falls[name, m]:.1g}" for m in MEMBERS if (name, m) in found]
        parts.append(f"On {TITLES[name]}, {'; '.join(shares)}.")
    summary = f"The variance at the last round as a share of its largest. {' '.join(parts)}"
    nets = [name for name in ("har", "mnist") if (name, "losac") in found]
    claims = judge(CLAIMS, _numbers(found, falls, nets))
    claims += judge([FIRST_ROUNDS], _first_rounds(found, nets)) if nets else []
    return Findings(summary, claims, [_table(found)], [Figure("variance", _CAPTION, lambda: _draw(found, problems))])


_CAPTION = (
    "Variance of the search direction over clients and blocks, mean over the local steps and seeds; LoSAC as printed "
    "is divided by (MN/S)², the square of the length of its directions. Below about 1e-28 all is rounding."
)


def _numbers(found: Curves, falls: Mapping[tuple[str, str], float], nets: list[str]) -> dict[str, Any]:
    smooth = [
        key for key in ((name, m) for name in CONVEX for m in MEMBERS) if key in found and (key[0], "losac") in found
    ]
    ours = [falls[key] for key in smooth if key[1] in OURS]
    rivals = {key: falls[key] for key in smooth if key[1] not in OURS}
    net = "; ".join(
        f"on the {TITLES[name]} it is at {100 * falls[name, 'losac']:.0f} % of its largest after round "
        f"{found[name, 'losac'][0][-1]}" for name in nets
    )  # fmt: skip
    return {
        "most": max(ours), "gone": sum(value <= 1e-10 for value in ours), "of": len(ours),
        "nets": f"; {net}" if net else "", "stay": sum(value > 1e-4 for value in rivals.values()),
        "rivals": len(rivals),
        "names": ", ".join(f"{MEMBERS[m][0]} {value:.1g} ({TITLES[name]})" for (name, m), value in rivals.items()),
    }  # fmt: skip


def _first_rounds(found: Curves, nets: list[str]) -> dict[str, Any]:
    """Return LoSAC's noise in the first rounds against its own later, and against SCAFFOLD's."""
    parts = []
    for name in nets:
        rounds, ours = found[name, "losac"]
        unit = BLOCKS * CLIENTS / SAMPLED
        theirs = found[name, "scaffold"][1][: len(ours)]
        first = rounds <= 20
        top, other, last = (float(v) for v in (unit**2 * ours[first].max(), theirs[first].max(), unit**2 * ours[-1]))
        when = int(rounds[first][np.argmax(ours[first])])
        parts.append(
            f"{TITLES[name]}: largest at round {when}, {top / last:.1f} times that of round {rounds[-1]} and "
            f"{top / other:.1f} times SCAFFOLD's largest"
        )
    return {"parts": "; ".join(parts)}


def _table(found: Curves) -> ResultTable:
    rounds = sorted({int(r) for at, _ in found.values() for r in at})
    rows = []
    for (problem, member), (at, values) in found.items():
        line = dict(zip(at.tolist(), values.tolist()))
        rows.append([TITLES[problem], MEMBERS[member][0], *(f"{line[r]:.2g}" if r in line else None for r in rounds)])
    note = "In the units of ∇f: LoSAC as printed is divided by (MN/S)². Mean over the local steps and seeds."
    columns = ["problem", "method", *map(str, rounds)]
    return ResultTable("variance", "Variance of the search direction by round", columns, rows, note)


def _draw(found: Curves, problems: list[str]) -> Drawing:
    panels: list[Panel] = []
    for problem in problems:
        marks = []
        for member, (name, _, _) in MEMBERS.items():
            if (problem, member) in found:
                rounds, values = found[problem, member]
                look = line_of(LOOKS.get(member, member), marker=True)
                marks.append(mark("plot", rounds + 1, np.where(values > 1e-34, values, np.nan), label=name, **look))
        axes = {"title": TITLES[problem], "xlabel": "round + 1", "xscale": "log", "yscale": "log"}
        panels.append(Panel(marks, axes | ({} if panels else {"ylabel": "variance of the search direction"})))
    most = min(len({m for _, m in found}), max(2, 2 * len(problems)))
    legend = {"loc": "outside lower center", "ncols": most}
    return draw([panels], (3.1 * len(problems) + 1.2, 3.6), legend=legend)


STUDY = Study(
    "lemma1", "Lemma 1: the variance of the search direction", jobs, conclude, ("a9a", "har", "mnist"), place=12,
    keys={"round": "round", "runs": "runs"}, reshape=by_seed,
)  # fmt: skip
