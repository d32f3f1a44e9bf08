"""Theorem 1: how fast LoSAC really converges, beside its rivals, and how its rounds go with T and S.

On strongly convex problems with sampled clients and sampled blocks, in double precision, to 1e-10 of the way to an
optimum that is known to rounding. Every method's step size is the best of the same grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms import ALGORITHMS
from losac.reproduce.convex import convex, method, unit
from losac.reproduce.parts.theorem1_findings import best_share, findings, level, rate, reach
from losac.reproduce.study import Findings, Job, Measured, Options, Study

LOSAC: dict[str, dict[str, Any]] = {
    "losac": {},
    "losac-exact": {"scaling": "exact", "correction": 1.0},
    "losac-damped": {"scaling": "exact", "correction": 0.1},
}
"""The settings of LoSAC's variants."""
REAL = ("losac", "losac-exact", "losac-damped", "scaffold", "fedavg", "fedcm")
"""The methods that w8a is given to; the others are compared on the quadratic and on a9a."""
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
STEPS, TARGET = 5, 1e-10
ROUNDS = {"quadratic": 1000, "a9a": 1000, "w8a": 1000}
FEWER = {"local_svrg": 400}
"""S-Local-SVRG is there much sooner, and asks all clients in every other round, which takes long."""


class Sizes(NamedTuple):
    """The T and S to try, their values while the other is varied, the rounds times T, and the distance to reach."""

    steps: tuple[int, ...]
    sampled: tuple[int, ...]
    base: tuple[int, int]
    work: int
    target: float


SCALING = {
    "quadratic": Sizes((1, 2, 4, 8, 16), (1, 2, 5, 10), (4, 2), 8000, 1e-6),
    "a9a": Sizes((1, 2, 5, 10), (2, 5, 10, 25), (5, 5), 2500, 1e-3),
}
_COST = {"quadratic": 1.0, "a9a": 5.0, "w8a": 12.0}


def members() -> list[str]:
    """Return all methods that sample clients, LoSAC in its variants."""
    return [*LOSAC, *(name for name, cls in ALGORITHMS.items() if cls.partial and name != "losac")]


def jobs(options: Options) -> list[Job]:
    """Return a job for every method on every problem, and one for each T and S; the short form has one problem."""
    seeds = list(options.seeds)
    if options.quick:
        rates = [("quadratic", member) for member in ("losac", "losac-exact", "scaffold", "fedavg")]
        sizes = [("quadratic", t, s) for t, s in ((1, 2), (4, 2), (4, 10))]
    else:
        rates = [(problem, member) for problem in ("quadratic", "a9a") for member in members()]
        rates += [("w8a", member) for member in REAL]
        sizes = [(problem, t, s) for problem in SCALING for t, s in _sizes(problem)]
    found = []
    for problem, member in rates:
        rounds = FEWER.get(member, ROUNDS[problem]) if problem != "quadratic" else ROUNDS[problem]
        several = seeds if problem == "quadratic" and not options.quick else seeds[:1]
        arguments = {"problem": problem, "member": member, "rounds": rounds, "seeds": several}
        found.append(Job(measure_rate, arguments, f"Theorem 1: {problem}, {member}", _COST[problem]))
    for problem, t, s in sizes:
        several = seeds if problem == "quadratic" and not options.quick else seeds[:1]
        arguments = {"problem": problem, "t": t, "s": s, "seeds": several}
        found.append(Job(measure_size, arguments, f"Theorem 1: {problem}, T = {t}, S = {s}", _COST[problem]))
    return found


def _sizes(problem: str) -> list[tuple[int, int]]:
    plan = SCALING[problem]
    t, s = plan.base
    return list(dict.fromkeys([*((k, s) for k in plan.steps), *((t, k) for k in plan.sampled)]))


def _sweep(
    problem: str, member: str, steps: int, sampled: int, rounds: int, seeds: list[int], points: int
) -> list[Any]:
    """Return (share, seed, rounds, distances) of every run; distances end where a run left the finite numbers.

    A share is of the method's unit with the problem's own S, so that the step sizes are the same for every S.
    """
    from losac.history import sweep

    made = convex(problem)
    name, settings = ("losac", LOSAC[member]) if member in LOSAC else (member, {})
    one = unit(made, name, settings)
    chosen = method(made, name, 1.0, steps, **settings)
    runs = sweep(
        made.task, chosen, {"step_size": [share * one for share in SHARES]}, seeds, rounds=rounds,
        clients_per_round=sampled, eval_every=max(1, rounds // points), loss_every=rounds, dtype="float64",
    ).members  # fmt: skip
    pairs = [(share, seed) for share in SHARES for seed in seeds]
    return [(share, seed, run.rounds, run.metric("distance"), run.diverged) for (share, seed), run in zip(pairs, runs)]


def measure_rate(problem: str, member: str, rounds: int, seeds: list[int]) -> dict[str, Any]:
    """Return how far a method comes with every step size, and the curve of the best one."""
    made = convex(problem)
    runs = _sweep(problem, member, STEPS, made.sampled, rounds, seeds, 200)
    rows = [
        {
            "share": share,
            "seed": seed,
            "reached": None if diverged is not None else reach(at, distance, TARGET),
            "level": None if diverged is not None else level(distance),
            "rate": None if diverged is not None else rate(at, distance),
        }
        for share, seed, at, distance, diverged in runs
    ]
    best = best_share(rows)
    curve = next(((at, d) for share, seed, at, d, _ in runs if share == best and seed == seeds[0]), None)
    kept = (
        {}
        if curve is None
        else {"round": curve[0][::4].tolist(), "distance": [float(f"{v:.3g}") for v in curve[1][::4]]}
    )
    return {"rows": rows, "best": best, "curve": kept}


def measure_size(problem: str, t: int, s: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return the rounds that LoSAC as printed needs to come near the optimum, with every step size."""
    plan = SCALING[problem]
    rounds = int(np.clip(plan.work // t, 500, plan.work))
    runs = _sweep(problem, "losac", t, s, rounds, seeds, 250)
    return [
        {"share": share, "seed": seed, "reached": None if diverged is not None else reach(at, d, plan.target)}
        for share, seed, at, d, diverged in runs
    ]


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Compare the rates, fit the exponents, and look at the theorem's own constant."""
    rates = {
        (one.arguments["problem"], one.arguments["member"]): one.result for one in measured if "member" in one.arguments
    }
    sizes = {
        (one.arguments["problem"], one.arguments["t"], one.arguments["s"]): one.result
        for one in measured
        if "t" in one.arguments
    }
    left_out = [name for name, cls in ALGORITHMS.items() if not cls.partial]
    return findings(rates, sizes, {name: plan.base for name, plan in SCALING.items()}, left_out)


STUDY = Study("theorem1", "Theorem 1: the rate of convergence, and T and S", jobs, conclude, ("a9a", "w8a"))
