"""FedLESAM: where its gradients are taken."""

from __future__ import annotations

import numpy as np

import losac.algorithms as A
from by_hand import Hand, quadratics, rest

PROBLEM = quadratics()
ETA, RHO, K = 0.1 / PROBLEM.curvature, 0.1, 3


def test_without_a_perturbation_it_is_fedavg():
    one, other = (Hand(a, PROBLEM, K) for a in (A.fedlesam(ETA, rho=0.0), A.fedavg(ETA)))
    for ids in ([0, 1], [2, 3], [1, 3], [0, 2]):
        np.testing.assert_allclose(one.round(ids), other.round(ids), rtol=1e-13)


def test_it_follows_its_equations():
    """x_i^old is the model of the client's own last round, and a client's first round is FedAvg's."""
    hand, x, old = Hand(A.fedlesam(ETA, rho=RHO), PROBLEM, K), np.zeros(3), {}
    for ids in ([0, 1], [2, 3], [1, 3], [0, 3], [1, 2]):
        models = []
        for i in ids:
            back = old.get(i, x) - x
            e = RHO * back / np.linalg.norm(back) if back.any() else 0 * x
            w, gradient = x, PROBLEM.gradient(i)
            for _ in range(K):
                w = w - ETA * gradient(w + e)
            models.append(w)
            old[i] = x
        x = np.mean(models, axis=0)
        np.testing.assert_allclose(hand.round(ids), x, rtol=1e-12)


def test_it_swings_around_the_rest_of_fedavg():
    """With all clients e has the length ρ for ever; the model stays within about ρ of FedAvg's rest."""
    hand, settled = Hand(A.fedlesam(ETA, rho=RHO), PROBLEM, K), rest(A.fedavg(ETA), PROBLEM, K)
    hand.rounds(300)
    far = [np.linalg.norm(hand.round() - settled) for _ in range(20)]
    assert 1e-4 < min(far) <= max(far) < RHO


def test_a_step_takes_one_gradient():
    before = PROBLEM.asked
    Hand(A.fedlesam(ETA, rho=RHO), PROBLEM, K).round()
    assert PROBLEM.asked - before == K * 4
