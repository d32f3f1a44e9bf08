"""Table 1: what the paper says of six algorithms, cell by cell, and what is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import models
from losac.attacks.replay import true_gradients
from losac.attacks.transcript import watch
from losac.data import load, quadratic
from losac.report.profile import DRIFT_TOLERANCE, drift, example, profile
from losac.simulation import sweep
from losac.simulation.engines.resident import precision
from losac.task import classification, regression
from losac_reproduction.claims import Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.problems import algorithm, reached
from losac_reproduction.study import Findings, Job, JobResult, Options, ResultTable, Study
from losac_reproduction.words import mean

if TYPE_CHECKING:
    import pandas as pd

STEPS, ROUNDS, EVALUATIONS = 5, 4000, 20
LEVELS = ("Low", "Medium", "High", "Very high")
NEAR, SAME = 1e-9, 1e-8
"""A distance that counts as the optimum's, and a relative one that counts as the gradient's."""
CLIENTS, SAMPLED, BLOCKS = 10, 3, 4
TARGET, STEP_SIZES = 0.9, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
CLAIM = Statement(
    "{name}: {complexity}, handles divergence: {divergence}, communication efficiency {communication}, partial "
    "participation: {partial}.", "Related work, Table 1",
    "holds if not wrong | holds in part if right | fails",
    "{right} of {of} measured cells agree{wrong_cells}.",
    "Holds if every cell that can be measured agrees. Divergence: within {DRIFT_TOLERANCE:g} of the optimum with all "
    "clients and {STEPS} local steps; communication: the orders of the rounds to {TARGET:.0%}, each at its best step, "
    "against the methods that the paper ranks otherwise. The column on DLG is judged with Figure 6.",
)  # fmt: skip


class PaperRow(NamedTuple):
    """A row of the paper's Table 1.

    ``full``: its complexity has the n_i of a full gradient; ``single``: it has one step instead of K.
    """

    name: str
    update: str
    complexity: str
    full: bool
    single: bool
    divergence: str
    communication: str
    defends: bool
    partial: bool


PAPER = {
    "fedavg": PaperRow("FedAvg", "several SGD steps", "O(Kd)", False, False, "no", "Low", True, True),
    "scaffold": PaperRow("SCAFFOLD", "several corrected SGD steps", "O(Kd)", False, False, "yes", "High", True, True),
    "mime_svrg": PaperRow("MimeSVRG", "several SVRG steps", "O(Kd + n_i d)", True, False, "yes", "High", False, True),
    "fedprox": PaperRow("FedProx", "one proximal step", "O(d)", False, True, "limited", "Medium", True, False),
    "mfl": PaperRow("MFL", "momentum descent", "O(Kd)", False, False, "no", "Low", False, False),
    "losac": PaperRow("LoSAC", "several global SAGA steps", "O(Kd)", False, False, "yes", "Very high", True, True),
}


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm; the short form has three of them and no race to a target."""
    names = ("fedavg", "mime_svrg", "losac") if options.quick else tuple(PAPER)
    seeds = [] if options.quick else list(options.seeds)
    return [Job(measure, {"name": name, "seeds": seeds}, f"Table 1: {PAPER[name].name}", version=2) for name in names]


def measure(name: str, seeds: list[int]) -> dict[str, Any]:
    """Return an algorithm's costs, where it settles, what it needs to reach a target, and what it sends."""
    costs = profile(example(name))
    own = costs.phases[-1]
    return {
        "steps": own.steps,
        "gradients_per_step": own.gradients_per_step,
        "full_gradients": sum(phase.gradients for phase in costs.phases[:-1]),
        "up": costs.up,
        "down": costs.down,
        "partial": costs.samples_clients,
        "drift": drift(name),
        "distances": settle(name) if seeds else [],
        "sent": {str(t): sent(name, t) for t in ((1, STEPS) if seeds else (1,))},
        "race": race(name, seeds) if seeds else [],
    }


def settle(name: str) -> list[float]:
    """Return the distance from the optimum over the rounds, with sampled clients and blocks, in float64."""
    data = quadratic(clients=CLIENTS, samples=16, dim=4, seed=1)
    curvature = max(float(np.linalg.norm(x, 2)) ** 2 for x, _ in map(data.client, range(CLIENTS)))
    method = example(name, curvature, BLOCKS)
    if name == "losac":  # its φ/N is M·N/S times the mean gradient
        method = method.replace(step_size=method.step_size * SAMPLED / (CLIENTS * BLOCKS))
    optimum = np.asarray(data.info["optimum"])
    task = regression(
        models.linear(4), data, metrics={"distance": lambda params, batch: jnp.abs(params - optimum).max()}
    )  # fmt: skip
    every = ROUNDS // EVALUATIONS
    run = sweep(
        task, method, {}, [0], rounds=ROUNDS, clients_per_round=SAMPLED, eval_every=every, dtype="float64"
    ).members[0]  # fmt: skip
    return [float(v) for v in run.metric("distance")] if run.diverged is None else []


def sent(name: str, steps: int) -> dict[str, float]:
    """Return how far ∇f_i(x) is from what a client sends in a round, relative to its norm, with full batches.

    ``message``: from a multiple of one part of what it sends. ``known``: from a combination of all that the server has
    of it: the parts, the sums of all that it sent before, and what it received. ``local``: the same for the nearest of
    the gradients that the client computed in the round, each at its own local model.
    """
    data = quadratic(clients=CLIENTS, samples=40, dim=16, seed=1)
    x, y = data.client(0)
    curvature = max(float(np.linalg.norm(x, 2)) ** 2 for x, _ in map(data.client, range(CLIENTS)))
    method = example(name, curvature, 1).replace(local_steps=steps)
    task = regression(models.linear(16), data)
    (transcript,) = watch(task, method, rounds=4, dtype="float64")
    seen = [[one for one in transcript.exchanges if one.task.round == r] for r in range(4)]
    broadcast = seen[-1][0].message
    model = np.asarray(getattr(broadcast, "x", broadcast))
    gradient = x.T @ (x @ model - y)
    parts = [leaf for phase in seen[-1] for leaf in jax.tree.leaves(phase.upload)]
    sums = [
        np.sum(series, 0)
        for series in zip(*([leaf for phase in r for leaf in jax.tree.leaves(phase.upload)] for r in seen))
    ]
    received = [leaf for phase in seen[-1] for leaf in jax.tree.leaves(phase.message)]
    everything = [*parts, *sums, *received]
    with precision(np.dtype("float64")):
        computed = [
            np.ravel(found)
            for query, _, found in true_gradients(transcript, task.loss, x, y)
            if transcript.exchanges[query.exchange].task.round == len(seen) - 1
        ]
    return {
        "message": min(_residual([part], gradient) for part in parts),
        "known": _residual(everything, gradient),
        "local": min(_residual(everything, own) for own in computed),
    }


def _residual(columns: Sequence[Any], vector: np.ndarray) -> float:
    """Return how far a vector is from the span of others, over its norm."""
    basis = np.stack([np.ravel(c) / max(float(np.linalg.norm(c)), 1e-300) for c in columns], 1)
    weights = np.linalg.lstsq(basis, vector, rcond=1e-12)[0]
    return float(np.linalg.norm(basis @ weights - vector) / np.linalg.norm(vector))


def race(name: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Return, for several step sizes, the rounds and bytes to 90 % on digits sorted by label (N=20, S=5, T=M=5)."""
    data = load("digits", 20, "sorted")
    task = classification(models.softmax_regression(64, 10), data)
    extra = {"mu": 0.1 * len(data) / 20} if name == "fedprox" else {}
    method = algorithm(name, step_size=1.0, local_steps=STEPS, blocks=5, **extra)
    found = sweep(task, method, {"step_size": STEP_SIZES}, seeds, rounds=300, clients_per_round=5, loss_every=300)
    return [
        {"step_size": run.settings["step_size"], "diverged": run.diverged, "reached": reached(run, TARGET)}
        for run in found.members
    ]


Cell = tuple[str, bool | None]
"""What was measured next to the paper's entry, and whether they agree."""


def flat(one: JobResult) -> JobResult:
    """Name what was reached by none."""
    race = [run | {"reached": run["reached"] or {"round": None}} for run in one.result["race"]]
    return one._replace(result=dict(one.result) | {"race": race})


def judge_cells(name: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Cell]:
    """Return every cell of a row."""
    own, paper = found[name], PAPER[name]
    full = f" + {own['full_gradients']:g} n_i" if own["full_gradients"] else ""
    gradients = f"{own['gradients_per_step']:g} K n_i/M{full}"
    complexity = (own["full_gradients"] > 0) == paper.full and not (paper.single and own["steps"] > 1)
    return {
        "local complexity": (f"{gradients}; paper {paper.complexity}", complexity),
        "model divergence": _divergence(own, paper, found),
        "speed": _speed(own),
        "communication": _communication(name, found),
        "defends against DLG": _defence(own, paper),
        "partial participation": (
            f"{yes(own['partial'])}; paper {yes(paper.partial)}", bool(own["partial"]) == paper.partial,
        ),
    }  # fmt: skip


def yes(value: bool) -> str:
    """Return the word for it."""
    return "yes" if value else "no"


def mark(right: bool | None) -> str:
    """Return the sign of agreement."""
    return "·" if right is None else "=" if right else "≠"


def _divergence(own: Mapping[str, Any], paper: PaperRow, found: Mapping[str, Mapping[str, Any]]) -> Cell:
    distance, beside = own["drift"], found["fedavg"]["drift"]
    if math.isnan(distance):
        return f"diverged; paper {paper.divergence}", None
    level = "yes" if distance <= DRIFT_TOLERANCE else "no"
    if level == "no" and beside and distance < 0.9 * beside:
        level = "limited"
    return f"{level} ({distance:.2g}); paper {paper.divergence}", level == paper.divergence


def _speed(own: Mapping[str, Any]) -> Cell:
    series = own["distances"]
    if not series:
        return "not measured; paper O(1/R)", None
    if series[-1] > NEAR:
        return f"stops at {series[-1]:.2g}; paper O(1/R)", None
    last = next(place for place, value in enumerate(series) if value <= NEAR)
    rate = (max(series[last], 1e-300) / series[0]) ** (1 / (last * ROUNDS // EVALUATIONS))
    return f"linear, ×{rate:.4f} a round or faster; paper O(1/R)", True


def _communication(name: str, found: Mapping[str, Mapping[str, Any]]) -> Cell:
    own, paper = found[name], PAPER[name]
    size = f"{own['up']:g} up, {own['down']:g} down"
    speeds = {other: fastest(result["race"]) for other, result in found.items()}
    if not any(speeds.values()):
        return f"{size}; paper {paper.communication}", None
    mine = speeds[name]
    others = [other for other in found if PAPER[other].communication != paper.communication]
    right = sum(
        (_rounds(mine) < _rounds(speeds[other]))
        == (LEVELS.index(paper.communication) > LEVELS.index(PAPER[other].communication))
        for other in others
    )
    total = own["up"] + own["down"]
    text = f"{mine[0]:.0f} rounds (η = {mine[1]:g}), {mine[0] * total:.0f} models" if mine else "never"
    orders = f"{right} of {len(others)} orders as in the paper ({paper.communication})"
    return f"{size}; {text}; {orders}", right == len(others)


def _rounds(speed: Sequence[float] | None) -> float:
    return speed[0] if speed else math.inf


def _defence(own: Mapping[str, Any], paper: PaperRow) -> Cell:
    """Say which gradients follow from the messages; what an attack makes of them is judged with Figure 6."""
    leaks = {
        steps: "∇f_i(x) sent" if message < SAME else "∇f_i(x) known" if known < SAME
        else "a local gradient known" if local < SAME else "no gradient known"
        for steps, (message, known, local) in own["sent"].items()
    }  # fmt: skip
    shown = ", ".join(f"{where} at T = {steps}" for steps, where in leaks.items())
    return f"{shown}; paper {yes(paper.defends)}", None


def fastest(race: Mapping[float, Sequence[float]]) -> tuple[float, float] | None:
    """Return the least mean rounds to the target of any step size that all seeds reach it with, and that step size."""
    best = min(((mean(rounds, math.inf), eta) for eta, rounds in race.items()), default=(math.inf, 0.0))
    return best if math.isfinite(best[0]) else None


def results(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return what was measured of every algorithm."""
    single = ("steps", "gradients_per_step", "full_gradients", "up", "down", "partial", "drift")
    found = {
        name: {metric: cells(frame, metric, ("method",))[name][0] for metric in single}
        for name in cells(frame, "up", ("method",))
    }
    distances = cells(frame, "distances", ("method",))
    race = cells(frame, "race reached round", ("method", "step_size")) if "step_size" in frame else {}
    message, known, local = (cells(frame, name, ("method", "t")) for name in ("message", "known", "local"))
    for name, own in found.items():
        own["distances"] = distances.get(name, [])
        own["race"] = {eta: rounds for (other, eta), rounds in race.items() if other == name}
        own["sent"] = {
            t: (value, known[name, t][0], local[name, t][0]) for (other, t), [value] in message.items() if other == name
        }
    return found


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare the measured cells with the paper's."""
    found = results(frame)
    table = {name: judge_cells(name, found) for name in found}
    columns = ["algorithm", "paper's local update", *next(iter(table.values()))]
    rows = [
        [PAPER[name].name, PAPER[name].update, *(f"{text} [{mark(right)}]" for text, right in row.values())]
        for name, row in table.items()
    ]
    note = (
        "[=] agrees with the paper, [≠] does not, [·] cannot be compared. Complexity: gradients of one sample that a "
        f"client evaluates in a round, K = {STEPS}. Divergence: distance from the optimum with all clients, full "
        f"gradients and {STEPS} local steps. Speed: with sampled clients and blocks at a constant step. Communication: "
        "models that a client sends and receives in a round; rounds to 90 % on digits sorted by label at the best of "
        "six step sizes, and the models that each of the S places exchanged by then. DLG, not judged here: whether "
        "∇f_i(x) is in what a client sends, or follows from all that the server has, or a gradient at a local model "
        "does."
    )
    agree = [right for row in table.values() for _, right in row.values() if right is not None]
    summary = f"{sum(agree)} of the {len(agree)} cells of Table 1 that can be measured agree with the paper."
    claims = [claim for name, row in table.items() for claim in judge([CLAIM], _numbers(name, row))]
    return Findings(summary, claims, [ResultTable("table1", "Table 1, measured", columns, rows, note)])


def _numbers(name: str, row: Mapping[str, Cell]) -> dict[str, Any]:
    paper = PAPER[name]._asdict()
    words = {key: yes(value) for key, value in paper.items() if isinstance(value, bool)}
    wrong = [f"{cell}: {text}" for cell, (text, right) in row.items() if right is False]
    right = sum(right is True for _, right in row.values())
    counts = {"right": right, "wrong": len(wrong), "of": right + len(wrong)}
    parts = {"wrong_cells": f"; not so {'; '.join(wrong)}" if wrong else ""}
    bounds = {"DRIFT_TOLERANCE": DRIFT_TOLERANCE, "STEPS": STEPS, "TARGET": TARGET}
    return paper | words | counts | parts | bounds | {"communication": paper["communication"].lower()}


STUDY = Study(
    "table1", "Table 1: the algorithms compared", jobs, conclude, place=0,
    keys={"sent": "t", "step_size": "step_size"}, reshape=flat,
)  # fmt: skip
