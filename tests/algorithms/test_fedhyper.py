"""FedHyper-G: its equations and its bounds."""

from __future__ import annotations

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, Quadratics, quadratics, rest

pytestmark = pytest.mark.usefixtures("double")
PROBLEM = quadratics()
ETA, K = 0.1 / PROBLEM.curvature, 5


def test_fedhyper_follows_its_equations_and_rests_where_fedavg_does():
    hand, x, last, rate = Hand(A.fedhyper(ETA), PROBLEM, K), np.zeros(3), np.zeros(3), 1.0
    for _ in range(6):
        mean = Hand(A.fedavg(ETA), PROBLEM, K, x).round() - x
        rate = float(np.clip(rate + mean @ last, 1 / 3, 3))
        x, last = x + rate * mean, mean
        np.testing.assert_allclose(hand.round(), x, rtol=1e-11)
    assert rate > 1.01
    np.testing.assert_allclose(hand.rounds(150), rest(A.fedavg(ETA), PROBLEM, K), rtol=1e-9)


def test_fedhyper_keeps_its_bounds():
    far = Quadratics(PROBLEM.hessians, PROBLEM.optima + 50)
    hand = Hand(A.fedhyper(ETA, limit=2.0), far, K)
    hand.rounds(2)
    assert float(hand.server.rate) == 2
    with pytest.raises(ValueError, match=r"limit=0\.5 must be at least 1"):
        A.fedhyper(ETA, limit=0.5)
