"""Table 1: what the paper says of six algorithms, cell by cell, beside what is measured of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac import models
from losac.attacks.transcript import watch
from losac.data import load, quadratic
from losac.history import sweep
from losac.report.profile import drift, example, profile
from losac.reproduce.parts.table1_cells import EVALUATIONS, PAPER, ROUNDS, STEPS, Cell, judge, mark, yes
from losac.reproduce.problems import algorithm, reached
from losac.reproduce.study import Claim, Findings, Job, Measured, Options, Study, Table, Verdict
from losac.task import classification, regression

CLIENTS, SAMPLED, BLOCKS = 10, 3, 4
TARGET, STEP_SIZES = 0.9, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm; the short form has three of them and no race to a target."""
    names = ("fedavg", "mime_svrg", "losac") if options.quick else tuple(PAPER)
    seeds = [] if options.quick else list(options.seeds)
    return [Job(measure, {"name": name, "seeds": seeds}, f"Table 1: {PAPER[name].name}") for name in names]


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
    of it: the parts, the sums of all that it sent before, and what it received.
    """
    data = quadratic(clients=CLIENTS, samples=40, dim=16, seed=1)
    x, y = data.client(0)
    curvature = max(float(np.linalg.norm(x, 2)) ** 2 for x, _ in map(data.client, range(CLIENTS)))
    method = example(name, curvature, 1).replace(local_steps=steps)
    (transcript,) = watch(regression(models.linear(16), data), method, rounds=4, dtype="float64")
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
    return {
        "message": min(_residual([part], gradient) for part in parts),
        "known": _residual([*parts, *sums, *received], gradient),
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


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Set the measured cells beside the paper's."""
    found = {one.arguments["name"]: one.result for one in measured}
    cells = {name: judge(name, found) for name in found}
    columns = ["algorithm", "paper's local update", *next(iter(cells.values()))]
    rows = [
        [PAPER[name].name, PAPER[name].update, *(f"{text} [{mark(right)}]" for text, right in row.values())]
        for name, row in cells.items()
    ]
    note = (
        "[=] agrees with the paper, [≠] does not, [·] cannot be compared. Complexity: gradients of one sample that a "
        f"client evaluates in a round, K = {STEPS}. Divergence: distance from the optimum with all clients, full "
        f"gradients and {STEPS} local steps. Speed: with sampled clients and blocks at a constant step. Communication: "
        "models that a client sends and receives in a round; rounds to 90 % on digits sorted by label at the best of "
        "six step sizes, and the models that each of the S places exchanged by then. DLG: whether a multiple of "
        "∇f_i(x) is in what a client sends, in what the server knows (with all that was sent before), or hidden."
    )
    claims = [_claim(name, row) for name, row in cells.items()]
    agreeing = sum(right is True for row in cells.values() for _, right in row.values())
    compared = sum(right is not None for row in cells.values() for _, right in row.values())
    summary = f"{agreeing} of the {compared} cells of Table 1 that can be measured agree with the paper."
    return Findings(summary, claims, [Table("table1", "Table 1, measured", columns, rows, note)])


def _claim(name: str, row: Mapping[str, Cell]) -> Claim:
    paper = PAPER[name]
    right = [cell for cell, (_, value) in row.items() if value is True]
    wrong = [f"{cell}: {text}" for cell, (text, value) in row.items() if value is False]
    verdict: Verdict = "holds" if not wrong else "holds in part" if right else "fails"
    evidence = f"{len(right)} of {len(right) + len(wrong)} measured cells agree"
    evidence += f"; not so {'; '.join(wrong)}." if wrong else "."
    text = (
        f"{paper.name}: {paper.complexity}, handles divergence: {paper.divergence}, communication efficiency "
        f"{paper.communication.lower()}, defends against DLG: {yes(paper.defends)}, partial participation: "
        f"{yes(paper.partial)}."
    )
    return Claim(text, "Table 1", verdict, evidence)


STUDY = Study("table1", "Table 1: the algorithms compared", jobs, conclude)
