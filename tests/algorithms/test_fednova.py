"""FedNova: right with unequal numbers of local steps, where FedAvg is not."""

from __future__ import annotations

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, quadratics, rest

PROBLEM = quadratics(clients=8)
UNEQUAL = range(1, 9)


def test_with_unequal_steps_it_settles_at_the_optimum_as_the_step_shrinks_and_fedavg_does_not():
    """The bias halves with η; FedAvg tends to the minimum of Σ K_i f_i."""
    steps = [0.1 / PROBLEM.curvature / 2**k for k in range(4)]
    found = [PROBLEM.away(rest(A.fednova(eta), PROBLEM, UNEQUAL)) for eta in steps]
    ratios = np.divide(found[:-1], found[1:])
    assert found[0] < 0.1
    np.testing.assert_allclose(ratios, 2, atol=0.15)
    counts = np.array(UNEQUAL)[:, None, None]
    pull = np.einsum("nij,nj->i", counts * PROBLEM.hessians, PROBLEM.optima)
    wrong = np.linalg.solve((counts * PROBLEM.hessians).sum(0), pull)
    assert PROBLEM.away(wrong) > 0.1
    drifted = [np.abs(rest(A.fedavg(eta), PROBLEM, UNEQUAL) - wrong).max() for eta in steps]
    assert drifted[-1] < 0.02 < 0.1 < PROBLEM.away(rest(A.fedavg(steps[-1]), PROBLEM, UNEQUAL))


def test_with_single_steps_it_is_exact():
    assert PROBLEM.away(rest(A.fednova(0.1 / PROBLEM.curvature), PROBLEM, 1)) < 1e-12


def test_with_equal_steps_it_is_fedavg():
    for eta in (0.05, 0.1):
        one, other = (Hand(make(eta, server_step=0.7), PROBLEM, 4).rounds(3) for make in (A.fednova, A.fedavg))
        np.testing.assert_allclose(one, other, rtol=1e-13)


@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.9, 0.0), (0.0, 2.0), (0.5, 2.0)])
def test_its_lengths_are_the_papers(rho, mu):
    """A = K, (K − ρ(1 − ρ^K)/(1 − ρ))/(1 − ρ), (1 − (1 − ημ)^K)/(ημ), or the recursion with both."""
    eta, K = 0.05, 6
    seen = []

    class Watched(A.fednova):
        def end(self, here, x, client, local):
            seen.append(float(local.length))
            return super().end(here, x, client, local)

    Hand(Watched(eta, momentum=rho, mu=mu), PROBLEM, K).round([0])
    v, length = 0.0, 0.0
    for _ in range(K):
        v = rho * v + 1
        length = (1 - eta * mu) * length + v
    expected = {
        (0.0, 0.0): K,
        (0.9, 0.0): (K - rho * (1 - rho**K) / (1 - rho)) / (1 - rho),
        (0.0, 2.0): (1 - (1 - eta * mu) ** K) / (eta * mu or 1),
    }.get((rho, mu), length)
    assert seen == [pytest.approx(expected, rel=1e-13)]


@pytest.mark.parametrize(("rho", "mu"), [(0.5, 0.0), (0.0, 2.0), (0.5, 2.0)])
def test_momentum_and_proximal_term_keep_the_bias_proportional_to_the_step(rho, mu):
    steps = [0.02 / PROBLEM.curvature / 2**k for k in range(3)]
    found = [PROBLEM.away(rest(A.fednova(eta, momentum=rho, mu=mu), PROBLEM, UNEQUAL)) for eta in steps]
    np.testing.assert_allclose(np.divide(found[:-1], found[1:]), 2, atol=0.15)


def test_other_optimisers_are_refused():
    with pytest.raises(ValueError, match="cannot take clip_norm: A_i adds up"):
        A.fednova(0.1, clip_norm=1.0)
