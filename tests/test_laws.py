"""The laws that every public algorithm is tested against, in float64, on quadratics with a known optimum."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pytest

import losac
from catalogue import (
    BIASED,
    CATALOGUE,
    CLIENTS,
    EXACT,
    ONE_EACH,
    RANDOM_BLOCKS,
    REFUSED,
    REGIMES,
    SAMPLED,
    STEPS,
    Entry,
    Regime,
)
from losac.simulation import Layout
from problems import quadratic

PROBLEM = quadratic(clients=CLIENTS)
ROUNDS = 4000


def ids(entry: object) -> str:
    if isinstance(entry, Entry):
        return str(entry.make(1.0, RANDOM_BLOCKS)).replace(" ", "")
    return entry.name.replace(" ", "-") if isinstance(entry, Regime) else str(entry)


def distance(params: np.ndarray) -> float:
    return float(np.abs(params - PROBLEM.optimum).max())


def test_every_public_algorithm_is_in_the_catalogue():
    assert {entry.name for entry in CATALOGUE} == set(losac.algorithms.names())


@pytest.mark.parametrize("regime", REGIMES, ids=ids)
@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_fixed_point(entry: Entry, regime: Regime):
    """Law 1: a method reaches the optimum where its theory says so, and stays away where it must."""
    algorithm = entry.make(PROBLEM.curvature, regime)
    run = {"rounds": ROUNDS, "clients_per_round": regime.sampled, "eval_every": ROUNDS, "dtype": "float64"}
    run["layout"] = Layout(1, 1)  # the smallest program; law 4 says that the others do the same
    if entry.expected(regime) == REFUSED:
        with pytest.raises(ValueError, match="every client in every round"):
            losac.simulate(PROBLEM.task, algorithm, **run)
        return
    reached = distance(losac.simulate(PROBLEM.task, algorithm, **run).params)
    if entry.expected(regime) == EXACT:
        assert reached <= 1e-9
    else:
        assert entry.expected(regime) == BIASED
        assert reached >= 1e-3


@pytest.mark.parametrize("entry", ONE_EACH, ids=ids)
def test_engine_independence(entry: Entry):
    """Law 4: one seed, one trajectory: on any layout to rounding; in pieces and after a resume bit for bit.

    A layout places what clients keep: methods that keep something are laid out side by side, over devices, or both;
    the others at once side by side and over devices.
    """
    regime = RANDOM_BLOCKS
    if entry.expected(regime) == REFUSED:
        regime = Regime("full participation, random blocks", CLIENTS, regime.blocks)
    algorithm = entry.make(PROBLEM.curvature, regime)
    run = {"clients_per_round": regime.sampled, "seed": 3, "dtype": "float64"}
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=7, **run, layout=Layout(1, 1), keep_state=True)
    over_devices = Layout(1 + CATALOGUE.index(entry) % 2, 2)  # one at a time for every other method, else in pairs
    stateful = jax.tree.leaves(whole.state.store) != []
    for layout in (Layout(regime.sampled, 1), over_devices) if stateful else (Layout(2, 2),):
        other = losac.simulate(PROBLEM.task, algorithm, rounds=7, eval_every=3, **run, layout=layout)
        np.testing.assert_allclose(other.params, whole.params, rtol=1e-12, atol=1e-13)
    half = losac.simulate(PROBLEM.task, algorithm, rounds=4, **run, layout=Layout(1, 1), keep_state=True)
    rest = losac.simulate(
        PROBLEM.task, algorithm, rounds=3, **run, layout=Layout(1, 1), state=half.state, keep_state=True
    )
    assert rest.rounds.tolist() == [4, 5, 6, 7]
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(rest.state)):
        assert jax.numpy.array_equal(a, b)


@cache
def nested() -> losac.Task:
    """One task for all, so that variants of a method that differ in numbers alone are one program."""
    data = losac.data.load("digits", clients=CLIENTS, partition="sorted").subset(range(CLIENTS))
    return losac.classification(losac.models.Dense((64, 3, 10)), data, reduction="mean")


@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_structure_and_dtype_stay(entry: Entry):
    """A nested model keeps its structure, shapes and dtype; the seed decides the run."""
    task = nested()
    sampled = CLIENTS if entry.sampling == REFUSED else SAMPLED
    algorithm = entry.make(10.0, RANDOM_BLOCKS)
    first, again, other = (
        losac.simulate(task, algorithm, rounds=2, clients_per_round=sampled, eval_every=2, seed=seed)
        for seed in (0, 0, 1)
    )
    start = task.init_params(jax.random.key(0))
    assert jax.tree.structure(first.params) == jax.tree.structure(start)
    for a, b, c, x0 in zip(*map(jax.tree.leaves, (first.params, again.params, other.params, start))):
        assert a.shape == x0.shape
        assert a.dtype == np.float32
        assert np.array_equal(a, b)
        assert a.size < 30 or not np.array_equal(a, c)


def test_fedavg_settles_where_the_algebra_says():
    """x = mean_i[(I − ηA_i)^K x + (I − (I − ηA_i)^K) x_i*]: FedAvg's bias, and FedSaga's at M = 1."""
    eta = 0.1 / PROBLEM.curvature
    shrink = [np.linalg.matrix_power(np.eye(4) - eta * a, STEPS) for a in PROBLEM.hessians]
    pull = np.mean([(np.eye(4) - p) @ x for p, x in zip(shrink, PROBLEM.optima)], axis=0)
    settled = np.linalg.solve(np.eye(4) - np.mean(shrink, axis=0), pull)
    for method in (losac.algorithms.fedavg(eta, STEPS), losac.algorithms.fedsaga(eta, STEPS, 1)):
        run = losac.simulate(PROBLEM.task, method, rounds=ROUNDS, eval_every=ROUNDS, dtype="float64")
        np.testing.assert_allclose(run.params, settled, atol=1e-11)
