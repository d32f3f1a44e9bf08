"""Theorem 1: how fast LoSAC and its rivals converge, and how its rounds depend on T and S.

On strongly convex problems with sampled clients and sampled blocks, in double precision, to 1e-10 of the way to an
optimum that is known to rounding. Every method's step size is the best of the same grid, which continues where the best
lies on its edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.algorithms import ALGORITHMS
from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.convex import convex, method, unit
from losac_reproduction.frame import cells
from losac_reproduction.methods import SAME, SAME_WORDS, name_of
from losac_reproduction.panels import DECADE, Panel, draw, handle, line_of, mark
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import known, mean, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LOSAC: dict[str, dict[str, Any]] = {
    "losac": {},
    "losac-exact": {"scaling": "exact", "correction": 1.0},
    "losac-damped": {"scaling": "exact", "correction": 0.1},
}
"""The settings of LoSAC's variants."""
REAL = ("losac", "losac-exact", "losac-damped", "scaffold", "fedavg", "fedcm")
"""The methods that w8a is given to; the others are compared on the quadratic and on a9a."""
PRINTED = "fedsaga-printed"
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    **{member: ("losac", settings) for member, settings in LOSAC.items()},
    PRINTED: ("fedsaga", {"average": "all"}),
}
"""The algorithm and its settings, where a member is not an algorithm with its defaults."""
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
FURTHER = {SHARES[0]: (0.003, 0.001), SHARES[-1]: (100.0,)}
"""The steps that are tried as well where the best one is the shortest, or the longest."""
STEPS, TARGET = 5, 1e-10
ROUNDS = {"quadratic": 1000, "a9a": 1000, "w8a": 1000}
FEWER = {"local_svrg": 400}
"""S-Local-SVRG is there much sooner, and asks all clients in every other round, which takes long."""
PAPER = {"MNIST, N = 100": (60000, 100), "MNIST, N = 1000": (60000, 1000), "HAR": (7352, 100), "ESR": (9200, 100)}
"""The paper's |D| and N."""
TITLES = {"quadratic": "least squares", "a9a": "a9a", "w8a": "w8a"}
VARIANTS = {
    "losac-exact": "LoSAC, exact, δ = 1", "losac-damped": "LoSAC, exact, δ = 0.1",
    PRINTED: "FedSaga (1/N, as printed)",
}  # fmt: skip
COLOURED = (*LOSAC, "scaffold", "fedavg", "mime_svrg", "local_svrg")
"""The methods with a colour of their own; the others are grey."""
KINDS = {"small": "at the smallest common η", "large": "at the largest common η", "best": "each at its best η"}
"""Which step size the rounds for different T, or S, are compared at."""
NEAR_ONE = 0.25
"""By how much an exponent may differ from −1 where rounds are said to go as 1/T."""
CLAIMS = (
    Statement(
        "The weighted mean of f(x^r) − f(x*) is at most O(Nλ'/(2SThR)), with a positive h.",
        "Theorem 1",
        "fails if h < 0 | not testable",
        "As printed, h is never positive: over all α, β and μ ≤ L it is at most {h:.2f} ST·L(|D| + N)/N² with the "
        "paper's |D| and N, and the appendix's condition asks for μ/L ≥ {needed:.1f}. The theorem says nothing then, "
        "no matter what LoSAC does.",
        "Holds if the h that the appendix derives can be positive for some α, β > 0 and μ ≤ L.",
        Headline("Theorem 1 as derived", "h > 0", "h ≤ {h:.2f} ST·L(|D| + N)/N²"),
    ),
    Statement(
        "LoSAC converges at a speed of O(1/R), with sampled clients and blocks and a constant number of local steps.",
        "Theorem 1",
        "holds if there == of | holds in part if there | fails",
        "It does better: with a constant step it converges linearly, to 1e-10 in {there} of {of} cases; the distance "
        "shrinks per round by {factors}.{edges}",
        "Holds if it comes to 1e-10 of its distance at the start on every strongly convex problem, in every scaling, "
        "at the best of the same step sizes: a linear rate is faster than 1/R.",
        Headline("convergence with sampled clients and blocks", "O(1/R)", "linear, to 1e-10 in {there} of {of} cases"),
    ),
    Statement(
        "The convergence result is O(1/(RT)).",
        "Introduction",
        "not testable if not fitted | holds if near == exponents | holds in part if near or falls | fails",
        "The printed constants do not say so: λ' grows as ST² and h as ST, so T cancels from Nλ'/(2SThR), which goes "
        "as 1/(SR). Measured exponents of T in the rounds to a given distance: {shown} ({near} of {exponents} within "
        "{NEAR_ONE} of −1).",
        "Holds if the rounds go as 1/T: all exponents are within {NEAR_ONE} of −1, at the smallest and the largest "
        "step that all T have in common, and each at its best; in part if some are.",
    ),
)
SIZE = Statement(
    "{text}", "Theorem 1",
    "not testable if not fitted | holds if falls == of | holds only at equal step size if common == of_common | "
    "holds in part if falls | fails",
    "Rounds to a given distance: {rounds}. They fall with every {letter} in {falls} of {of} comparisons. By the "
    "printed constants the bound {bound}.",
    "Faster: the rounds to a given distance fall with every {letter}, at the smallest and the largest step that all "
    "{letter} have in common, and each at its best.",
)  # fmt: skip
TEXTS = {
    "T": "The convergence is faster if there are more local iterations T.",
    "S": "If more clients take part (larger S), the convergence is faster.",
}
BOUNDS = {"T": "does not depend on T", "S": "falls as 1/S"}


class Grid(NamedTuple):
    """The T and S to try, their values while the other is varied, the rounds times T, and the distance to reach."""

    steps: tuple[int, ...]
    sampled: tuple[int, ...]
    base: tuple[int, int]
    work: int
    target: float


SCALING = {
    "quadratic": Grid((1, 2, 4, 8, 16), (1, 2, 5, 10), (4, 2), 8000, 1e-6),
    "a9a": Grid((1, 2, 5, 10), (2, 5, 10, 25), (5, 5), 2500, 1e-3),
}
_COST = {"quadratic": 1.0, "a9a": 5.0, "w8a": 12.0}


def members() -> list[str]:
    """Return all methods that sample clients, LoSAC in its variants and FedSaga in both readings."""
    return [*LOSAC, PRINTED, *(name for name, cls in ALGORITHMS.items() if cls.partial and name != "losac")]


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
        found.append(Job(measure_rate, arguments, f"Theorem 1: {problem}, {member}", _COST[problem], version=3))
    for problem, t, s in sizes:
        several = seeds if problem == "quadratic" and not options.quick else seeds[:1]
        arguments = {"problem": problem, "t": t, "s": s, "seeds": several}
        found.append(Job(measure_size, arguments, f"Theorem 1: {problem}, T = {t}, S = {s}", _COST[problem], version=3))
    return found


def _sizes(problem: str) -> list[tuple[int, int]]:
    plan = SCALING[problem]
    t, s = plan.base
    return list(dict.fromkeys([*((k, s) for k in plan.steps), *((t, k) for k in plan.sampled)]))


def _sweep(
    problem: str,
    member: str,
    steps: int,
    sampled: int,
    rounds: int,
    seeds: list[int],
    points: int,
    shares: Sequence[float] = SHARES,
) -> list[Any]:
    """Return (share, seed, rounds, distances) of every run; distances end where a run left the finite numbers.

    A share is of the method's unit with the problem's own S: the step sizes are the same for every S.
    """
    from losac.simulation import sweep

    made = convex(problem)
    name, settings = SETTINGS.get(member, (member, {}))
    one = unit(made, name, settings)
    chosen = method(made, name, 1.0, steps, **settings)
    runs = sweep(
        made.task, chosen, {"step_size": [share * one for share in shares]}, seeds, rounds=rounds,
        clients_per_round=sampled, eval_every=max(1, rounds // points), loss_every=rounds, dtype="float64",
    ).members  # fmt: skip
    pairs = [(share, seed) for share in shares for seed in seeds]
    return [(share, seed, run.rounds, run.metric("distance"), run.diverged) for (share, seed), run in zip(pairs, runs)]


def measure_rate(problem: str, member: str, rounds: int, seeds: list[int]) -> dict[str, Any]:
    """Return how far a method comes with every step size, and the curve of the best one."""
    made = convex(problem)
    sweep = partial(_sweep, problem, member, STEPS, made.sampled, rounds, seeds, 200)
    runs = sweep()
    if more := FURTHER.get(best_share(rate_rows(runs)) or SHARES[0]):
        runs += sweep(more)
    rows = rate_rows(runs)
    best = best_share(rows)
    curve = next(((at, d) for share, seed, at, d, _ in runs if share == best and seed == seeds[0]), None)
    kept = (
        {}
        if curve is None
        else {"round": curve[0][::4].tolist(), "distance": [float(f"{v:.3g}") for v in curve[1][::4]]}
    )
    return {"rows": rows, "best": best, "curve": kept}


def rate_rows(runs: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what each run reached, where it ended, and its factor per round."""
    return [
        {
            "share": share,
            "seed": seed,
            "reached": None if diverged is not None else reach(at, distance, TARGET),
            "level": None if diverged is not None else level(distance),
            "rate": None if diverged is not None else rate(at, distance),
        }
        for share, seed, at, distance, diverged in runs
    ]


def measure_size(problem: str, t: int, s: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return the rounds that LoSAC as printed needs to come near the optimum, with every step size."""
    plan = SCALING[problem]
    rounds = int(np.clip(plan.work // t, 500, plan.work))
    sweep = partial(_sweep, problem, "losac", t, s, rounds, seeds, 250)
    rows = size_rows(sweep(), plan.target)
    if more := FURTHER.get(soonest(rows) or SHARES[0]):
        rows += size_rows(sweep(more), plan.target)
    return rows


def size_rows(runs: Sequence[Any], target: float) -> list[dict[str, Any]]:
    """Return the rounds that each run needed."""
    return [
        {"share": share, "seed": seed, "reached": None if diverged is not None else reach(at, d, target)}
        for share, seed, at, d, diverged in runs
    ]


def soonest(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the step with which the target is reached soonest with every seed; None where there is none."""
    found: dict[float, list[float | None]] = {}
    for row in rows:
        found.setdefault(row["share"], []).append(row["reached"])
    there = {share: mean(reached) for share, reached in found.items() if None not in reached}
    return min(there, key=lambda share: there[share]) if there else None


def reach(rounds: np.ndarray, distance: np.ndarray, target: float) -> float | None:
    """Return the round at which a distance first falls to a target, between two evaluations by its logarithm.

    >>> round(reach(np.array([0, 10, 20]), np.array([1.0, 1e-2, 1e-4]), 1e-3), 6)
    15.0
    """
    there = np.flatnonzero(distance <= target)
    if not len(there):
        return None
    k = int(there[0])
    if k == 0 or distance[k] <= 0:
        return float(rounds[k])
    before, after = np.log(distance[k - 1]), np.log(distance[k])
    return float(rounds[k - 1] + (rounds[k] - rounds[k - 1]) * (before - np.log(target)) / (before - after))


def level(distance: np.ndarray) -> float:
    """Return where a run is at the end: the median over its last quarter."""
    return float(np.median(distance[-max(1, len(distance) // 4) :]))


def rate(rounds: np.ndarray, distance: np.ndarray) -> float | None:
    """Return the factor per round of a line through the logarithms between 0.3 and 1e-9; None with too few points.

    >>> round(rate(np.arange(50), 0.5 ** np.arange(50.0)), 6)
    0.5
    """
    below = np.flatnonzero(distance < 1e-9)
    end = int(below[0]) if len(below) else len(distance)
    start = int(np.argmax(distance <= 0.3)) if (distance <= 0.3).any() else 0
    if end - start < 3:
        return None
    return float(np.exp(np.polyfit(rounds[start:end], np.log(distance[start:end]), 1)[0]))


def best_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the step that reaches the target soonest with every seed; else the one that ends nearest; None: none."""
    found = {}
    for share in dict.fromkeys(row["share"] for row in rows):
        mine = [row for row in rows if row["share"] == share]
        if any(row["level"] is None or not np.isfinite(row["level"]) for row in mine):
            continue
        reached = [row["reached"] for row in mine]
        missing = sum(value is None for value in reached)
        score = np.mean([row["level"] for row in mine]) if missing else np.mean(reached)
        found[share] = (missing > 0, float(score))
    return min(found, key=lambda share: found[share]) if found else None


def greatest_h(rows: int, clients: int) -> float:
    """Return the largest value of Theorem 1's h, over all α, β > 0 and μ ≤ L, in units of ST·L(|D| + N)/N².

    h·N²/ST = μ(2|D| + N)/(1 + α) − (L + μ/α)(1 + β)(|D| + N); β → 0 is best, and h is linear in μ.

    >>> greatest_h(10**9, 1) < -0.8
    True
    """
    alpha = np.logspace(-4, 6, 100001)
    ratio = (2 * rows + clients) / (rows + clients)
    slope = ratio / (1 + alpha) - 1 / alpha
    return float(np.max(np.maximum(slope, 0) - 1))


def least_condition(rows: int, clients: int) -> float:
    """Return the smallest μ/L that the appendix's condition for h > 0 allows; it would have to be at most 1."""
    alpha = np.logspace(-4, 6, 100001)
    below = 2 * rows / (1 + alpha) - (rows + clients) / alpha
    return float((rows + clients) / np.max(below))


def title_of(member: str) -> str:
    """Return what tables and figures call a member of the comparison."""
    return VARIANTS.get(member, name_of(member))


Rates = dict[str, dict[str, dict[str, Any]]]
"""For each problem and method: its best step, the rounds, factor and level there, and its curve."""
Fits = dict[tuple[str, str], dict[str, Any]]
"""For each problem and letter: the rounds by size, and their exponents."""


def rates_of(frame: pd.DataFrame) -> Rates:
    """Return what a method reached with its best step, over the seeds; values are NaN where it did not."""
    by, found = ("data", "method"), Rates()
    runs = {name: cells(frame, f"rows {name}", (*by, "share")) for name in ("reached", "rate", "level")}
    curves = cells(frame, "curve distance", by)
    rounds = cells(frame[frame["metric"] == "curve distance"].assign(value=lambda f: f["round"]), "curve distance", by)
    for key, [best] in cells(frame, "best", by).items():
        shares = [share for *others, share in runs["level"] if tuple(others) == key]
        mine = {name: values.get((*key, best), []) for name, values in runs.items()}
        reached, factors = mean(mine["reached"]), known(mine["rate"])
        if key[1] in SAME:
            continue
        found.setdefault(key[0], {})[key[1]] = {
            "seeds": len(mine["level"]), "after": _rounds_of(frame, key),
            "best": best, "edge": best in (min(shares), max(shares)), "reached": reached,
            "rate": float(np.mean(factors)) if np.isfinite(reached) and factors else np.nan,
            "level": mean(mine["level"]), "rounds": rounds.get(key, []), "distance": curves.get(key, []),
        }  # fmt: skip
    return found


def _rounds_of(frame: pd.DataFrame, key: tuple[str, str]) -> int:
    """Return after how many rounds a method's runs ended."""
    mine = frame[(frame["data"] == key[0]) & (frame["method"] == key[1])]
    return int(mine["rounds"].iloc[0])


def exponents(shares: Mapping[tuple[int, float], Sequence[float]]) -> dict[str, Any]:
    """Return the rounds for every T (or S) and their exponent: at the smallest and the largest step that bring all
    of them there, and each at its best.

    Args:
      shares: by T or S and the step, the rounds of each seed, NaN where it did not come so far.
    """
    table: dict[int, dict[float, float]] = {}
    tried: dict[int, list[float]] = {}
    for (size, share), reached in sorted(shares.items()):
        row = table.setdefault(size, {})
        tried.setdefault(size, []).append(share)
        if len(known(reached)) == len(reached):
            row[share] = float(np.mean(reached))
    common = set.intersection(*(set(row) for row in table.values())) if table else set()
    found = {
        "small": {size: row[min(common)] for size, row in table.items()} if common else {},
        "large": {size: row[max(common)] for size, row in table.items()} if common else {},
        "best": {size: min(row.values()) for size, row in table.items() if row},
    }
    edges = {
        size: min(row, key=lambda share: row[share]) in (min(tried[size]), max(tried[size]))
        for size, row in table.items() if row
    }  # fmt: skip
    return found | {"edges": edges} | {f"{name}_exponent": slope(values) for name, values in found.items()}


def slope(found: Mapping[int, float]) -> float | None:
    """Return the exponent p of rounds ∝ size^p."""
    if len(found) < 2:
        return None
    return float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])


def fits_of(frame: pd.DataFrame) -> Fits:
    """Return how the rounds go with T and with S, the other as in the base setting."""
    reached = cells(frame, "reached", ("data", "t", "s", "share"))
    fits = Fits()
    for problem in dict.fromkeys(key[0] for key in reached):
        t, s = SCALING[problem].base
        mine = {key[1:]: values for key, values in reached.items() if key[0] == problem}
        fits[problem, "T"] = exponents({(k[0], k[2]): values for k, values in mine.items() if k[1] == s})
        fits[problem, "S"] = exponents({(k[1], k[2]): values for k, values in mine.items() if k[0] == t})
    return fits


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare the rates, fit the exponents, and look at the theorem's own constant."""
    rates, fits = rates_of(frame), fits_of(frame)
    figures = [
        Figure("rates", "Distance of the server's model from the optimum over the rounds, as a share of its start, "
               "each method at its best step size; grey: all others.", lambda: _draw_rates(rates)),
        Figure("sizes", "Rounds that LoSAC needs against the local steps T (above) and the clients per round S "
               "(below); solid grey: in proportion to 1/T and 1/S.", lambda: _draw_sizes(fits)),
    ]  # fmt: skip
    numbers = _numbers(rates) | _exponents(fits)
    claims = [*judge(CLAIMS, numbers), *(claim for letter in TEXTS for claim in judge([SIZE], _size(fits, letter)))]
    tables = [*(_rate_table(rates[problem], problem) for problem in rates), _size_table(fits)]
    return Findings(_summary(rates), claims, tables, figures)


def _summary(rates: Rates) -> str:
    parts = []
    for problem, mine in rates.items():
        there = [f"{title_of(m)} {v['reached']:.0f}" for m, v in mine.items() if np.isfinite(v["reached"])]
        rest = known(v["level"] for v in mine.values() if not np.isfinite(v["reached"]))
        nearest = f"; the other {len(rest)} end at {min(rest):.1g} or farther" if rest else ""
        seeds = max(value["seeds"] for value in mine.values())
        after = max(value["after"] for value in mine.values())
        parts.append(
            f"{TITLES[problem]} ({seeds} seed{'s' if seeds > 1 else ''}, {after} rounds): "
            f"{', '.join(there) or 'nobody'}{nearest}"
        )
    return (
        f"Rounds to 1e-10 of the distance at the start, best step of each on one grid. {'. '.join(parts)}. Where the "
        "others end depends on the steps and the rounds: in more rounds, shorter steps come nearer."
    )


def _numbers(rates: Rates) -> dict[str, Any]:
    ours = {(p, m): v for p, mine in rates.items() for m, v in mine.items() if m.startswith("losac")}
    factors = [
        f"{TITLES[p]} {v['rate']:.3f} ({title_of(m)})" for (p, m), v in ours.items() if np.isfinite(v["rate"])
    ]  # fmt: skip
    edges = [f"{title_of(m)} on {TITLES[p]}" for (p, m), v in ours.items() if v["edge"]]
    return {
        "h": max(greatest_h(*sizes) for sizes in PAPER.values()),
        "needed": min(least_condition(*sizes) for sizes in PAPER.values()),
        "there": sum(np.isfinite(v["reached"]) for v in ours.values()), "of": len(ours),
        "factors": ", ".join(factors) or "no fitted factor",
        "edges": f" The best step is the smallest or largest tried for {', '.join(edges)}." if edges else "",
    }  # fmt: skip


def _exponents(fits: Fits) -> dict[str, Any]:
    """Return the exponents of T, which would all have to be −1."""
    mine = {problem: fit for (problem, letter), fit in fits.items() if letter == "T"}
    values = [fit[f"{kind}_exponent"] for fit in mine.values() for kind in KINDS]
    there = [value for value in values if value is not None]
    shown = "; ".join(
        f"{TITLES[problem]} "
        + ", ".join(f"{told(fit[f'{kind}_exponent'], '+.2f|not fitted')} {KINDS[kind]}" for kind in KINDS)
        for problem, fit in mine.items()
    )
    return {
        "fitted": bool(there) and len(there) == len(values), "exponents": len(values), "shown": shown or "not measured",
        "near": sum(abs(value + 1) <= NEAR_ONE for value in there), "falls": any(value < -0.1 for value in there),
        "NEAR_ONE": NEAR_ONE,
    }  # fmt: skip


def _size(fits: Fits, letter: str) -> dict[str, Any]:
    """Return in how many comparisons the rounds fall with every T, or S."""
    rows = {
        (problem, kind): [fit[kind][size] for size in sorted(fit[kind])]
        for (problem, name), fit in fits.items() if name == letter for kind in KINDS if len(fit[kind]) > 1
    }  # fmt: skip
    falls = {key: all(b < a for a, b in pairwise(row)) for key, row in rows.items()}
    common = [value for (_, kind), value in falls.items() if kind != "best"]
    parts = [f"{TITLES[problem]} {KINDS[kind]} {told(row, '.0f')}" for (problem, kind), row in rows.items()]
    sizes = {told(sorted(fit["best"])) for (_, name), fit in fits.items() if name == letter}
    return {
        "letter": letter, "text": TEXTS[letter], "bound": BOUNDS[letter], "fitted": bool(rows),
        "falls": sum(falls.values()), "of": len(falls), "common": sum(common), "of_common": len(common),
        "rounds": f"{'; '.join(parts)} ({letter} = {' and '.join(sorted(sizes))})" if parts else "not measured",
    }  # fmt: skip


def _rate_table(rates: Mapping[str, Mapping[str, Any]], problem: str) -> ResultTable:
    def order(value: Mapping[str, Any]) -> tuple[bool, float, bool, float]:
        there, ends = np.isfinite(value["reached"]), np.isfinite(value["level"])
        return not there, value["reached"] if there else 0, there or not ends, value["level"] if ends else 0

    rows = []
    for member, value in sorted(rates.items(), key=lambda item: order(item[1])):
        there = np.isfinite(value["reached"])
        best = told(value["best"], "g") + ("*" if value["edge"] else "")
        rows.append([
            title_of(member), best, round(value["reached"]) if there else None,
            told(value["rate"], ".4f") if np.isfinite(value["rate"]) else None,
            "–" if there else told(value["level"], ".1e"),
        ])  # fmt: skip
    left_out = ", ".join(title_of(name) for name, cls in ALGORITHMS.items() if not cls.partial)
    seeds = max(value["seeds"] for value in rates.values())
    note = (
        f"{seeds} seed{'s' if seeds > 1 else ''}. Step in units of 1/L, for LoSAC as printed S/(NML), L the largest "
        "curvature of a client. The grid goes from 0.01 to 30, and on to 0.001 or 100 where the best lies on its edge; "
        "with a star the smallest or largest that was tried. *Else ends at*: the median over the last quarter of "
        f"{max(value['after'] for value in rates.values())} rounds; in more rounds, shorter steps come nearer. "
        f"{SAME_WORDS}; each counts once. "
        "FedSaga (1/N) is as Algorithm 1 prints it. Other settings as in the profiles. S-Local-SVRG asks all N clients "
        f"for a full gradient in every other round. Left out, since they need all clients in every round: {left_out}."
    )
    columns = ["method", "best step", "rounds to 1e-10", "factor per round", "else ends at"]
    return ResultTable(f"rates-{problem}", f"Linear rates, {TITLES[problem]}", columns, rows, note)


def _size_table(fits: Fits) -> ResultTable:
    rows = [
        [
            TITLES[problem],
            letter,
            size,
            *(round(fit[k][size]) if size in fit[k] else None for k in KINDS),
            "*" if fit["edges"].get(size) else None,
        ]
        for (problem, letter), fit in fits.items()
        for size in sorted(fit["best"])
    ]
    columns = ["problem", "varied", "value", *(f"rounds {title}" for title in KINDS.values()), "edge"]
    note = "With a star where the best η is the smallest or the largest that was tried."
    return ResultTable("sizes", "Rounds of LoSAC against T and S", columns, rows, note)


def _draw_rates(rates: Rates) -> Drawing:
    """Draw the distance over the rounds, each with its best step."""
    grey = {"color": "0.8", "linewidth": 0.8}
    panels: list[Panel] = []
    for problem, mine in rates.items():
        marks = []
        for member, value in mine.items():
            own = member in COLOURED
            look = line_of(member.replace("-", "_"), label=title_of(member), zorder=2) if own else grey | {"zorder": 1}
            if value["distance"]:
                marks.append(mark("plot", value["rounds"], value["distance"], **look))
        axes = {"title": TITLES[problem], "xlabel": "round", "yscale": "log", "ylim": (1e-16, 10)}
        panels.append(Panel(marks, axes | ({} if panels else {"ylabel": "‖x − x*‖ / ‖x⁰ − x*‖"})))
    others = any(member not in COLOURED for mine in rates.values() for member in mine)
    handles = {"other methods": handle(**grey)} if others else {}
    size, legend = (3.6 * len(panels) + 1.6, 3.8), {"loc": "outside right center"}
    return draw([panels], size, legend=legend, handles=handles, sharey=True)


def _draw_sizes(fits: Fits) -> Drawing:
    """Draw the rounds over T above and over S below, a column for each problem."""
    problems = list(dict.fromkeys(problem for problem, _ in fits))
    rows = []
    for letter, title in (("T", "local steps T"), ("S", "clients per round S")):
        sizes = sorted({size for problem in problems for kind in KINDS for size in fits[problem, letter][kind]})
        row: list[Panel] = []
        for problem in problems:
            marks = []
            for index, kind in enumerate(KINDS):
                found = fits[problem, letter][kind]
                marks.append(mark("plot", list(found), list(found.values()), label=KINDS[kind],
                                  **line_of(index, marker=True, markersize=5)))  # fmt: skip
                if found:
                    guide = [found[min(found)] * min(found) / size for size in sorted(found)]
                    marks.append(mark("plot", sorted(found), guide, color="0.75", linewidth=1, zorder=0))
            axes = {"title": TITLES[problem], "xlabel": title, "xscale": "log", "yscale": "log"}
            first = {} if row else {"ylabel": "rounds"}
            row.append(Panel(marks, axes | first, {} if row else {"y": DECADE}, partial(_ticks, sizes)))
        rows.append(row)
    return draw(
        rows, (max(2.9 * len(problems), 5.5) + 0.6, 5.4), sharex="row", sharey="row",
        legend={"loc": "outside lower center", "ncols": 4 if len(problems) > 2 else 2},
        handles={"in proportion to 1/T or 1/S": handle(color="0.75", linewidth=1)},
    )  # fmt: skip


def _ticks(sizes: Sequence[int], panel: Axes) -> None:
    panel.set_xticks(sizes, [str(size) for size in sizes])
    panel.xaxis.minorticks_off()


STUDY = Study(
    "theorem1", "Theorem 1: the rate of convergence, and T and S", jobs, conclude, ("a9a", "w8a"), place=14,
    keys={"share": "share"},
)  # fmt: skip
