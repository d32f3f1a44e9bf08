"""Δ-SGD, FedSPS, PAdaMFed, FedHyper-G, DoG, DoWG and Prodigy: what their steps are, and where they lead."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import losac.algorithms as A
from by_hand import Hand, Quadratics, quadratics, rest
from losac._compat import enable_x64
from losac.algorithms import distances
from losac.algorithms.contract import LossNeededError
from losac.federation.numpy import numpy_worker
from losac.federation.work import Assignment, Message

PROBLEM = quadratics()
ETA, K, N = 0.1 / PROBLEM.curvature, 5, 4
SINGLE = Quadratics(PROBLEM.hessians[:1], PROBLEM.optima[:1])
ROUND = Quadratics(np.array([c * np.eye(3) for c in (2.0, 5.0)]), PROBLEM.optima[:2])
"""Clients whose curvature is the same in all directions, 2 and 5."""


@pytest.fixture(autouse=True)
def double() -> Any:
    """Some servers compute in JAX, here in double precision."""
    with enable_x64(True):
        yield


# ---------------------------------------------------------------- Δ-SGD


def test_delta_sgd_finds_the_curvature_with_its_second_step():
    """From η₀ ≥ 1/L on, the second step is 1/L: it arrives at the client's optimum, and stays there."""
    for steps in (2, 3):
        hand = Hand(A.delta_sgd(1.0), ROUND, steps)
        np.testing.assert_allclose(hand.round([1]), ROUND.optima[1], rtol=1e-12)


def test_delta_sgd_with_one_step_is_fedavg():
    one, other = (Hand(make(ETA), PROBLEM, 1) for make in (A.delta_sgd, A.fedavg))
    np.testing.assert_allclose(one.rounds(3), other.rounds(3), rtol=1e-13)


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


# ---------------------------------------------------------------- FedSPS


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


# ---------------------------------------------------------------- PAdaMFed

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


# ---------------------------------------------------------------- FedHyper-G


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


# ---------------------------------------------------------------- DoG, DoWG, Prodigy

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


@pytest.mark.parametrize(
    "make", [partial(A.local_dog, 1.0), partial(A.delta_sgd, 0.1), partial(A.fedsps, 0.1), partial(A.padamfed, 1.0)]
)
def test_other_optimisers_are_refused(make: Any):
    with pytest.raises(ValueError, match="cannot take clip_norm"):
        make(clip_norm=1.0)
