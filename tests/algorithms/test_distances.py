"""DoG, DoWG and Prodigy, by themselves, at the clients and at the server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, Quadratics, quadratics, rest
from losac.algorithms import distances

pytestmark = pytest.mark.usefixtures("double")
PROBLEM = quadratics()
ETA, K = 0.1 / PROBLEM.curvature, 5
SINGLE = Quadratics(PROBLEM.hessians[:1], PROBLEM.optima[:1])

RULES = {"dog": distances.Dog, "dowg": distances.Dowg, "prodigy": distances.Prodigy}


def walked(rule: Any, first: float, steps: int, start: Any = None, times: float = 1.0) -> list[np.ndarray]:
    """The iterates of a rule on the single client, whose loss is multiplied."""
    w = np.full(3, 2.0) if start is None else start
    state, found = rule.start(w, first), [w]
    for _ in range(steps):
        w, state = rule.step(state, w, times * SINGLE.gradient(0)(w), 1.0)
        found.append(w)
    return found


@pytest.mark.parametrize("name", ["dog", "dowg"])
def test_the_rule_reaches_the_optimum_of_one_client(name: str):
    assert SINGLE.away(walked(RULES[name], 1e-4, 1000)[-1]) < 1e-9


def test_prodigy_comes_near_the_optimum_of_one_client_but_need_not_stay():
    assert min(map(SINGLE.away, walked(distances.Prodigy, 1e-6, 1000))) < 1e-3


def test_dogs_first_step_has_the_first_length_and_the_scale_of_the_loss_does_not_matter():
    start, first, second, *_ = walked(distances.Dog, 1e-4, 20)
    assert np.linalg.norm(first - start) == pytest.approx(1e-4 * (1 + np.linalg.norm(start)), rel=1e-6)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(
        walked(distances.Dog, 1e-4, 20, times=1e3)[-1], walked(distances.Dog, 1e-4, 20)[-1], rtol=1e-6
    )


def test_the_rules_follow_their_equations():
    for name, first in (("dog", 0.01), ("dowg", 0.01), ("prodigy", 0.01)):
        w0 = w = np.full(3, 2.0)
        reach, total, r, s, m, v, d = first * (1 + np.linalg.norm(w)), 0.0, 0.0, 0 * w, 0 * w, 0 * w, first
        square = first
        for found in walked(RULES[name], first, 8)[1:]:
            g = SINGLE.gradient(0)(w)
            if name == "dog":
                reach, total = max(reach, np.linalg.norm(w - w0)), total + g @ g
                w = w - reach / np.sqrt(total + 1e-8) * g
            elif name == "dowg":
                square = max(square, (w - w0) @ (w - w0))
                total = total + square * (g @ g)
                w = w - square / (np.sqrt(total) + 1e-4) * g
            else:
                m, v = 0.9 * m + 0.1 * d * g, 0.999 * v + 0.001 * d * d * g * g
                beta = np.sqrt(0.999)
                r, s = beta * r + d * d / first * (g @ (w0 - w)), beta * s + d * d / first * g
                after = max(d, r / np.abs(s).sum())
                w, d = w - d * m / (np.sqrt(v) + after * 1e-8), after
            np.testing.assert_allclose(found, w, rtol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_a_gradient_of_zero_moves_nothing(name: str):
    start = SINGLE.optima[0]
    np.testing.assert_allclose(walked(RULES[name], 1e-2, 3, start)[-1], start, atol=1e-6)


LOCAL = {"dog": A.local_dog, "dowg": A.local_dowg, "prodigy": A.local_prodigy}
SERVER = {"dog": A.server_dog, "dowg": A.server_dowg, "prodigy": A.server_prodigy}


@pytest.mark.parametrize("name", RULES)
def test_with_one_client_that_remembers_it_is_the_rule(name: str):
    """Rounds do not matter then: 4 rounds of 5 steps are 20 steps."""
    hand = Hand(LOCAL[name](1.0, first=1e-2), SINGLE, K, np.full(3, 2.0))
    np.testing.assert_allclose(hand.rounds(4), walked(RULES[name], 1e-2, 4 * K)[-1], rtol=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_started_again_in_each_round_few_steps_train_nothing(name: str):
    first = 1e-12 if name == "dowg" else 1e-6  # of a distance squared
    hand = Hand(LOCAL[name](1.0, first=first, memory="round"), SINGLE, K, np.full(3, 2.0))
    assert np.abs(hand.rounds(20) - 2).max() < 0.02


@pytest.mark.parametrize("name", ["dog", "dowg"])
def test_at_the_server_it_rests_where_fedavg_does(name: str):
    hand, settled = Hand(SERVER[name](ETA, first=1e-2), PROBLEM, K), rest(A.fedavg(ETA), PROBLEM, K)
    np.testing.assert_allclose(hand.rounds(1500), settled, atol=1e-6)


def test_at_the_server_prodigy_comes_near_the_rest_of_fedavg():
    hand, settled = Hand(A.server_prodigy(ETA, first=1e-2), PROBLEM, K), rest(A.fedavg(ETA), PROBLEM, K)
    assert min(np.abs(hand.round() - settled).max() for _ in range(600)) < 1e-2


def test_local_dog_refuses_other_optimisers():
    with pytest.raises(ValueError, match="cannot take clip_norm"):
        A.local_dog(1.0, clip_norm=1.0)
