"""FedSpeed: FedDyn's rest where ρ = 0, and with ρ > 0 the rest that the algebra gives."""

from __future__ import annotations

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, mean, quadratics

PROBLEM = quadratics()
ETA, STRENGTH, K = 0.1 / PROBLEM.curvature, PROBLEM.curvature, 5


def speed(rho: float, **settings: float) -> A.fedspeed:
    return A.fedspeed(ETA, rho=rho, strength=STRENGTH, **settings)


def test_without_a_perturbation_it_is_exact_with_sampled_clients():
    hand = Hand(speed(0.0), PROBLEM, K)
    assert PROBLEM.away(hand.sampled_rounds(1500, 2)) < 1e-12
    np.testing.assert_allclose(mean(hand.clients), hand.server.h, atol=1e-12)


def test_the_mean_over_the_clients_of_the_round_would_not_be():
    """The paper's server, from memory: x = mean_S(w + h_i)."""
    rng, x, h = np.random.default_rng(0), np.zeros(3), np.zeros((4, 3))
    for _ in range(1500):
        ids = rng.choice(4, 2, replace=False)
        sent = []
        for i in ids:
            w, gradient = x, PROBLEM.gradient(i)
            for _ in range(K):
                w = w - ETA * (gradient(w) + STRENGTH * (w - x + h[i]))
            h[i] += w - x
            sent.append(w + h[i])
        x = np.mean(sent, axis=0)
    assert PROBLEM.away(x) > 0.1


def test_it_is_feddyn_where_nothing_is_perturbed():
    """FedDyn's h_i is −λ times FedSpeed's."""
    one, other = Hand(speed(0.0), PROBLEM, K), Hand(A.feddyn(ETA, alpha=STRENGTH), PROBLEM, K)
    for ids in ([0, 1], [2, 3], [1, 3]):
        np.testing.assert_allclose(one.round(ids), other.round(ids), rtol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_with_a_perturbation_it_rests_where_the_perturbed_gradients_cancel(alpha):
    """Σ [A_i(x − b_i) + αρ A_i u_i] = 0 with u_i = ∇f_i/‖∇f_i‖."""
    rho = 0.1
    x = Hand(speed(rho, alpha=alpha), PROBLEM, K).rounds(1500)
    gradients = [PROBLEM.gradient(i)(x) for i in range(4)]
    perturbed = [g + alpha * rho * a @ (g / np.linalg.norm(g)) for a, g in zip(PROBLEM.hessians, gradients)]
    np.testing.assert_allclose(np.sum(perturbed, axis=0), 0, atol=1e-10)
    assert PROBLEM.away(x) > 1e-3


def test_a_step_takes_two_gradients():
    Hand(speed(0.1), PROBLEM, K).round()
    before = PROBLEM.asked
    Hand(speed(0.1), PROBLEM, K).round()
    assert PROBLEM.asked - before == 2 * K * 4


def test_a_gradient_of_zero_has_no_direction():
    x = PROBLEM.optima[0]
    hand = Hand(speed(0.1), PROBLEM, K, x)
    np.testing.assert_allclose(hand.round([0]), x, atol=1e-12)
