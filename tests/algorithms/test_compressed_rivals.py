"""EF21-PP, DIANA, PP-MARINA, DASHA-PP, LoCoDL: what keeps them exact although what they send is compressed."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import losac
import losac.algorithms as A
from by_hand import Hand, quadratics
from losac.algorithms.compression import Qsgd, TopK
from losac.algorithms.contract import Federation
from losac.algorithms.packing import packed_bytes
from losac.testing import laws

PROBLEM = quadratics()
ETA = 0.3 / PROBLEM.curvature
N = 4


def descent(x: np.ndarray, eta: float, steps: int) -> np.ndarray:
    for _ in range(steps):
        x = x - eta * np.mean([PROBLEM.gradient(i)(x) for i in range(N)], axis=0)
    return x


# ---------------------------------------------------------------- uncompressed, by hand

GRADIENT_DESCENTS = {
    "ef21_pp": A.ef21_pp(ETA),
    "diana": A.diana(ETA),
    "dasha_pp": A.dasha_pp(ETA, omega=0.0),
}


@pytest.mark.parametrize("name", GRADIENT_DESCENTS)
def test_with_all_clients_and_nothing_compressed_it_is_gradient_descent(name: str):
    """Each starts at zero where the papers start at the gradient, which the first round makes good."""
    x = Hand(GRADIENT_DESCENTS[name], PROBLEM).rounds(5)
    np.testing.assert_allclose(x, descent(np.zeros(3), ETA, 5), rtol=1e-12)


def test_pp_marina_with_nothing_compressed_is_gradient_descent():
    """A round with the full gradient is two steps: one along it, one along its change."""
    hand = Hand(A.pp_marina(ETA), PROBLEM)
    assert not hand.round(happens=False).any(), "it waits at the start for the first full gradient"
    hand.round()
    for _ in range(4):
        hand.round(happens=False)
    np.testing.assert_allclose(hand.x, descent(np.zeros(3), ETA, 6), rtol=1e-12)


def test_dasha_pp_with_all_clients_is_dasha():
    """m_i = Q(h_i⁺ − h_i − a(G_i − h_i)) with h_i⁺ = ∇f_i(x), for a Q that shrinks."""
    omega, share = 2.0, 0.6
    a = 1 / (2 * omega + 1)

    class Shrunk(A.dasha_pp):
        """With Q(v) = 0.6 v in place of a transform."""

        def end(self, here: Any, message: Any, own: Any, change: Any) -> Any:
            upload, kept = super().end(here, message, own, change)
            sent = share * upload
            return sent, self.record(here, upload, sent, kept)[0]

    hand = Hand(Shrunk(ETA, omega=omega), PROBLEM)
    x, g, h, total = np.zeros(3), np.zeros((N, 3)), np.zeros((N, 3)), np.zeros(3)
    for _ in range(6):
        now = np.array([PROBLEM.gradient(i)(x) for i in range(N)])
        m = share * (now - h - a * (g - h))
        g, h, total = g + m, now, total + m.mean(0)
        x = x - ETA * total
        np.testing.assert_allclose(hand.round(), x, rtol=1e-12)


def test_dasha_pp_follows_its_equations_with_sampled_clients():
    omega, q = 0.7, 0.5
    a, b = q / (2 * omega + 1), q / (2 - q)
    hand = Hand(A.dasha_pp(ETA, omega=omega), PROBLEM)
    x = before = total = np.zeros(3)
    g, h = np.zeros((N, 3)), np.zeros((N, 3))
    for ids in ([0, 1], [1, 2], [0, 3], [2, 3], [0, 1]):
        sent = np.zeros((N, 3))
        for i in ids:
            now, then = PROBLEM.gradient(i)(x), PROBLEM.gradient(i)(before)
            k = now - then - b * (h[i] - then)
            sent[i] = k / q - a / q * (g[i] - h[i])
            h[i], g[i] = h[i] + k / q, g[i] + sent[i]
        total = total + sent.sum(0) / N
        before, x = x, x - ETA * total
        np.testing.assert_allclose(hand.round(ids), x, rtol=1e-12)


def test_locodl_follows_its_equations_and_ends_at_the_optimum():
    """With a random number of steps each round; mean u_i + v = 0 after every one."""
    p, mu, omega = 0.5, 1.0, 0.5
    rho = 1 / (1 + omega / N)
    c = p * rho / (ETA * (1 + 2 * omega))
    hand = Hand(A.locodl(ETA, probability=p, mu=mu, omega=omega), PROBLEM)
    w, u, y, v = np.zeros((N, 3)), np.zeros((N, 3)), np.zeros(3), np.zeros(3)
    rng = np.random.default_rng(0)
    for r in range(400):
        hand.steps = int(rng.geometric(p))
        if r < 8:
            for _ in range(hand.steps):
                w = np.array([w[i] - ETA * (PROBLEM.gradient(i)(w[i]) - mu / 2 * w[i] - u[i]) for i in range(N)])
                y = y - ETA * (mu / 2 * y - v)
            d = w - y
            bar = d.sum(0) / (2 * N)
            w, u = (1 - rho) * w + rho * (y + bar), u + c * (bar - d)
            y, v = y + rho * bar, v + c * bar
            np.testing.assert_allclose(u.mean(0) + v, 0, atol=1e-12)
            np.testing.assert_allclose(hand.round(), y, rtol=1e-6)  # the server computes in single precision here
        else:
            hand.round()
    assert PROBLEM.away(hand.x) < 1e-5


# ---------------------------------------------------------------- compressed, in the simulator

TASK = laws.problem()
RUN = {"rounds": 40, "clients_per_round": 3, "eval_every": 40, "dtype": "float64", "keep_state": True}
STEP = 0.1 / TASK.curvature
MEANS = {
    "ef21_pp": (A.ef21_pp(STEP / 2, ratio=2), lambda s: s.store.rows.state, lambda s: s.server.gradient),
    "diana": (A.diana(STEP, levels=4), lambda s: s.store.rows.state, lambda s: s.server.h),
    "dasha_pp": (
        A.dasha_pp(STEP / 2, omega=0.5, levels=4),
        lambda s: s.store.rows.state.gradient,
        lambda s: s.server.gradient,
    ),
}


@pytest.mark.parametrize("name", MEANS)
def test_the_servers_estimate_is_the_mean_of_the_clients(name: str):
    algorithm, rows, due = MEANS[name]
    state = losac.simulate(TASK.task, algorithm, **RUN).state
    assert np.abs(due(state)).max() > 1e-6
    np.testing.assert_allclose(np.asarray(rows(state)).mean(0), due(state), atol=1e-12)


def test_locodl_keeps_its_sum_where_uploads_are_compressed():
    run = losac.simulate(TASK.task, A.locodl(3 * STEP, probability=0.3, levels=2), **RUN | {"clients_per_round": 10})
    server, own = run.state.server, run.state.store.rows.state
    u = own.u + np.asarray(own.rate)[:, None] * (np.asarray(server.mean) - own.sent)
    assert np.abs(u).max() > 1e-2
    np.testing.assert_allclose(np.asarray(u).mean(0) + server.v, 0, atol=1e-11)
    rho = 1 / (1 + 1.0 / 10)
    np.testing.assert_allclose(own.y + rho * np.asarray(server.mean), np.broadcast_to(server.y, own.y.shape), rtol=1e-9)


def test_uploads_are_small():
    data = losac.data.load("logistic", 4, samples=8, dim=39)
    task = losac.classification(losac.models.softmax_regression(39, data.num_classes), data, test=None)
    spent = partial(losac.simulate, task, rounds=1, eval_every=1)
    run = spent(A.ef21_pp(1e-3))
    sizes = [np.size(leaf) for leaf in jax.tree.leaves(run.params)]
    kept = [max(1, round(n / 20)) for n in sizes]
    assert run.bytes_up[-1] == 4 * sum(4 * k + packed_bytes(n, k) for n, k in zip(sizes, kept))
    for method in (A.diana(1e-3), A.dasha_pp(1e-3)):
        assert spent(method).bytes_up[-1] == 4 * (sum(sizes) + 4 * len(sizes))


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (partial(A.ef21_pp, uploads=(TopK(0.5),)), "error_feedback=False"),
        (partial(A.diana, uploads=(TopK(0.5),)), "error_feedback=False"),
        (partial(A.dasha_pp, uploads=(TopK(0.5),)), "error_feedback=False"),
        (partial(A.locodl, uploads=(TopK(0.5),)), "error_feedback=False"),
        (partial(A.pp_marina, uploads=(TopK(0.5),)), "use an unbiased transform"),
        (partial(A.diana, local_steps=2), "local_steps must be 1"),
        (partial(A.ef21_pp, batch_size=2, epochs=2), "local_steps must be 1"),
        (partial(A.locodl, local_steps=2), "random number of local steps"),
    ],
    ids=lambda value: value.func.__name__ if isinstance(value, partial) else "",
)
def test_refusals(algorithm: Any, words: str):
    with pytest.raises(ValueError, match=words):
        algorithm(0.1)


def test_other_transforms_take_the_place_of_the_built_in_one():
    assert [type(t) for t in A.ef21_pp(0.1).transforms()] == [TopK]
    assert [type(t) for t in A.ef21_pp(0.1, uploads=(Qsgd(3),)).transforms()] == [Qsgd]


@pytest.mark.parametrize("make", [A.ef21_pp, A.diana, A.dasha_pp, A.locodl], ids=lambda make: make.__name__)
def test_a_start_that_breaks_the_invariant_is_refused(make: Any):
    algorithm, here = make(0.1), Federation(N, 2, lambda x, step: x)
    start = algorithm.init_client(np.zeros(3))
    rows = jax.tree.map(lambda a: np.zeros((N, *np.shape(a))), start)
    algorithm.check_state(here, algorithm.init(np.zeros(3)), rows, ())
    with pytest.raises(ValueError, match="wrong point"):
        algorithm.check_state(here, algorithm.init(np.zeros(3)), jax.tree.map(lambda a: a + 2, rows), ())


def test_error_feedback_sends_what_fedcm_left_out():
    """With all clients and one gradient each, x minus what is still due is FedCM's x with nothing compressed."""
    run = RUN | {"rounds": 1, "clients_per_round": 10}
    packed, plain = (
        losac.simulate(TASK.task, A.fedcm(STEP, 2, uploads=uploads), **run) for uploads in ((TopK(0.5),), ())
    )
    (due,) = packed.state.store.rows.transforms
    assert np.abs(due).max() > 0.01
    np.testing.assert_allclose(packed.params + np.asarray(due).mean(0), plain.params, rtol=1e-12)


def test_error_feedback_makes_compressed_descent_run_but_not_exact():
    """The classical error feedback settles at a distance that shrinks with the step, where EF21 is exact."""
    runs = [
        losac.simulate(TASK.task, A.dsgd(step, uploads=(TopK(0.5),)), rounds=4000, eval_every=4000, dtype="float64")
        for step in (STEP, STEP / 2)
    ]
    far, near = (TASK.distance(run.params) for run in runs)
    assert 1e-4 < near < far
    assert far / near == pytest.approx(2, rel=0.4)
