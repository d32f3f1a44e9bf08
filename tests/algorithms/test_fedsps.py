"""FedSPS: what its steps are, and where they lead."""

from __future__ import annotations

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, Quadratics, quadratics
from losac.algorithms.contract import LossNeededError
from losac.federation.numpy import numpy_worker
from losac.federation.work import Assignment, Message

pytestmark = pytest.mark.usefixtures("double")
PROBLEM = quadratics()
K, N = 5, 4
ROUND = Quadratics(np.array([c * np.eye(3) for c in (2.0, 5.0)]), PROBLEM.optima[:2])
"""Clients whose curvature is the same in all directions, 2 and 5."""


def test_fedsps_below_its_bound_is_fedavg():
    """γ_b ≤ 1/(2cL) with ℓ = f_i* = 0: (F − ℓ)/(c‖g‖²) is never smaller."""
    eta, c = 1 / (2 * 0.5 * PROBLEM.curvature), 0.5
    one, other = Hand(A.fedsps(eta, scaling=c), PROBLEM, K), Hand(A.fedavg(eta), PROBLEM, K)
    np.testing.assert_allclose(one.rounds(3), other.rounds(3), rtol=1e-12)


def test_fedsps_solves_round_quadratics_in_one_step_and_ends_at_the_mean_of_the_optima():
    """With c = ½ its step is 1/a_i: all clients arrive at their own optima, whose mean is not the optimum."""
    x = Hand(A.fedsps(100.0), ROUND, 1).round()
    np.testing.assert_allclose(x, ROUND.optima.mean(0), rtol=1e-12)
    assert ROUND.away(x) > 0.1


def test_fedsps_is_exact_where_the_clients_share_an_optimum():
    shared = Quadratics(PROBLEM.hessians, np.tile(PROBLEM.optima[0], (N, 1)))
    assert shared.away(Hand(A.fedsps(1.0), shared, K).sampled_rounds(100, 2)) < 1e-12


def test_fedsps_needs_the_loss():
    worker = numpy_worker(A.fedsps(0.1), lambda w, x, y: x.T @ (x @ w - y) / len(x), np.eye(3), np.ones(3))
    task = Assignment(0, 0, 0, 0, 0, 1, 1, 1.0, None)
    with pytest.raises(LossNeededError, match="fedsps needs the value of the loss"):
        worker.work(task, Message(np.zeros(3)), worker.start(np.zeros(3)))


def test_fedsps_refuses_other_optimisers():
    with pytest.raises(ValueError, match="cannot take clip_norm"):
        A.fedsps(0.1, clip_norm=1.0)
