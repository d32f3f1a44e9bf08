"""The laws of runs, checked on the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np

from losac import _random
from losac import data as datasets
from losac.algorithms.contract import Algorithm
from losac.history import DivergedError
from losac.models import Dense
from losac.simulation import Layout, simulate
from losac.task import Task, classification
from losac.testing.contract import same_structure
from losac.testing.problems import Quadratic, quadratic
from losac.testing.regimes import BIASED, CLIENTS, EXACT, FULL, RANDOM_BLOCKS, REFUSED, Promise, Regime
from losac.testing.report import Finding
from losac.trees import Tree

ROUNDS = 4000
NEAR, FAR = 1e-9, 1e-3


@cache
def problem() -> Quadratic:
    """One quadratic for all: variants of a method that differ only in numbers are one program."""
    return quadratic(clients=CLIENTS)


@cache
def nested() -> Task:
    """One linear model for all, for the same reason; its parameters are a nested tree."""
    data = datasets.load("digits", clients=CLIENTS, partition="sorted").subset(range(CLIENTS))
    return replace(classification(Dense((64, 10)), data, reduction="mean"), test=None)


def fixed_point(algorithm: Algorithm, regime: Regime, promise: Promise | None) -> list[Finding]:
    """Law 1: a method reaches the optimum where its theory says so, and stays away where it must.

    Without a promise it must end nearer to the optimum than it began.
    """
    law = "fixed point"
    run: dict[str, Any] = {"rounds": ROUNDS, "clients_per_round": regime.sampled, "eval_every": ROUNDS}
    run |= {"dtype": "float64", "layout": Layout(1, 1)}  # the smallest program; law 4 says that the others do the same
    if promise == REFUSED:
        try:
            simulate(problem().task, algorithm, **run)
            words = "it runs where partial = False should have it refused"
        except ValueError as error:
            words = "" if "every client in every round" in str(error) else f"it is refused for another reason: {error}"
        return [Finding(law, regime.name, not words, words or "refused, as it must be")]
    start = problem().distance(np.zeros_like(problem().optimum))
    try:
        reached = problem().distance(simulate(problem().task, algorithm, **run).params)
    except DivergedError as error:
        words = f"it left the finite numbers at round {error.history.diverged}"
        return [Finding(law, regime.name, False, words, np.inf, NEAR if promise == EXACT else start)]
    if promise == EXACT:
        words = "it ends this far from the optimum, which it is said to reach"
        return [Finding(law, regime.name, reached <= NEAR, words, reached, NEAR)]
    if promise == BIASED:
        words = "it ends this far from the optimum, and must stay at least so far away"
        return [Finding(law, regime.name, reached >= FAR, words, reached, FAR)]
    words = "it ends this far from the optimum, and began so far from it"
    return [Finding(law, regime.name, reached < start, words, reached, start)]


def engine_independence(algorithm: Algorithm, regime: Regime) -> list[Finding]:
    """Law 4: one seed, one trajectory: on any layout to rounding; in pieces and after a resume bit for bit.

    The other layout has pairs of clients side by side, on two devices where there are two: what does not vectorise, or
    cannot be cut over devices, shows on it.
    """
    law = "engine independence"
    task = problem().task
    run: dict[str, Any] = {"clients_per_round": regime.sampled, "seed": 3, "dtype": "float64"}
    whole = simulate(task, algorithm, rounds=7, **run, layout=Layout(1, 1), keep_state=True)
    layout = Layout(2, min(2, jax.local_device_count()))
    other = simulate(task, algorithm, rounds=7, eval_every=3, **run, layout=layout)
    apart = np.abs(np.asarray(other.params) - whole.params)
    allowed = 1e-13 + 1e-12 * np.abs(whole.params)
    worst = int(np.argmax(apart - allowed))
    where = f"{layout.width} clients side by side on each of {layout.devices} devices"
    words = "so far is the model from that of one client at a time"
    kept = bool(np.all(apart <= allowed))
    on_layout = Finding(law, where, kept, words, float(apart[worst]), float(allowed[worst]))
    half = simulate(task, algorithm, rounds=4, **run, layout=Layout(1, 1), keep_state=True)
    rest = simulate(task, algorithm, rounds=3, **run, layout=Layout(1, 1), state=half.state, keep_state=True)
    same = rest.rounds.tolist() == [4, 5, 6, 7] and _equal(whole.state, rest.state)
    words = "bit for bit the run in one piece" if same else "gone on from its state after 4 rounds it ends elsewhere"
    return [on_layout, Finding(law, "in two pieces", same, words)]


def seed_decides(algorithm: Algorithm, sampled: int) -> list[Finding]:
    """A nested model keeps its structure, shapes and dtype; the seed decides the run."""
    task = nested()
    first, again, other = (
        simulate(task, algorithm, rounds=2, clients_per_round=sampled, seed=seed, layout=Layout(1, 1)).params
        for seed in (0, 0, 1)
    )
    start = task.init_params(_random.weights_key(0))
    kept = same_structure(first, start) and all(
        a.shape == x0.shape and a.dtype == np.float32 for a, x0 in zip(*map(jax.tree.leaves, (first, start)))
    )
    words = "the model is what it was in kind" if kept else "the model changes its structure, shapes or dtype"
    same = _equal(first, again)
    moved = all(a.size < 30 or not np.array_equal(a, c) for a, c in zip(*map(jax.tree.leaves, (first, other))))
    return [
        Finding("structure and dtype stay", "a linear model", kept, words),
        Finding("the seed decides", "one seed twice", same, "the same model" if same else "another model"),
        Finding("the seed decides", "two seeds", moved, "other models" if moved else "the same weights"),
    ]


def widest(partial: bool) -> Regime:
    """Return the most random regime that a method may run in."""
    return RANDOM_BLOCKS if partial else Regime("full participation, random blocks", FULL.sampled, RANDOM_BLOCKS.blocks)


def _equal(a: Tree, b: Tree) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b))
    return same_structure(a, b) and all(bool(jax.numpy.array_equal(p, q)) for p, q in pairs)
