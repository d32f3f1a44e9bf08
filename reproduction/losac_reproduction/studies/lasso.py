"""The lasso, the paper's first example of a nonsmooth problem, which it names but does not run.

As it is printed: f_i(x) = (1/n_i) Σ (xᵀd − y)² and Ψ = λ‖x‖₁, with sampled clients and blocks. The rows of the clients
and the weights behind them differ, so every f_i has its own optimum. Every method takes the best step of
one grid, and the composite optimum, which is known to rounding, is what all that are exact must reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from losac.data import FederatedData
from losac.models import linear
from losac.prox import l1
from losac.task import regression
from losac_reproduction._random import sparse_generator
from losac_reproduction.claims import Statement, judge
from losac_reproduction.convex import Convex, Distance, as_vector, method, unit
from losac_reproduction.frame import cells
from losac_reproduction.panels import Panel, draw, line_of, mark
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import mean, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

CLIENTS, SAMPLED, BLOCKS, STEPS, SAMPLES, DIM, NONZERO = 100, 10, 5, 5, 40, 100, 10
STRENGTH, COUNTED, NEAR = 0.2, 1e-3, 1e-6
"""λ, the weight from which an entry counts as nonzero, and the distance that counts as the optimum's."""
ROUNDS, EVERY, SHARES = 1500, 25, (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Variant(NamedTuple):
    """A method: its title, its name and its settings."""

    title: str
    name: str
    settings: Mapping[str, Any] = {}


MEMBERS = {
    "losac": Variant("LoSAC-Prox", "losac"),
    "printed": Variant("LoSAC-Prox, prox step as printed", "losac", {"prox_step": "printed"}),
    "exact": Variant("LoSAC-Prox, exact scaling", "losac", {"scaling": "exact", "correction": 1.0}),
    "scaffold": Variant("SCAFFOLD-Prox", "scaffold"),
    "feddualavg": Variant("FedDualAvg", "feddualavg"),
    "fedmid": Variant("FedMiD", "fedmid"),
}
OURS, RIVALS = ("losac", "exact"), ("scaffold", "feddualavg", "fedmid")
LOOKS = {"printed": "losac_printed", "exact": "losac_exact"}


def jobs(options: Options) -> list[Job]:
    """Return one job for each method; the short form has two of them and fewer rounds."""
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    rounds = 100 if options.quick else ROUNDS
    return [
        Job(measure, {"member": name, "rounds": rounds, "seeds": seeds}, f"LASSO: {MEMBERS[name].title}")
        for name in (("losac", "scaffold") if options.quick else MEMBERS)
    ]


@lru_cache(maxsize=1)
def problem() -> Convex:
    """Return the task, whose metrics are the distance from the composite optimum and the number of nonzeros."""
    rng = sparse_generator()
    truth = np.zeros(DIM)
    truth[rng.choice(DIM, NONZERO, replace=False)] = rng.choice([-1.0, 1.0], NONZERO) * rng.uniform(1, 2, NONZERO)
    clients = []
    for _ in range(CLIENTS):
        own = truth * rng.uniform(0.5, 1.5, DIM)
        rows = rng.normal(0.3 * rng.normal(size=DIM), 1, (SAMPLES, DIM))
        clients.append((rows, rows @ own + 0.1 * rng.normal(size=SAMPLES)))
    data = FederatedData.from_clients(clients, name="lasso")
    optimum = composite_optimum(clients)
    metrics: dict[str, Callable[..., Any]] = {"distance": Distance(optimum), "nonzeros": nonzeros}
    task = regression(
        linear(DIM), data, scale=1.0, reduction="mean", regularizer=l1(STRENGTH), metrics=metrics, test=None
    )
    curvature = max(2 * float(np.linalg.norm(rows, 2)) ** 2 / len(rows) for rows, _ in clients)
    return Convex(task, CLIENTS, SAMPLED, BLOCKS, curvature, optimum)


def nonzeros(params: Any, batch: Any) -> Any:
    """Return the number of weights that are not zero."""
    return jnp.sum(jnp.abs(as_vector(params)) > COUNTED).astype(jnp.float32)


def composite_optimum(clients: list[tuple[np.ndarray, np.ndarray]], steps: int = 5000) -> np.ndarray:
    """Return the minimiser of (1/N) Σ_i f_i + λ‖x‖₁ by accelerated proximal gradient steps."""
    hessian = sum(2 / len(rows) * rows.T @ rows for rows, _ in clients) / len(clients)
    target = sum(2 / len(rows) * rows.T @ y for rows, y in clients) / len(clients)
    length = 1 / float(np.linalg.eigvalsh(hessian)[-1])
    x = ahead = np.zeros(DIM)
    t = 1.0
    for _ in range(steps):
        moved = ahead - length * (hessian @ ahead - target)
        new = np.sign(moved) * np.maximum(np.abs(moved) - length * STRENGTH, 0)
        t = 1.0 if (ahead - new) @ (new - x) > 0 else t
        following = (1 + (1 + 4 * t * t) ** 0.5) / 2
        ahead = new + (t - 1) / following * (new - x)
        x, t = new, following
    return x


def measure(member: str, rounds: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Return, for every step size and seed, the distance from the optimum over the rounds and the nonzeros at the end.

    A step is a share of 1/L, for LoSAC as printed of S/(NML).
    """
    from losac.simulation import sweep

    made = problem()
    _, name, settings = MEMBERS[member]
    one = unit(made, name, dict(settings))
    chosen = method(made, name, 1.0, STEPS, **settings)
    runs = sweep(
        made.task, chosen, {"step_size": [share * one for share in SHARES]}, seeds, rounds=rounds,
        clients_per_round=SAMPLED, eval_every=EVERY, loss_every=rounds, dtype="float64",
    ).members  # fmt: skip
    pairs = [(share, seed) for share in SHARES for seed in seeds]
    return [
        {
            "share": share, "seed": seed, "diverged": run.diverged,
            "nonzeros": None if run.diverged is not None else round(run.final("nonzeros")),
            "round": run.rounds.tolist(), "distance": [float(f"{v:.3g}") for v in run.metric("distance")],
        }
        for (share, seed), run in zip(pairs, runs)
    ]  # fmt: skip


class Best(NamedTuple):
    """A method at the step that comes near the optimum first, or else ends nearest: means over the seeds."""

    share: float
    distance: float
    nonzeros: float
    reached: float
    curve: Mapping[int, float]

    @property
    def rank(self) -> tuple[float, float]:
        """What is less for a better step."""
        return self.reached, self.distance


def best_of(frame: pd.DataFrame) -> dict[str, Best]:
    """Return every method at its best step; one that diverged at every step is left out."""
    ends = cells(frame, "nonzeros", ("method", "share"))
    curves = cells(frame, "distance", ("method", "share", "round"))
    found: dict[str, Best] = {}
    for (name, share), counts in ends.items():
        curve = {at: mean(values) for (who, step, at), values in curves.items() if (who, step) == (name, share)}
        last = curve[max(curve)] if curve else np.nan
        first = next((at for at, value in sorted(curve.items()) if value <= NEAR), np.inf)
        one = Best(share, last, mean(counts), first, curve)
        if np.isfinite(last) and (name not in found or one.rank < found[name].rank):
            found[name] = one
    return found


CLAIM = Statement(
    "LoSAC-Prox solves a wider class of problems, such as l1 regularisation (the lasso).",
    "Extension with proximal operator",
    "holds if max(ours) <= NEAR and min(nonzeros) == max(nonzeros) == right | holds in part if min(ours) <= NEAR | "
    "fails",
    "Distance from the composite optimum after {rounds} rounds, as a share of its norm, with the nonzero weights found "
    "(the optimum has {right}): {shown}.",
    "Holds if LoSAC-Prox comes within {NEAR:g} of the composite optimum, relative to its norm, and finds its nonzero "
    "weights, in the paper's and in the exact scaling, each at the best of the same step sizes.",
)


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Say who reaches the composite optimum."""
    found = best_of(frame)
    right = int(np.sum(np.abs(problem().optimum) > COUNTED))
    rounds = max(max(one.curve) for one in found.values())
    shown = [f"{MEMBERS[m].title} {one.distance:.1g} ({told(one.nonzeros, '.0f')})" for m, one in found.items()]
    numbers = {
        "ours": [found[m].distance if m in found else np.inf for m in OURS if m in found or not options.quick],
        "nonzeros": [found[m].nonzeros for m in OURS if m in found], "right": right, "NEAR": NEAR, "rounds": rounds,
        "shown": ", ".join(shown),
    }  # fmt: skip
    rows = [
        [MEMBERS[m].title, told(one.share, "g"), told(one.distance, ".1e"), told(one.nonzeros, ".0f"),
         told(one.reached, ".0f|never")]
        for m, one in sorted(found.items(), key=lambda item: item[1].distance)
    ]  # fmt: skip
    columns = ("method", "best step", "distance from the optimum", "nonzero weights", f"rounds to {NEAR:g}")
    note = (
        f"N = {CLIENTS}, S = {SAMPLED}, M = {BLOCKS}, T = {STEPS}, {DIM} weights, {NONZERO} of them behind the "
        f"data, λ = {STRENGTH:g}. Step in units of 1/L, for LoSAC as printed S/(NML). Nonzero: above {COUNTED:g}. The "
        "prox step as printed minimises f + (S/NM)Ψ instead."
    )
    caption = "Distance from the composite optimum over the rounds, as a share of its norm; each at its best step."
    summary = f"Rounds to {NEAR:g} of the composite optimum: " + ", ".join(
        f"{MEMBERS[m].title} {told(one.reached, '.0f|never')}" for m, one in found.items()
    )
    table = ResultTable("lasso", "The lasso, every method at its best step", columns, rows, note)
    return Findings(f"{summary}.", judge([CLAIM], numbers), [table], [Figure("lasso", caption, lambda: _draw(found))])


def _draw(found: Mapping[str, Best]) -> Drawing:
    marks = [
        mark("plot", list(one.curve), np.maximum(list(one.curve.values()), 1e-16),
             **line_of(LOOKS.get(name, name), label=MEMBERS[name].title))
        for name, one in found.items()
    ]  # fmt: skip
    axes = {"xlabel": "round", "ylabel": "‖x − x*‖ / ‖x*‖", "yscale": "log"}
    return draw([[Panel(marks, axes)]], (7, 3.8), legend={"loc": "outside right center"})


STUDY = Study(
    "lasso", "The lasso: the paper's first nonsmooth problem", jobs, conclude, place=10.8, keys={"share": "share"}
)
