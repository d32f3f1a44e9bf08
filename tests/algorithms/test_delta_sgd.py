"""Δ-SGD: what its steps are."""

from __future__ import annotations

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, Quadratics, quadratics

pytestmark = pytest.mark.usefixtures("double")
PROBLEM = quadratics()
ETA, K, N = 0.1 / PROBLEM.curvature, 5, 4
ROUND = Quadratics(np.array([c * np.eye(3) for c in (2.0, 5.0)]), PROBLEM.optima[:2])
"""Clients whose curvature is the same in all directions, 2 and 5."""


def test_delta_sgd_finds_the_curvature_with_its_second_step():
    """From η₀ ≥ 1/L on, the second step is 1/L: it arrives at the client's optimum, and stays there."""
    for steps in (2, 3):
        hand = Hand(A.delta_sgd(1.0), ROUND, steps)
        np.testing.assert_allclose(hand.round([1]), ROUND.optima[1], rtol=1e-12)


def test_delta_sgd_with_one_step_is_fedavg():
    one, other = (Hand(make(ETA), PROBLEM, 1) for make in (A.delta_sgd, A.fedavg))
    np.testing.assert_allclose(one.rounds(3), other.rounds(3), rtol=1e-13)


def test_delta_sgd_begins_with_its_first_step_whatever_rounding_says():
    """Both gradients of the first step are at one point; a compiled program may round them differently."""
    algorithm, x, noise = A.delta_sgd(ETA), np.ones(3), iter([0.0, 1e-16])
    local, client = algorithm.begin(None, x, ())
    moved = algorithm.step(None, x, client, local, lambda w: 2.0 * w + next(noise))
    np.testing.assert_allclose(moved.w, x - ETA * 2.0 * x, rtol=1e-12)


def test_delta_sgd_grows_from_a_small_step_as_printed():
    """θ₀ = 1, so that η₁ = √(1 + δ)·η₀, η₂ = √(1 + δ√(1 + δ))·η₁."""
    eta, delta = 1e-3, 0.1
    w, steps = np.zeros(3), [eta]
    steps.append((1 + delta) ** 0.5 * eta)
    steps.append((1 + delta * (1 + delta) ** 0.5) ** 0.5 * steps[-1])
    for rate in steps:
        w = w - rate * PROBLEM.gradient(0)(w)
    np.testing.assert_allclose(Hand(A.delta_sgd(eta), PROBLEM, 3).round([0]), w, rtol=1e-12)


def test_delta_sgd_computes_two_gradients_a_step():
    before = PROBLEM.asked
    Hand(A.delta_sgd(ETA), PROBLEM, K).round()
    assert PROBLEM.asked - before == 2 * K * N


def test_delta_sgd_refuses_other_optimisers():
    with pytest.raises(ValueError, match="cannot take clip_norm"):
        A.delta_sgd(0.1, clip_norm=1.0)
