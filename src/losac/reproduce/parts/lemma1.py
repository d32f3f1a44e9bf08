"""Lemma 1: whether the variance of the search direction vanishes, and what it is at the start.

E‖g̃ − E g̃‖² over clients and blocks is measured with the probe at the server's states after some rounds: on strongly
convex problems, where the lemma's premise (x^r → x*) is met, and on the paper's 2NN with its settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.reproduce.convex import convex, method
from losac.reproduce.problems import algorithm, paper_task
from losac.reproduce.study import Claim, Figure, Findings, Job, Measured, Options, Study, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from losac.reproduce.study import Verdict

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
"""Whose look a variant of LoSAC has."""
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
    from losac.reproduce.probe import trace

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


def curves(measured: Sequence[Measured]) -> Curves:
    """Return (problem, method) → rounds and the mean variance over seeds and local steps, in units of ∇f."""
    found = {}
    for one in measured:
        result, runs = one.result, one.result["runs"]
        rounds = [r for k, r in enumerate(one.arguments["at"]) if all(k < len(run) for run in runs)]
        values = [[float(np.mean(run[k]["variance"])) for run in runs] for k in range(len(rounds))]
        mean = np.array([np.mean(v) for v in values], float) / result["unit"] ** 2
        found[one.arguments["problem"], one.arguments["member"]] = np.array(rounds), mean
    return found


def fall(curve: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the last variance as a share of the largest."""
    return float(curve[1][-1] / curve[1].max())


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Say where the variance vanishes."""
    found = curves(measured)
    problems = [name for name in TITLES if any(key[0] == name for key in found)]
    parts = []
    for name in problems:
        shares = [f"{MEMBERS[m][0]}: {fall(found[name, m]):.1g}" for m in MEMBERS if (name, m) in found]
        parts.append(f"On {TITLES[name]}, {'; '.join(shares)}.")
    summary = f"The variance at the last round as a share of its largest. {' '.join(parts)}"
    return Findings(summary, _claims(found), [_table(found)], [Figure("variance", _CAPTION, lambda: _draw(found))])


_CAPTION = (
    "Variance of the search direction over clients and blocks, mean over the local steps and seeds; LoSAC as printed "
    "is divided by (MN/S)², the square of the length of its directions. Below about 1e-28 all is rounding."
)


def _claims(found: Curves) -> list[Claim]:
    smooth = [name for name in CONVEX if (name, "losac") in found]
    nets = [name for name in ("har", "mnist") if (name, "losac") in found]
    ours = {(name, m): fall(found[name, m]) for name in smooth for m in OURS if (name, m) in found}
    rivals = {
        (name, m): fall(found[name, m]) for name in smooth for m in MEMBERS if m not in OURS and (name, m) in found
    }
    gone = sum(value <= 1e-10 for value in ours.values())
    lemma: Verdict = "holds" if gone == len(ours) else "holds in part" if gone else "fails"
    net = "; ".join(
        f"on the {TITLES[name]} it is at {100 * fall(found[name, 'losac']):.0f} % of its largest after round "
        f"{found[name, 'losac'][0][-1]}" for name in nets
    )  # fmt: skip
    claims = [
        Claim(
            "The variance of LoSAC's search direction vanishes where the iterates converge.",
            "Lemma 1",
            lemma,
            f"On strongly convex problems it falls to at most {max(ours.values()):.1g} of its largest value, in "
            f"{gone} of {len(ours)} cases below 1e-10{'; ' + net if net else ''}.",
        )
    ]
    stay = sum(value > 1e-4 for value in rivals.values())
    names = ", ".join(f"{MEMBERS[m][0]} {value:.1g} ({TITLES[name]})" for (name, m), value in rivals.items())
    claims.append(
        Claim(
            "The variance is reduced to zero in LoSAC, but not in FedAvg, nor as well in MimeSVRG and SCAFFOLD.",
            "Global variance reduction",
            "holds" if lemma == "holds" and stay == len(rivals) else "holds in part" if stay else "fails",
            f"With sampled clients and blocks the others keep a share of it at the end: {names}.",
        )
    )
    claims += [_start_claim(found, nets)] if nets else []
    return claims


def _start_claim(found: Curves, nets: Sequence[str]) -> Claim:
    """Judge the remark on LoSAC's first rounds: its noise there against its own later, and against SCAFFOLD's."""
    parts, early = [], []
    for name in nets:
        rounds, ours = found[name, "losac"]
        unit = BLOCKS * CLIENTS / SAMPLED
        theirs = found[name, "scaffold"][1][: len(ours)]
        first = rounds <= 20
        top, other, last = (float(v) for v in (unit**2 * ours[first].max(), theirs[first].max(), unit**2 * ours[-1]))
        early.append((top / last, top / other))
        when = int(rounds[first][np.argmax(ours[first])])
        parts.append(
            f"{TITLES[name]}: largest at round {when}, {top / last:.1f} times that of round {rounds[-1]} and "
            f"{top / other:.1f} times SCAFFOLD's largest"
        )
    count = sum(later > 2 and other > 1.5 for later, other in early)
    verdict: Verdict = "holds" if count == len(early) else "holds in part" if any(a > 2 for a, _ in early) else "fails"
    if all(found[name, "losac"][0][-1] <= 20 for name in nets):
        verdict = "not testable"
    return Claim(
        "LoSAC shows large fluctuations in the initial few updates, from the randomness of the delayed full gradient.",
        "Effects of T and S, HAR",
        verdict,
        f"Variance of the step's direction as taken, in the first 20 rounds. {'; '.join(parts)}.",
    )


def _table(found: Curves) -> Table:
    rounds = sorted({int(r) for at, _ in found.values() for r in at})
    rows = []
    for (problem, member), (at, values) in found.items():
        cells = dict(zip(at.tolist(), values.tolist()))
        rows.append([TITLES[problem], MEMBERS[member][0], *(f"{cells[r]:.2g}" if r in cells else None for r in rounds)])
    note = "In the units of ∇f: LoSAC as printed is divided by (MN/S)². Mean over the local steps and seeds."
    return Table(
        "variance", "Variance of the search direction by round", ["problem", "method", *map(str, rounds)], rows, note
    )


def _draw(found: Curves) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.reproduce.looks import line_of, look_of

    problems = [name for name in TITLES if any(key[0] == name for key in found)]
    drawing = Drawing((3.1 * len(problems) + 1.2, 3.6), layout="constrained")
    panels = drawing.subplots(1, len(problems), squeeze=False)[0]
    for panel, problem in zip(panels, problems):
        for member, (name, _, _) in MEMBERS.items():
            if (problem, member) not in found:
                continue
            rounds, values = found[problem, member]
            look = LOOKS.get(member, member)
            shown = np.where(values > 1e-34, values, np.nan)
            panel.plot(rounds + 1, shown, marker=look_of(look).marker, markersize=4, label=name, **line_of(look))
        panel.set(title=TITLES[problem], xlabel="round + 1", xscale="log", yscale="log")
    panels[0].set_ylabel("variance of the search direction")
    handles = {label: handle for p in panels for handle, label in zip(*p.get_legend_handles_labels())}
    drawing.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), max(2, 2 * len(problems)))
    )
    return drawing


STUDY = Study("lemma1", "Lemma 1: the variance of the search direction", jobs, conclude, ("a9a", "har", "mnist"))
