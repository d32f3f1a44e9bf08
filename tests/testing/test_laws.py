"""The laws that every public algorithm is tested against, in float64, on quadratics with a known optimum."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from catalogue import CATALOGUE, ONE_EACH, RANDOM_BLOCKS, REFUSED, REGIMES, STEPS, Entry, Regime, ids
from losac.simulation import Layout
from losac.testing import Finding, contract, laws

PROBLEM = laws.problem()


def assert_kept(findings: list[Finding]) -> None:
    assert findings
    assert not [str(finding) for finding in findings if not finding.passed]


@pytest.mark.quick
def test_every_public_algorithm_is_in_the_catalogue():
    assert {entry.name for entry in CATALOGUE} == set(losac.algorithms.names())


@pytest.mark.parametrize("regime", REGIMES, ids=ids)
@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_fixed_point(entry: Entry, regime: Regime):
    """Law 1: a method reaches the optimum where its theory says so, and stays away where it must."""
    assert_kept(laws.fixed_point(entry.make(PROBLEM.curvature, regime), regime, entry.expected(regime)))


@pytest.mark.parametrize("entry", ONE_EACH, ids=ids)
def test_engine_independence(entry: Entry):
    """Law 4: one seed, one trajectory: on any layout to rounding; in pieces and after a resume bit for bit."""
    regime = laws.widest(entry.expected(RANDOM_BLOCKS) != REFUSED)
    assert_kept(laws.engine_independence(entry.make(PROBLEM.curvature, regime), regime))


@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_the_seed_decides(entry: Entry):
    """One seed twice gives one model, two seeds give two: by the program of the first law, which is compiled already.

    That a nested model keeps its structure, shapes and dtype is part of the contract below, and of the walk.
    """
    regime = laws.widest(entry.expected(RANDOM_BLOCKS) != REFUSED)
    algorithm, sampled = entry.make(PROBLEM.curvature, regime), regime.sampled
    run = {"rounds": 2, "clients_per_round": sampled, "dtype": "float64", "layout": Layout(1, 1)}
    first, again, other = (losac.simulate(PROBLEM.task, algorithm, seed=seed, **run).params for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.quick
@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_the_contract_is_kept(entry: Entry):
    """Settings, structure, purity, sums: by calling the algorithm's functions, nothing compiled."""
    algorithm = entry.make(PROBLEM.curvature, RANDOM_BLOCKS)
    for law in contract.LAWS:
        assert_kept(law(algorithm))


def test_fedavg_settles_where_the_algebra_says():
    """x = mean_i[(I − ηA_i)^K x + (I − (I − ηA_i)^K) x_i*]: FedAvg's bias, and FedSaga's at M = 1."""
    eta = 0.1 / PROBLEM.curvature
    shrink = [np.linalg.matrix_power(np.eye(4) - eta * a, STEPS) for a in PROBLEM.hessians]
    pull = np.mean([(np.eye(4) - p) @ x for p, x in zip(shrink, PROBLEM.optima)], axis=0)
    settled = np.linalg.solve(np.eye(4) - np.mean(shrink, axis=0), pull)
    for method in (losac.algorithms.fedavg(eta, STEPS), losac.algorithms.fedsaga(eta, STEPS, 1)):
        run = losac.simulate(PROBLEM.task, method, rounds=laws.ROUNDS, eval_every=laws.ROUNDS, dtype="float64")
        np.testing.assert_allclose(run.params, settled, atol=1e-11)
