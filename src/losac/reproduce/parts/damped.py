"""The damped correction: which δ, γ and step size LoSAC's exact scaling wants, and a rule for them.

All step sizes are in natural units: the *length* of a method's rounds is γηTL, how far a round moves along the mean
gradient in units of 1/L, with L the curvature of the objective at the start (``losac.tuning.curvature``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.data import FederatedData, quadratic
from losac.history import sweep
from losac.models import linear
from losac.reproduce.parts.damped_findings import conclude
from losac.reproduce.problems import SHAPES, algorithm, paper_task, run
from losac.reproduce.study import Job, Options, Study
from losac.task import regression
from losac.tuning import curvature, suggest

LENGTHS = (1.5, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0)
SHORT = (0.1, 0.2, 0.4, 0.8, *LENGTHS)
"""The lengths for quadratics."""
DELTAS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.4, 1.0)
ROUNDS, RULE_ROUNDS = 300, 500
TARGET = {"mnist": 0.95, "har": 0.9, "esr": 0.85}


class Setting(NamedTuple):
    """N, S, M, T and γ on a data set."""

    data: str
    partition: str = "sorted"
    clients: int = 100
    sampled: int = 10
    blocks: int = 5
    steps: int = 5
    gamma: float = 1.0


def settings(data: str) -> list[Setting]:
    """Return the base setting and what differs from it in one thing."""
    base = Setting(data)
    if data == "mnist":
        return [base, base._replace(steps=2), base._replace(partition="iid")]
    return [
        base,
        *(base._replace(steps=steps) for steps in (1, 2, 20)),
        *(base._replace(blocks=blocks) for blocks in (1, 10)),
        *(base._replace(sampled=sampled) for sampled in (30, 100)),
        *(base._replace(gamma=gamma) for gamma in (0.5, 3.0)),
        base._replace(clients=300),
        base._replace(partition="iid"),
    ]


QUADRATICS = tuple(
    {**one, "scales": scales}
    for scales in (1.0, 30.0)
    for one in (
        {"clients": 20, "sampled": 4, "blocks": 4, "steps": 4},
        {"clients": 20, "sampled": 4, "blocks": 4, "steps": 1},
        {"clients": 20, "sampled": 20, "blocks": 4, "steps": 4},
        {"clients": 50, "sampled": 5, "blocks": 2, "steps": 4},
    )
)
"""``scales`` is the greatest feature's over the least one's: 1 makes the mean Hessian well conditioned, 30 ill."""


def jobs(options: Options) -> list[Job]:
    """Return the maps over (length, δ), the quadratics, and runs of the rule; the short form has one or two of each."""
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    chosen = [Setting("har")] if options.quick else [one for data in SHAPES for one in settings(data)]
    few = options.quick
    maps = [
        Job(
            measure_map,
            {**one._asdict(), "lengths": list(LENGTHS[3:5] if few else LENGTHS),
             "deltas": list(DELTAS[3:6:2] if few else DELTAS), "rounds": 20 if few else ROUNDS},
            f"damped: map {_named(one)}",
            {"mnist": 12.0, "har": 4.0, "esr": 3.0}[one.data] * max(one.steps, 2) / 5 * one.sampled / 10,
        )
        for one in chosen
    ]  # fmt: skip
    flat = [
        Job(
            measure_quadratic,
            {**one, "lengths": list(SHORT), "deltas": list(DELTAS), "rounds": 40 if few else 400},
            f"damped: quadratic {one}",
        )
        for one in QUADRATICS[: 1 if few else None]
    ]
    ruled = [one for one in chosen if one.gamma == 1] + ([] if few else [Setting("mnist", clients=1000, sampled=50)])
    rules = [
        Job(
            measure_rule,
            {**one._asdict(), "scaling": scaling, "rounds": 20 if few else RULE_ROUNDS, "seeds": seeds},
            f"damped: {scaling} {_named(one)}",
            {"mnist": 6.0, "har": 2.0, "esr": 1.5}[one.data] * one.steps / 5 * one.sampled / 10,
        )
        for one in ruled
        for scaling in ("rule", "paper")
    ]
    return maps + flat + rules


def _named(one: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in one._asdict().items())


def measure_map(
    data: str, partition: str, clients: int, sampled: int, blocks: int, steps: int, gamma: float,
    lengths: Sequence[float], deltas: Sequence[float], rounds: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the final loss and accuracy for every length and δ; None where a run diverged."""
    task = paper_task(data, clients, partition)
    bend = curvature(task, clients_per_round=sampled)
    method = algorithm(
        "losac", step_size=1.0, local_steps=steps, blocks=blocks, scaling="exact", correction=1.0, server_step=gamma
    )
    grid = {"step_size": [length / (gamma * steps * bend) for length in lengths], "correction": list(deltas)}
    records = run(task, method, [0], rounds=rounds, sampled=sampled, grid=grid, eval_every=rounds, loss_every=rounds)
    shape = len(lengths), len(deltas)
    table = {name: np.array([one["final"][name] for one in records], object).reshape(shape) for name in METRICS}
    return {"curvature": bend, **{name: values.tolist() for name, values in table.items()}}


METRICS = ("loss", "accuracy")


def measure_quadratic(
    clients: int, sampled: int, blocks: int, steps: int, scales: float, lengths: Sequence[float],
    deltas: Sequence[float], rounds: int,
) -> dict[str, Any]:  # fmt: skip
    """Return the measured contraction of the distance to the optimum per round, for every length and δ."""
    plain = quadratic(clients=clients, samples=4 * blocks, dim=6, seed=0)
    made = [(x * np.geomspace(1, 1 / scales, 6), y) for x, y in map(plain.client, range(clients))]
    task = regression(linear(6), FederatedData.from_clients(made, name="quadratic"))
    hessian = sum(x.T @ x for x, _ in made) / clients
    values = np.linalg.eigvalsh(hessian)
    method = algorithm("losac", step_size=1.0, local_steps=steps, blocks=blocks, scaling="exact", correction=1.0)
    grid = {"step_size": [length / (steps * values[-1]) for length in lengths], "correction": list(deltas)}
    runs = sweep(
        task, method, grid, rounds=rounds, clients_per_round=sampled, eval_every=rounds // 2, loss_every=rounds,
        dtype="float64",
    ).members  # fmt: skip
    optimum = np.linalg.solve(hessian, sum(x.T @ y for x, y in made) / clients)
    begun = float(np.linalg.norm(optimum))
    rates = [
        None if one.diverged is not None else (float(np.linalg.norm(one.params - optimum)) / begun) ** (1 / rounds)
        for one in runs
    ]
    shape = len(lengths), len(deltas)
    return {"eigenvalues": values.tolist(), "rate": np.array(rates, object).reshape(shape).tolist()}


def measure_rule(
    data: str, partition: str, clients: int, sampled: int, blocks: int, steps: int, gamma: float, scaling: str,
    rounds: int, seeds: list[int],
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the runs of LoSAC by its rule, or in the paper's scaling at the paper's step size."""
    task = paper_task(data, clients, partition)
    if scaling == "rule":
        method: Algorithm = suggest(task, local_steps=steps, blocks=blocks, clients_per_round=sampled)
    else:
        eta = SHAPES[data].step_size if clients == SHAPES[data].clients else 1e-4
        method = algorithm("losac", step_size=eta, local_steps=steps, blocks=blocks)
    rounds = min(rounds, 100) if clients >= 1000 else rounds
    return run(
        task, method, seeds, rounds=rounds, sampled=sampled, loss_every=rounds, targets=[TARGET[data]],
    )  # fmt: skip


STUDY = Study("damped", "Damped: a rule for LoSAC's correction and step", jobs, conclude, tuple(SHAPES))
