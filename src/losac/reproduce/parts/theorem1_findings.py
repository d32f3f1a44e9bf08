"""What follows from the runs of Theorem 1's study: rates, exponents, the theorem's constant, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from losac.reproduce.parts.theorem1_figures import KINDS, TITLED, TITLES, draw_rates, draw_sizes
from losac.reproduce.study import Claim, Figure, Findings, Table, Verdict

Rates = Mapping[tuple[str, str], Mapping[str, Any]]
Sizes = Mapping[tuple[str, int, int], Sequence[Mapping[str, Any]]]
PAPER = {"MNIST, N = 100": (60000, 100), "MNIST, N = 1000": (60000, 1000), "HAR": (7352, 100), "ESR": (9200, 100)}
"""The paper's |D| and N."""


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


def exponents(sizes: Sequence[tuple[int, Sequence[Mapping[str, Any]]]]) -> dict[str, Any]:
    """Return the rounds for every T (or S) and their exponent: at the smallest and the largest step that bring all
    of them there, and each at its best.

    Args:
      sizes: (T or S, runs with every step and seed).
    """
    table = {}
    for size, runs in sizes:
        shares: dict[float, list[Any]] = {}
        for run in runs:
            shares.setdefault(run["share"], []).append(run["reached"])
        table[size] = {share: float(np.mean(v)) for share, v in shares.items() if None not in v}
    common = set.intersection(*(set(row) for row in table.values())) if table else set()
    found = {
        "small": {size: row[min(common)] for size, row in table.items()} if common else {},
        "large": {size: row[max(common)] for size, row in table.items()} if common else {},
        "best": {size: min(row.values()) for size, row in table.items() if row},
    }
    return found | {f"{name}_exponent": slope(values) for name, values in found.items()}


def slope(found: Mapping[int, float]) -> float | None:
    """Return the exponent p of rounds ∝ size^p."""
    if len(found) < 2:
        return None
    return float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])


def findings(rates: Rates, sizes: Sizes, bases: Mapping[str, tuple[int, int]], left_out: Sequence[str]) -> Findings:
    """Put tables, figures and verdicts together."""
    fits, ordered = {}, sorted(sizes.items(), key=lambda item: item[0])
    for problem in dict.fromkeys(key[0] for key in sizes):
        t, s = bases[problem]
        fits[problem, "T"] = exponents([(k[1], v) for k, v in ordered if k[0] == problem and k[2] == s])
        fits[problem, "S"] = exponents([(k[2], v) for k, v in ordered if k[0] == problem and k[1] == t])
    tables = [_rate_table(rates, problem, left_out) for problem in dict.fromkeys(key[0] for key in rates)]
    tables.append(_size_table(fits))
    figures = [
        Figure("rates", "Distance of the server's model from the optimum over the rounds, as a share of its start, "
               "each method at its best step size; grey: all others.", lambda: draw_rates(rates)),
        Figure("sizes", "Rounds that LoSAC needs against the local steps T (above) and the clients per round S "
               "(below); solid grey: in proportion to 1/T and 1/S.", lambda: draw_sizes(fits)),
    ]  # fmt: skip
    claims = [_theorem(), _speed(rates), _size(fits, "T", "local steps T"), _size(fits, "S", "clients S per round")]
    return Findings(_summary(rates), claims, tables, figures)


def arrived(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a method reached with its best step, over the seeds; values are None where it did not."""
    mine = [row for row in result["rows"] if row["share"] == result["best"]]
    reached = [row["reached"] for row in mine]
    whole = bool(mine) and None not in reached
    factors = [row["rate"] for row in mine if row["rate"] is not None]
    return {
        "reached": float(np.mean(reached)) if whole else None,
        "rate": float(np.mean(factors)) if whole and factors else None,
        "level": float(np.mean([row["level"] for row in mine])) if mine else None,
    }


def _summary(rates: Rates) -> str:
    parts = []
    for problem in dict.fromkeys(key[0] for key in rates):
        mine = {member: arrived(result) for (name, member), result in rates.items() if name == problem}
        there = [f"{TITLED[m]} {v['reached']:.0f}" for m, v in mine.items() if v["reached"] is not None]
        rest = [v["level"] for v in mine.values() if v["reached"] is None and v["level"] is not None]
        nearest = f"; the other {len(rest)} end at {min(rest):.1g} or farther" if rest else ""
        parts.append(f"{TITLES[problem]}: {', '.join(there) or 'nobody'}{nearest}")
    return f"Rounds to 1e-10 of the distance at the start, best step of each. {'. '.join(parts)}."


def _theorem() -> Claim:
    largest = {name: greatest_h(*sizes) for name, sizes in PAPER.items()}
    needed = min(least_condition(*sizes) for sizes in PAPER.values())
    return Claim(
        "The weighted mean of f(x^r) − f(x*) is at most O(Nλ'/(2SThR)), with a positive h.",
        "Theorem 1",
        "fails" if max(largest.values()) < 0 else "not testable",
        "As printed, h is never positive: over all α, β and μ ≤ L it is at most "
        f"{max(largest.values()):.2f} ST·L(|D| + N)/N² with the paper's |D| and N, and the appendix's condition asks "
        f"for μ/L ≥ {needed:.1f}. The theorem says nothing then, whatever LoSAC does.",
    )


def _speed(rates: Rates) -> Claim:
    mine = {key: arrived(result) for key, result in rates.items() if key[1].startswith("losac")}
    there = [value["reached"] is not None for value in mine.values()]
    shown = [
        f"{TITLES[problem]} {value['rate']:.3f} ({TITLED[member]})"
        for (problem, member), value in mine.items()
        if value["rate"] is not None
    ]
    verdict: Verdict = "holds" if all(there) else "holds in part" if any(there) else "fails"
    return Claim(
        "LoSAC converges at a speed of O(1/R), with sampled clients and blocks and a constant number of local steps.",
        "Table 1, Theorem 1",
        verdict,
        f"It does better: with a constant step it converges linearly, to 1e-10 in {sum(there)} of {len(there)} cases; "
        f"the distance shrinks per round by {', '.join(shown) or 'no fitted factor'}.",
    )


def _size(fits: Mapping[tuple[str, str], Mapping[str, Any]], letter: str, what: str) -> Claim:
    mine = {problem: fit for (problem, name), fit in fits.items() if name == letter}
    values = [[fit[f"{kind}_exponent"] for fit in mine.values()] for kind in KINDS]
    verdict: Verdict = "not testable"
    if mine and all(value is not None for row in values for value in row):
        small, large, best = (max(row) for row in values)
        verdict = "holds in part" if min(min(row) for row in values) <= -0.1 else "fails"
        if max(small, large) <= -0.5:
            verdict = "holds" if best <= -0.5 else "holds only at equal step size"
    shown = "; ".join(
        f"{TITLES[problem]} " + ", ".join(f"{_signed(fit[f'{kind}_exponent'])} {KINDS[kind]}" for kind in KINDS)
        for problem, fit in mine.items()
    )
    return Claim(
        f"More {what} make LoSAC faster, its rounds going as 1/{letter}.",
        "Theorem 1 and the remark on it",
        verdict,
        f"Exponents of {letter} in the rounds to a given distance: {shown or 'not measured'}.",
    )


def _signed(value: float | None) -> str:
    return "not fitted" if value is None else f"{value:+.2f}"


def _best(result: Mapping[str, Any]) -> str:
    """Return the best step; with a star where it is the smallest or the largest that was tried."""
    shares = [row["share"] for row in result["rows"]]
    best = result["best"]
    return "–" if best is None else f"{best:g}" + ("*" if best in (min(shares), max(shares)) else "")


def _rate_table(rates: Rates, problem: str, left_out: Sequence[str]) -> Table:
    rows = []
    for (name, member), result in rates.items():
        if name == problem:
            value = arrived(result)
            ends = None if value["reached"] is not None else value["level"]
            rows.append([TITLED[member], _best(result), value["reached"], value["rate"], ends])
    rows.sort(key=lambda row: (row[2] is None, row[2] or 0, row[4] is None, row[4] or 0))
    shown = [
        [
            name,
            share,
            None if r is None else round(r),
            None if q is None else f"{q:.4f}",
            "–" if e is None else f"{e:.1e}",
        ]
        for name, share, r, q, e in rows
    ]
    note = (
        "Step in units of 1/L, for LoSAC as printed S/(NML), L the largest curvature of a client; with a star the "
        "smallest or largest that was tried. Other settings as in the profiles. S-Local-SVRG asks all N clients for a "
        "full gradient in every other round. Left out, since they need all clients in every round: "
        f"{', '.join(TITLED[name] for name in left_out)}."
    )
    columns = ["method", "best step", "rounds to 1e-10", "factor per round", "else ends at"]
    return Table(f"rates-{problem}", f"Linear rates, {TITLES[problem]}", columns, shown, note)


def _size_table(fits: Mapping[tuple[str, str], Mapping[str, Any]]) -> Table:
    rows = [
        [TITLES[problem], letter, size, *(round(fit[k][size]) if size in fit[k] else None for k in KINDS)]
        for (problem, letter), fit in fits.items()
        for size in sorted(fit["best"])
    ]
    columns = ["problem", "varied", "value", *(f"rounds {title}" for title in KINDS.values())]
    return Table("sizes", "Rounds of LoSAC against T and S", columns, rows)
