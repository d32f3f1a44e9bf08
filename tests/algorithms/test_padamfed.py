"""PAdaMFed and PAdaMFed-VR: their equations, and how near they come."""

from __future__ import annotations

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, quadratics

pytestmark = pytest.mark.usefixtures("double")
PROBLEM = quadratics()
K, N = 5, 4

PADAMFEDS = {"padamfed": A.padamfed, "padamfed_vr": A.padamfed_vr}


def constants(name: str, sampled: int, horizon: int) -> tuple[float, float, float]:
    """η, β, γ."""
    if name == "padamfed":
        root = (sampled * K / horizon) ** 0.5
        return 1 / (K * horizon**0.5), min(1, root), (sampled * K) ** 0.25 / horizon**0.75
    share = (sampled * K) ** (1 / 3) / horizon ** (2 / 3)
    return 1 / (K * horizon), min(1, share), share


@pytest.mark.parametrize("name", PADAMFEDS)
def test_padamfed_follows_its_equations(name: str):
    """With c = mean c_i after every round."""
    horizon, ids = 40, ([0, 1], [2, 3], [1, 3], [0, 2], [1, 2])
    eta, beta, gamma = constants(name, 2, horizon)
    hand = Hand(PADAMFEDS[name](1.0, K, horizon=horizon), PROBLEM, K)
    x = before = m = c = np.zeros(3)
    own = np.zeros((N, 3))
    for who in ids:
        moves, change = [], np.zeros(3)
        for i in who:
            w, gradients = x, []
            for _ in range(K):
                g = PROBLEM.gradient(i)(w)
                gradients.append(g)
                v = beta * (g - own[i] + c) + (1 - beta) * m
                if name == "padamfed_vr":
                    v = v + (1 - beta) * (g - PROBLEM.gradient(i)(before))
                w = w - eta * v / np.linalg.norm(v)
            moves.append((w - x) / (eta * K))
            change = change + np.mean(gradients, axis=0) - own[i]
            own[i] = np.mean(gradients, axis=0)
        before, x = x, x + gamma * np.mean(moves, axis=0)
        m = beta * (change / 2 + c) + (1 - beta) * m
        c = c + change / N
        np.testing.assert_allclose(hand.round(who), x, rtol=1e-11)
        np.testing.assert_allclose(hand.server.c, np.mean(hand.clients, axis=0), atol=1e-12)


@pytest.mark.parametrize("name", PADAMFEDS)
def test_padamfed_settles_within_a_few_steps_of_the_optimum_and_never_at_it(name: str):
    """No round moves the model further than γ, which is all that depends on the number of rounds."""
    far = {}
    for horizon in (100, 900):
        *_, gamma = constants(name, N, horizon)
        hand = Hand(PADAMFEDS[name](1.0, K, horizon=horizon), PROBLEM, K)
        hand.rounds(horizon)
        found = []
        for _ in range(10):
            x = hand.x
            assert np.linalg.norm(hand.round() - x) <= gamma * (1 + 1e-12)
            found.append(np.linalg.norm(hand.x - PROBLEM.optimum))
        assert 0 < max(found) < 6 * gamma
        far[horizon] = max(found)
    assert far[900] < far[100] / 3


def test_padamfed_needs_equal_steps_that_are_known():
    with pytest.raises(ValueError, match="set local_steps instead of epochs"):
        A.padamfed(1.0, batch_size=4)


def test_padamfed_refuses_other_optimisers():
    with pytest.raises(ValueError, match="cannot take clip_norm"):
        A.padamfed(1.0, clip_norm=1.0)
