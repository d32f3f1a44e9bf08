"""The lemmas behind Theorem 1: the inequalities of Appendix A, and the progress of one round (Lemma 2), in numbers.

The inequalities are checked at random points of least squares and of logistic regression, from their equations. For
the progress of a round, rounds that could follow are played from the states of a run, with several step sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac_reproduction._random import Generator, points_generator
from losac_reproduction.claims import Statement, judge
from losac_reproduction.convex import Smooth, convex, method, smooth
from losac_reproduction.frame import cells
from losac_reproduction.panels import Panel, draw, line_of, mark
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

TITLES = {"quadratic": "least squares", "a9a": "logistic regression, a9a"}
STEPS, LOOKS, SHARES = 5, (0, 5, 20, 50, 100, 200), (0.01, 0.03, 0.1, 0.3, 1.0)
"""T, the rounds after which the next one is played, and the step sizes in units of S/(NML)."""
PLAYS = {"quadratic": 200, "a9a": 40}
DRAWS = {"quadratic": 2000, "a9a": 400}
ROUNDING = 1e-12
"""A violation smaller than this, relative to both sides, is rounding."""
FLOOR = 1e-24
"""Below this share of its start the squared distance is rounding, and no progress can be seen."""
INEQUALITIES = {
    "iq1": "‖a + b‖² ≤ (1 + α)‖a‖² + (1 + 1/α)‖b‖²",
    "iq2": "‖Σ a_i‖² ≤ m Σ ‖a_i‖²",
    "ie1": "⟨∇f(x), z − y⟩ ≤ f(z) − f(y) + (L + βL − μ/4)‖y − z‖² + (1 + 1/β)L‖z − x‖²",
    "ie2": "⟨∇f(x), z − y⟩ ≥ f(z) − f(y) + μ/(2(1 + α))‖y − z‖² − (L/2 + μ/(2α))‖z − x‖²",
    "smooth": "‖∇f(z) − ∇f(y)‖² ≤ L‖z − y‖², as the proof of Lemma 2 uses it; L² would be right",
    "ie8": "‖y − z‖ ≤ 2(δ − σ)/μ with ‖∇f‖² ≤ δ − σ, as printed; the root of δ − σ would be right",
}
"""The inequalities of the appendix by their labels, and two steps of its proof."""


def jobs(options: Options) -> list[Job]:
    """Return a job for the inequalities and one for the rounds, on each problem; the short form has the quadratic."""
    found = []
    for problem in list(TITLES)[: 1 if options.quick else None]:
        seeds = list(options.seeds[:1] if options.quick else options.seeds)
        few = 10 if options.quick else 1
        points = {"problem": problem, "draws": DRAWS[problem] // few, "seeds": seeds}
        found.append(Job(measure_inequalities, points, f"Lemmas: inequalities, {TITLES[problem]}"))
        shares = list(SHARES[::2] if options.quick else SHARES)
        rounds = {"problem": problem, "shares": shares, "at": list(LOOKS), "plays": PLAYS[problem] // few}
        cost = 2.0 if problem == "quadratic" else 10.0
        found.append(Job(measure_rounds, rounds | {"seeds": seeds}, f"Lemmas: one round, {TITLES[problem]}", cost))
    return found


def measure_inequalities(problem: str, draws: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return how often each inequality is violated at random points, and its least slack as a share of both sides."""
    f, optimum = smooth(problem), convex(problem).optimum
    found = []
    for seed in seeds:
        rng = points_generator(seed)
        slacks = [_slacks(f, optimum, rng) for _ in range(draws)]
        for name in INEQUALITIES:
            values = np.array([slack[name] for slack in slacks])
            found.append(
                {"seed": seed, "inequality": name, "least": float(values.min()), "draws": draws,
                 "violated": int(np.sum(values < -ROUNDING))}
            )  # fmt: skip
    return found


def _slacks(f: Smooth, optimum: np.ndarray, rng: Generator) -> dict[str, float]:
    """Return the slack of every inequality at points around the optimum, near and far, and at random α and β."""
    radius = float(np.linalg.norm(optimum)) * 10 ** rng.uniform(-2, 1.5)
    x, y, z = (optimum + radius * rng.uniform(0, 1) * _direction(rng, len(optimum)) for _ in range(3))
    alpha, beta = 10 ** rng.uniform(-2, 2, 2)
    mu, smoothness = f.mu, f.smoothness
    inner, rise = float(f.gradient(x) @ (z - y)), f.value(z) - f.value(y)
    near, far = float(np.sum((y - z) ** 2)), float(np.sum((z - x) ** 2))
    slopes = [f.gradient(point) for point in (x, y, z)]
    moment = max(float(g @ g) for g in slopes)
    return {
        "iq1": _slack(np.sum((x + y) ** 2), (1 + alpha) * np.sum(x**2) + (1 + 1 / alpha) * np.sum(y**2)),
        "iq2": _slack(np.sum((x + y + z) ** 2), 3 * (np.sum(x**2) + np.sum(y**2) + np.sum(z**2))),
        "ie1": _slack(inner, rise + (smoothness * (1 + beta) - mu / 4) * near + (1 + 1 / beta) * smoothness * far),
        "ie2": _slack(rise + mu / (2 * (1 + alpha)) * near - (smoothness / 2 + mu / (2 * alpha)) * far, inner),
        "smooth": _slack(np.sum((slopes[2] - slopes[1]) ** 2), smoothness * near),
        "ie8": _slack(near**0.5, 2 * moment / mu),
    }


def _direction(rng: Generator, size: int) -> np.ndarray:
    v = rng.normal(size=size)
    return v / np.linalg.norm(v)


def _slack(left: float, right: float) -> float:
    """Return by how much the left side is smaller, as a share of both."""
    return float((right - left) / max(abs(left) + abs(right), 1e-300))


def measure_rounds(
    problem: str, shares: list[float], at: list[int], plays: int, seeds: list[int]
) -> list[dict[str, Any]]:
    """Return what a round of LoSAC as printed makes of the distance to the optimum, over the rounds that could follow.

    ``before`` is ‖x^r − x*‖², ``after`` the mean of ‖x^(r+1) − x*‖² with its standard error, ``gap`` f(x^r) − f(x*).
    """
    from losac_reproduction.probe import flat, stops_of, successors

    made, f = convex(problem), smooth(problem)
    least = f.value(made.optimum)
    found = []
    for share in shares:
        chosen = method(made, "losac", share, STEPS)
        for seed in seeds:
            for stop in stops_of(
                made.task, chosen, seed, sampled=made.sampled, stops=at, plays=plays, dtype="float64"
            ):  # fmt: skip
                x = np.asarray(flat(chosen.model(stop.state.server)))
                following = np.asarray(successors(stop.shape, stop.problem, stop.state, stop.ids, stop.keys))
                distances = np.sum((following - made.optimum) ** 2, axis=1)
                found.append(
                    {"seed": seed, "share": share, "at": stop.round, "step": float(chosen.step_size),
                     "before": float(np.sum((x - made.optimum) ** 2)), "after": float(distances.mean()),
                     "error": float(distances.std() / len(distances) ** 0.5), "gap": f.value(x) - least,
                     "drift": STEPS * made.sampled / made.clients, "mu": f.mu}
                )  # fmt: skip
    return found


class RoundProgress(NamedTuple):
    """What a round makes of the squared distance, before and after it; ``scale`` is μST/N."""

    step: float
    before: float
    after: float
    error: float
    gap: float
    drift: float
    mu: float

    @property
    def slack(self) -> float:
        """What is left of the inequality of Lemma 2 without its h, λ' and ν'; positive where it holds without them."""
        return self.before - 2 * self.step * self.drift * self.gap - self.after

    @property
    def rate(self) -> float:
        """The largest h for which it holds without λ' and ν', in units of μST/N."""
        return self.slack / (self.step * self.before * self.mu * self.drift)

    @property
    def noise(self) -> float:
        """The least λ' for which it holds, with h = 0."""
        return -self.slack / self.step**2


FIELDS = RoundProgress._fields
Rounds = dict[tuple[str, float, int], list[RoundProgress]]
"""By problem, step and round: the progress of every seed."""


def rounds_of(frame: pd.DataFrame) -> Rounds:
    """Return what was measured of single rounds, where there was a distance left to go."""
    by = ("data", "share", "at")
    values = {name: cells(frame, name, by) for name in FIELDS}
    found: Rounds = {}
    for key, before in values["before"].items():
        start = max(v for (data, _, at), row in values["before"].items() if (data, at) == (key[0], 0) for v in row)
        found[key] = [
            RoundProgress(*(values[name][key][k] for name in FIELDS))
            for k, distance in enumerate(before) if distance > FLOOR * start
        ]  # fmt: skip
    return found


SURE = 2
"""How many of the smallest steps stand for η → 0."""
EXACT = ("iq1", "iq2", "ie1", "ie2")
CLAIMS = (
    Statement(
        "The relaxed triangle inequalities (iq1) and (iq2) hold.", "Appendix A",
        "holds if not violated['iq1'] + violated['iq2'] | fails",
        "Violated at {violated[iq1]} and {violated[iq2]} of {draws} random points.",
        "Holds if it is violated at no point by more than rounding.",
    ),
    Statement(
        "For strongly convex and L-smooth f the inequalities (ie1) and (ie2) hold.", "Appendix A",
        "holds if not violated['ie1'] + violated['ie2'] | fails",
        "Violated at {violated[ie1]} and {violated[ie2]} of {draws} random points of {problems}.",
        "Holds if it is violated at no point by more than rounding.",
    ),
    Statement(
        "Each round satisfies E‖x⁺ − x*‖² ≤ −(2ηST/N)(f(x) − f*) + (1 − ηh)‖x − x*‖² + λ'η² + ν'η³ with some "
        "positive h, λ' and ν'.", "Lemma 2", "holds if least > 0 | fails",
        "At the {SURE} smallest steps {good} of {looks} states satisfy it with a positive h and without λ' and ν' "
        "({each}).{grows} The least λ' that it needs with h = 0, by η in units of S/(NML): {needed}. The h that the "
        "appendix derives is another matter: it is negative (Theorem 1).",
        "Holds if, at the {SURE} smallest steps, every state looked at satisfies it with some positive h and without "
        "λ' and ν', which then only have to cover longer steps. A λ' that has to grow as 1/η is no constant: λ'η² is "
        "then of the order of η, as the progress itself. States within rounding of the optimum do not count.",
    ),
    Statement(
        "The proof of Lemma 2 bounds ‖∇f(z) − ∇f(y)‖² by L‖z − y‖², and the distance of any two points by 2(δ − σ)/μ.",
        "Appendix B", "holds if not violated['smooth'] + violated['ie8'] | fails",
        "Violated at {violated[smooth]} and {violated[ie8]} of {draws} random points: with L² for L, and the root of "
        "δ − σ, both hold. The lemma itself is judged by what it states.",
        "Holds if neither is violated by more than rounding, where L, μ and the largest gradient are those of the "
        "problem.",
    ),
)  # fmt: skip


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Count the violations, and say what the progress of a round needs."""
    violated, least = (cells(frame, name, ("inequality", "data")) for name in ("violated", "least"))
    draws = cells(frame, "draws", ("inequality", "data"))
    rounds = rounds_of(frame)
    totals = {name: int(sum(sum(v) for (who, _), v in violated.items() if who == name)) for name in INEQUALITIES}
    number = int(sum(sum(v) for (who, _), v in draws.items() if who == "iq1"))
    problems = list(dict.fromkeys(data for _, data in draws))
    small = sorted({share for _, share, _ in rounds})[:SURE]
    rates = [one.rate for (_, share, _), row in rounds.items() if share in small for one in row]
    numbers = {
        "violated": totals, "draws": number, "problems": " and ".join(TITLES[p] for p in problems), "SURE": SURE,
        "least": min(rates), "looks": len(rates), "good": sum(rate > 0 for rate in rates),
        "each": _satisfied(rounds, small), "grows": _grows(rounds), "needed": _needed(rounds),
    }  # fmt: skip
    rows = [
        [name, text, *(f"{int(sum(violated[name, p]))} of {int(sum(draws[name, p]))}" for p in problems),
         *(told(min(least[name, p]), ".2g") for p in problems)]
        for name, text in INEQUALITIES.items()
    ]  # fmt: skip
    columns = ("label", "inequality", *(f"violated, {TITLES[p]}" for p in problems),
               *(f"least slack, {TITLES[p]}" for p in problems))  # fmt: skip
    note = "Least slack: right less left side, as a share of both. The last two are steps of the proof of Lemma 2."
    tables = [ResultTable("inequalities", "The appendix's inequalities", columns, rows, note), _progress_table(rounds)]
    summary = (
        f"The inequalities of Appendix A hold at all of {number} random points. Two steps of the proof of Lemma 2 do "
        f"not. With small steps a round of LoSAC makes the progress that Lemma 2 states at {numbers['good']} of "
        f"{len(rates)} states ({numbers['each']}).{numbers['grows']}"
        if not any(totals[name] for name in EXACT) else f"Violations at {number} random points: {totals}."
    )  # fmt: skip
    caption = (
        "The largest h for which a round satisfies Lemma 2 without λ' and ν', in units of μST/N, over the rounds; one "
        "line for each step size, in units of S/(NML). Below 0 the lemma needs λ'. Means over the seeds."
    )
    return Findings(summary, judge(CLAIMS, numbers), tables, [Figure("progress", caption, lambda: _draw(rounds))])


def _satisfied(rounds: Rounds, small: Sequence[float]) -> str:
    """Say at how many states of each problem the progress is there at small steps."""
    rates: dict[str, list[float]] = {}
    for (problem, share, _), row in rounds.items():
        if share in small:
            rates.setdefault(problem, []).extend(one.rate for one in row)
    return ", ".join(f"{TITLES[p]} {sum(v > 0 for v in values)} of {len(values)}" for p, values in rates.items())


def _grows(rounds: Rounds) -> str:
    """Say how the λ' that the first state needs goes with the step; it is the same state for every step."""
    said = ""
    for problem in dict.fromkeys(key[0] for key in rounds):
        noise = {share: max(one.noise for one in row) for (p, share, at), row in rounds.items()
                 if (p, at) == (problem, 0) and row}  # fmt: skip
        if len(noise) > 1 and min(noise.values()) > 0:
            power = np.polyfit(np.log(list(noise)), np.log(list(noise.values())), 1)[0]
            (short, most), (long, least) = min(noise.items()), max(noise.items())
            said += (
                f" On {TITLES[problem]} the first state, which is the same for every step, needs a λ' of {least:.2g} "
                f"at η = {long:g} and of {most:.2g} at {short:g}: it goes as η^{power:.2f}, so no constant does."
            )
    return said


def _needed(rounds: Rounds) -> str:
    """Say which λ' the longer steps need."""
    parts = []
    for problem in dict.fromkeys(key[0] for key in rounds):
        most: dict[float, float] = {}
        for (data, share, _), row in rounds.items():
            if data == problem and row:
                most[share] = max([most.get(share, -np.inf), *(one.noise for one in row)])
        some = [f"{value:.2g} at {share:g}" for share, value in most.items() if value > 0]
        parts.append(f"{TITLES[problem]} {', '.join(some) or 'none'}")
    return "; ".join(parts)


def _progress_table(rounds: Rounds) -> ResultTable:
    rows = [
        [TITLES[data], share, at, np.mean([one.before for one in row]), np.mean([one.after for one in row]),
         told(min(one.rate for one in row), ".2g"), told(max(one.noise for one in row), ".2g")]
        for (data, share, at), row in rounds.items() if row
    ]  # fmt: skip
    columns = ("problem", "step", "round", "‖x − x*‖²", "after one round", "least h", "λ' needed")
    note = "Step in units of S/(NML); h in units of μST/N, λ' with h = 0, of the worst seed; a negative λ' is none."
    return ResultTable("progress", "The progress of one round", columns, rows, note)


def _draw(rounds: Rounds) -> Drawing:
    panels: list[Panel] = []
    for problem in dict.fromkeys(key[0] for key in rounds):
        marks: list[Any] = [mark("axhline", 0, color="0.5", linewidth=0.8, zorder=0)]
        for index, share in enumerate(dict.fromkeys(key[1] for key in rounds)):
            mine = {at: float(np.mean([one.rate for one in row])) for (data, s, at), row in rounds.items()
                    if (data, s) == (problem, share) and row}  # fmt: skip
            look = line_of(index, marker=True, label=f"η = {share:g}")
            marks.append(mark("plot", [at + 1 for at in mine], list(mine.values()), **look))
        axes = {"title": TITLES[problem], "xlabel": "round + 1", "xscale": "log", "yscale": "symlog"}
        panels.append(Panel(marks, axes | ({} if panels else {"ylabel": "largest h, in μST/N"})))
    return draw([panels], (3.6 * len(panels) + 1.4, 3.6), legend={"loc": "outside right center"})


STUDY = Study(
    "lemmas", "The lemmas behind Theorem 1", jobs, conclude, ("a9a",), place=13.5,
    keys={"share": "share", "at": "at", "inequality": "inequality"},
)  # fmt: skip
