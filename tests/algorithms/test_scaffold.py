"""SCAFFOLD's invariant, its two options, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from losac.algorithms import scaffold
from problems import drawn_blocks, drawn_clients, quadratic

PROBLEM = quadratic(clients=5, samples=8, dim=3)
ETA = 0.1 / PROBLEM.curvature


@pytest.mark.parametrize("option", [1, 2])
def test_the_control_variates_sum_up(option):
    """Law 3: Σ c_i = N·c after every round."""
    state = None
    for _ in range(5):
        run = losac.simulate(
            PROBLEM.task, scaffold(ETA, 4, 2, option=option), rounds=1, clients_per_round=2, dtype="float64",
            state=state, keep_state=True,
        )  # fmt: skip
        state = run.state
        np.testing.assert_allclose(np.sum(state.store.rows.state, axis=0), 5 * state.server.c, rtol=1e-12, atol=1e-13)
    assert np.abs(state.server.c).max() > 0.01


def test_the_options_agree_for_one_full_step():
    """Law 2: at K = 1 with full gradients, (x − w)/(Kη) + c_i − c is the gradient at x."""
    runs = [
        losac.simulate(
            PROBLEM.task,
            scaffold(ETA, 1, option=option),
            rounds=6,
            clients_per_round=2,
            dtype="float64",
            keep_state=True,
        )
        for option in (1, 2)
    ]
    np.testing.assert_allclose(runs[0].params, runs[1].params, rtol=1e-12)
    np.testing.assert_allclose(runs[0].state.store.rows.state, runs[1].state.store.rows.state, rtol=1e-9, atol=1e-12)


def test_equals_the_published_equations():
    """Option II with client sampling and blocks, transcribed in NumPy."""
    n, s, k, m, gamma = 5, 2, 3, 2, 1.3
    x, c, ci = np.zeros(3), np.zeros(3), np.zeros((n, 3))
    for r in range(6):
        dx, dc = np.zeros(3), np.zeros(3)
        for i in drawn_clients(0, r, n, s):
            a, b = (np.array_split(v, m) for v in PROBLEM.data.client(i))
            w = x.copy()
            for j in drawn_blocks(0, r, int(i), k, m):
                w = w - ETA * (m * a[j].T @ (a[j] @ w - b[j]) - ci[i] + c)
            renewed = ci[i] - c + (x - w) / (k * ETA)
            dx, dc, ci[i] = dx + w - x, dc + renewed - ci[i], renewed
        x, c = x + gamma * dx / s, c + dc / n
    run = losac.simulate(
        PROBLEM.task, scaffold(ETA, k, m, server_step=gamma), rounds=6, clients_per_round=s, dtype="float64"
    )
    np.testing.assert_allclose(run.params, x, rtol=1e-11)


def test_steps_that_would_break_the_correction_are_refused():
    import optax

    with pytest.raises(ValueError, match="no longer cancel the drift"):
        scaffold(ETA, 4, local_optimizer=optax.adam)
    with pytest.raises(ValueError, match="cannot take clip_norm"):
        scaffold(ETA, 4, clip_norm=1.0)


def test_inconsistent_start_is_refused():
    run = losac.simulate(PROBLEM.task, scaffold(ETA, 2), rounds=2, clients_per_round=2, keep_state=True)
    broken = run.state._replace(server=run.state.server._replace(c=run.state.server.c + 1))
    with pytest.raises(ValueError, match=r"Σ c_i ≠ N·c"):
        losac.simulate(PROBLEM.task, scaffold(ETA, 2), rounds=1, clients_per_round=2, state=broken)


def test_per_client_step_counts_enter_the_control_variates():
    """With K_i of its own for each client, option II divides by K_i; the optimum stays right."""
    run = losac.simulate(
        PROBLEM.task, scaffold(ETA, 1), rounds=4000, eval_every=4000, local_steps=[1, 2, 3, 4, 5], dtype="float64"
    )
    np.testing.assert_allclose(run.params, PROBLEM.optimum, atol=1e-9)
