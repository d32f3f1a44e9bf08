"""LoSAC-lean against its equations: one message up, from which the server has both sums."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import losac
from losac.algorithms import losac as two_messages
from losac.algorithms import losac_lean as method
from problems import blocks_of, drawn_blocks, drawn_clients, quadratic

N, S, M, T = 5, 2, 3, 4
RAGGED = quadratic(clients=N, samples=[9, 12, 7, 10, 8], dim=3)
ETA = 0.02 / RAGGED.curvature
RUN = {"clients_per_round": S, "dtype": "float64"}


def averaged_clients(algorithm, rounds, seed=0):
    """LoSAC in the exact scaling, its φ kept during the local steps, with both messages; yields x, φ and y."""
    data, m, eta = RAGGED.data, algorithm.blocks, algorithm.step_size
    delta = np.sqrt(S / N) / 5 if algorithm.correction is None else algorithm.correction
    cut = [[blocks_of(a, m) for a in data.client(i)] for i in range(N)]
    x, phi, y = np.zeros(3), np.zeros(3), np.zeros((N, m, 3))
    for r in range(rounds):
        dx, dphi = np.zeros_like(x), np.zeros_like(x)
        for i in drawn_clients(seed, r, N, S):
            xi = x.copy()
            for j in drawn_blocks(seed, r, int(i), algorithm.local_steps, m):
                a, b = cut[i][0][j], cut[i][1][j]
                g = m * a.T @ (a @ xi - b)
                xi = xi - eta * (phi + delta * (g - y[i, j]))
                dphi, y[i, j] = dphi + (g - y[i, j]) / (N * m), g
            dx = dx + xi - x
        x, phi = x + algorithm.server_step * dx / S, phi + dphi
        yield x, phi, y


@pytest.mark.parametrize("steps", [1, 2, T], ids=lambda t: f"T={t}")
@pytest.mark.parametrize("settings", [{}, {"correction": 1.0, "server_step": 1.5}, {"correction": 0.0}], ids=str)
def test_the_server_rebuilds_the_mean_of_the_clients_steps(settings, steps):
    """Round by round to 1e-12, on clients and blocks of unequal size; T < M and T > M store the table differently."""
    algorithm, state = method(ETA, steps, M, **settings), None
    for x, phi, y in averaged_clients(algorithm, rounds=8):
        state = losac.simulate(RAGGED.task, algorithm, rounds=1, **RUN, state=state, keep_state=True).state
        np.testing.assert_allclose(state.server.x, x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.server.phi, phi, rtol=0, atol=1e-12 * max(1, np.abs(phi).max()))
        np.testing.assert_allclose(state.store.table, y, rtol=0, atol=1e-12 * max(1, np.abs(y).max()))


def test_phi_is_the_mean_of_the_tables():
    """Law 3, with whatever correction the server uses."""
    algorithm, state = method(ETA, T, M, server_correction=0.7), None
    for _ in range(6):
        state = losac.simulate(RAGGED.task, algorithm, rounds=1, **RUN, state=state, keep_state=True).state
        due = np.asarray(state.store.table).mean((0, 1))
        np.testing.assert_allclose(state.server.phi, due, rtol=1e-12, atol=1e-12)


def test_with_one_full_step_it_is_losac():
    """Nothing is refreshed before a single step, so that nothing is left out."""
    ours = losac.simulate(RAGGED.task, method(ETA, 1, 1), rounds=8, **RUN)
    theirs = losac.simulate(RAGGED.task, two_messages(ETA, 1, 1, scaling="exact"), rounds=8, **RUN)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-12)


def test_it_sends_one_model_and_receives_two():
    run = losac.simulate(RAGGED.task, method(ETA, T, M), rounds=3, clients_per_round=S, keep_state=True)
    model = 3 * 4
    assert run.bytes_up.tolist() == [0, S * model, 2 * S * model, 3 * S * model]
    assert run.bytes_down.tolist() == [0, 2 * S * model, 4 * S * model, 6 * S * model]
    assert run.state.store.table.shape == (N, M, 3)
    assert jax.tree.leaves(run.state.store.rows) == []


@pytest.mark.parametrize("settings", [{}, {"correction": 1.0}, {"server_correction": 0.5, "server_step": 0.7}], ids=str)
@pytest.mark.parametrize("regularizer", ["l1", "group_l2"])
def test_it_reaches_the_composite_optimum(settings, regularizer):
    """With sampled clients and blocks: 0 ∈ ∇f(x) + ∂Ψ(x), so that a proximal gradient step leaves x where it is."""
    hessian = sum(RAGGED.hessians) / N
    strength = 0.5 * float(np.abs(hessian @ RAGGED.optimum).max())
    psi = getattr(losac.prox, regularizer)(strength)
    task = losac.regression(losac.models.linear(3), RAGGED.data, regularizer=psi)
    run = losac.simulate(task, method(ETA, T, M, **settings), rounds=6000, eval_every=6000, **RUN)
    step = 1 / np.linalg.norm(hessian, 2)
    gradient = hessian @ (run.params - RAGGED.optimum)
    again = np.asarray(psi.prox(run.params - step * gradient, step))
    assert np.abs(again - run.params).max() < 1e-9
    assert np.abs(run.params - RAGGED.optimum).max() > 1e-3


def test_the_proximal_step_of_the_server_leaves_exact_zeros():
    strength = 0.5 * float(np.abs(sum(RAGGED.hessians) @ RAGGED.optimum).max()) / N
    task = losac.regression(losac.models.linear(3), RAGGED.data, regularizer=losac.prox.l1(strength))
    run = losac.simulate(task, method(ETA, T, M), rounds=500, eval_every=500, **RUN)
    assert (run.params == 0).any()


@pytest.mark.parametrize("steps", [[1, 2, 3, 4, 5], [4, 1, 9, 4, 2]], ids=str)
def test_clients_may_take_different_numbers_of_steps(steps):
    """The server moves along φ by its own T, whatever the clients do: the optimum is the same."""
    run = losac.simulate(RAGGED.task, method(ETA, T, M), rounds=6000, eval_every=6000, local_steps=steps, **RUN)
    np.testing.assert_allclose(run.params, RAGGED.optimum, atol=1e-9)


@pytest.mark.parametrize("sampled", [1, 4])
@pytest.mark.parametrize("correction", [None, 1.0], ids=str)
def test_small_federations_arrive_as_fast_as_with_two_messages(sampled, correction):
    """With four clients the refresh that is left out is no longer small beside δ; its place is taken by δ."""
    few = quadratic(clients=4, samples=8, dim=3)
    given = {"correction": correction}
    eta, options = 0.1 / few.curvature, {"clients_per_round": sampled, "dtype": "float64"}
    makes = method(eta, T, M, **given), two_messages(eta, T, M, scaling="exact", **given)
    ours, theirs = (
        few.distance(losac.simulate(few.task, make, rounds=600, eval_every=600, **options).params) for make in makes
    )
    assert ours < 2 * theirs + 1e-12


def test_schedules_missing_clients_and_weights():
    """A shrinking step and rounds in which fewer answer: still the optimum of the weighted objective."""
    weights = np.arange(1.0, 6.0)
    p = weights / weights.sum()
    hessian = sum(w * h for w, h in zip(p, RAGGED.hessians))
    due = np.linalg.solve(hessian, sum(w * h @ o for w, h, o in zip(p, RAGGED.hessians, RAGGED.optima)))
    task = losac.regression(losac.models.linear(3), RAGGED.data, weights=weights.tolist())
    algorithm = method(lambda r: ETA / (1 + 0.5 * (r > 2000)), T, M)
    lists = [[0, 1], [2], [3, 4], [1], [4, 2], [0], [3]]
    run = losac.simulate(task, algorithm, rounds=9000, eval_every=9000, sampling=lists, **RUN)
    np.testing.assert_allclose(run.params, due, atol=1e-9)


def test_a_start_that_contradicts_itself_is_refused():
    state = losac.simulate(RAGGED.task, method(ETA, T, M), rounds=3, **RUN, keep_state=True).state
    wrong = state._replace(server=state.server._replace(phi=2 * np.asarray(state.server.phi)))
    with pytest.raises(ValueError, match="wrong point"):
        losac.simulate(RAGGED.task, method(ETA, T, M), rounds=1, **RUN, state=wrong)


def test_what_would_change_the_steps_is_refused():
    with pytest.raises(ValueError, match="losac_lean cannot take clip_norm: the server rebuilds"):
        method(ETA, T, M, clip_norm=1.0)
