"""The laws that every public algorithm is tested against, in float64, on quadratics with a known optimum."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from catalogue import CATALOGUE, CLIENTS, ONE_EACH, RANDOM_BLOCKS, REFUSED, REGIMES, SAMPLED, STEPS, Entry, Regime
from losac.testing import Finding, contract, laws

PROBLEM = laws.problem()


def ids(entry: object) -> str:
    if isinstance(entry, Entry):
        return str(entry.make(1.0, RANDOM_BLOCKS)).replace(" ", "")
    return entry.name.replace(" ", "-") if isinstance(entry, Regime) else str(entry)


def assert_kept(findings: list[Finding]) -> None:
    assert findings
    assert not [str(finding) for finding in findings if not finding.passed]


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
    width = 1 + CATALOGUE.index(entry) % 2  # one at a time for every other method, else in pairs
    assert_kept(laws.engine_independence(entry.make(PROBLEM.curvature, regime), regime, width))


@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_structure_and_dtype_stay(entry: Entry):
    """A nested model keeps its structure, shapes and dtype; the seed decides the run."""
    sampled = CLIENTS if entry.sampling == REFUSED else SAMPLED
    assert_kept(laws.seed_decides(entry.make(10.0, RANDOM_BLOCKS), sampled))


@pytest.mark.parametrize("law", contract.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("entry", CATALOGUE, ids=ids)
def test_the_contract_is_kept(entry: Entry, law):
    """Settings, structure, purity, sums: by calling the algorithm's functions, nothing compiled."""
    assert_kept(law(entry.make(PROBLEM.curvature, RANDOM_BLOCKS)))


def test_fedavg_settles_where_the_algebra_says():
    """x = mean_i[(I − ηA_i)^K x + (I − (I − ηA_i)^K) x_i*]: FedAvg's bias, and FedSaga's at M = 1."""
    eta = 0.1 / PROBLEM.curvature
    shrink = [np.linalg.matrix_power(np.eye(4) - eta * a, STEPS) for a in PROBLEM.hessians]
    pull = np.mean([(np.eye(4) - p) @ x for p, x in zip(shrink, PROBLEM.optima)], axis=0)
    settled = np.linalg.solve(np.eye(4) - np.mean(shrink, axis=0), pull)
    for method in (losac.algorithms.fedavg(eta, STEPS), losac.algorithms.fedsaga(eta, STEPS, 1)):
        run = losac.simulate(PROBLEM.task, method, rounds=laws.ROUNDS, eval_every=laws.ROUNDS, dtype="float64")
        np.testing.assert_allclose(run.params, settled, atol=1e-11)
