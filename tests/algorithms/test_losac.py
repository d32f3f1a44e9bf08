"""LoSAC against the printed equations, its invariant, its reductions, its proximal version and its refusals."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import losac
from losac.algorithms import losac as method
from losac.simulation import Layout
from problems import blocks_of, drawn_blocks, drawn_clients, quadratic

N, S, M, T = 5, 2, 3, 4
RAGGED = quadratic(clients=N, samples=[9, 12, 7, 10, 8], dim=3)
ETA = 0.02 / RAGGED.curvature


def transcription(problem, algorithm, rounds, seed=0, phi=None, y=None, sampled=S):
    """The printed equations, a dozen lines of NumPy; yields x, φ and y after every round."""
    data, n, m, eta = problem.data, problem.data.num_clients, algorithm.blocks, algorithm.step_size
    paper, steps = algorithm.scaling == "paper", algorithm.local_steps
    delta = np.sqrt(sampled / n) / 5 if algorithm.correction is None else algorithm.correction
    cut = [[blocks_of(a, m) for a in data.client(i)] for i in range(n)]
    x = np.zeros(data.x.shape[1])
    y = np.zeros((n, m, len(x))) if y is None else y.copy()
    phi = np.zeros_like(x) if phi is None else phi.copy()
    for r in range(rounds):
        dx, dphi = np.zeros_like(x), np.zeros_like(x)
        for i in drawn_clients(seed, r, n, sampled):
            xi, phii = x.copy(), phi.copy()
            for j in drawn_blocks(seed, r, int(i), steps, m):
                a, b = cut[i][0][j], cut[i][1][j]
                g = m * a.T @ (a @ xi - b)
                if paper:
                    xi, phii = xi - eta * (phii / n - y[i, j] + g), phii - y[i, j] + g
                else:
                    xi, phii = xi - eta * (phii + delta * (g - y[i, j])), phii + (g - y[i, j]) / (n * m)
                y[i, j] = g
            dx, dphi = dx + xi - x, dphi + phii - phi
        gamma = algorithm.server_step
        x = x + gamma * dx / (n if paper else sampled)
        phi = phi + (n / sampled if paper else 1) * dphi
        yield x, phi, y


@pytest.mark.parametrize("steps", [1, 2, T], ids=lambda t: f"T={t}")
@pytest.mark.parametrize(
    "settings",
    [{}, {"server_step": 1.5}, {"scaling": "exact"}, {"scaling": "exact", "correction": 0.2, "server_step": 0.5}],
    ids=str,
)
def test_equals_the_printed_equations(settings, steps):
    """Round by round to 1e-12, on clients and blocks of unequal size; T < M and T > M store the table differently."""
    algorithm = method(ETA, steps, M, **settings)
    state = None
    for x, phi, y in transcription(RAGGED, algorithm, rounds=8):
        run = losac.simulate(
            RAGGED.task, algorithm, rounds=1, clients_per_round=S, dtype="float64", state=state, keep_state=True
        )
        state = run.state
        np.testing.assert_allclose(state.server.x, x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.server.phi, phi, rtol=0, atol=1e-12 * max(1, np.abs(phi).max()))
        np.testing.assert_allclose(state.store.table, y, rtol=0, atol=1e-12 * max(1, np.abs(y).max()))


@pytest.mark.parametrize("scaling", ["paper", "exact"])
def test_phi_is_the_sum_of_the_tables(scaling):
    """Law 3: φ − φ⁰ = κ Σ_i Σ_j y_ij after every round."""
    algorithm, state = method(ETA, T, M, scaling=scaling), None
    kappa = N / S if scaling == "paper" else 1 / (N * M)
    for _ in range(6):
        run = losac.simulate(
            RAGGED.task, algorithm, rounds=1, clients_per_round=S, dtype="float64", state=state, keep_state=True
        )
        state = run.state
        due = kappa * np.asarray(state.store.table).sum((0, 1))
        np.testing.assert_allclose(state.server.phi, due, rtol=1e-12, atol=1e-12)


def test_one_client_is_saga():
    """Law 2: with N = 1, the exact scaling with δ = γ = 1 is SAGA, seen only at the ends of rounds."""
    alone = quadratic(clients=1, samples=12, dim=3)
    eta, x = 0.05 / alone.curvature, np.zeros(3)
    a, b = (blocks_of(v, M) for v in alone.data.client(0))
    y = np.zeros((M, 3))
    saga = method(eta, T, M, scaling="exact", correction=1.0)
    run = losac.simulate(alone.task, saga, rounds=5, dtype="float64")
    for r in range(5):
        for j in drawn_blocks(0, r, 0, T, M):
            g = M * a[j].T @ (a[j] @ x - b[j])
            x = x - eta * (g - y[j] + y.mean(0))
            y[j] = g
    np.testing.assert_allclose(run.params, x, rtol=1e-12)


def test_one_full_step_is_gradient_descent_for_all():
    """Law 2: M = 1, K = 1 and full participation make LoSAC (exact, δ = 1) and four others the same."""
    eta, a = 0.3 / RAGGED.curvature, losac.algorithms
    x = np.zeros(3)
    gradient = sum(RAGGED.hessians) / N
    for _ in range(4):
        x = x - eta * gradient @ (x - RAGGED.optimum)
    first = losac.algorithms.losac(eta, 1, 1, scaling="exact", correction=1.0)
    for algorithm in (
        a.scaffold(eta, 1),
        a.scaffold(eta, 1, option=1),
        a.fedavg(eta, 1),
        a.fedsaga(eta, 1, 1),
        a.dsgd(eta),
    ):
        run = losac.simulate(RAGGED.task, algorithm, rounds=4, dtype="float64")
        np.testing.assert_allclose(run.params, x, rtol=1e-11)
    run = losac.simulate(RAGGED.task, first, rounds=4, dtype="float64")
    lagged = np.zeros(3)  # φ is one round old at the start of a round, and refreshed by 1/N of the own change
    phi, y = np.zeros(3), np.zeros((N, 3))
    for _ in range(4):
        g = np.array([h @ (lagged - o) for h, o in zip(RAGGED.hessians, RAGGED.optima)])
        lagged = lagged - eta * np.mean(phi + g - y, axis=0)
        phi, y = phi + (g - y).mean(0), g
    np.testing.assert_allclose(run.params, lagged, rtol=1e-11)
    np.testing.assert_allclose(run.params, x, rtol=1e-11)


def composite_optimum(problem, threshold, step=None):
    """The minimiser of f + threshold·‖·‖₁ by proximal gradient in NumPy."""
    hessian = sum(problem.hessians) / problem.data.num_clients
    step = 1 / np.linalg.norm(hessian, 2)
    x = np.zeros(len(problem.optimum))
    for _ in range(20000):
        v = x - step * hessian @ (x - problem.optimum)
        x = np.sign(v) * np.maximum(np.abs(v) - step * threshold, 0)
    return x


@pytest.mark.parametrize(
    ("algorithm", "sampled", "factor"),
    [
        (method(ETA * S / (N * M), T, M), S, 1.0),
        (method(ETA * S / (N * M), T, M, prox_step="printed"), S, S / (N * M)),
        (method(ETA, T, M, scaling="exact"), S, 1.0),
        (method(ETA, T, M, scaling="exact", correction=0.1), S, 1.0),
        (losac.algorithms.scaffold(ETA, T), S, 1.0),
        (losac.algorithms.dsgd(0.3 / RAGGED.curvature), N, 1.0),
    ],
    ids=str,
)
def test_prox_reaches_the_composite_optimum(algorithm, sampled, factor):
    """With a regulariser they minimise f + Ψ; the prox step that the paper prints, f + S/(NM)·Ψ instead."""
    strength = 0.5 * float(np.abs(sum(RAGGED.hessians) @ RAGGED.optimum).max()) / N
    task = losac.regression(losac.models.linear(3), RAGGED.data, regularizer=losac.prox.l1(strength))
    due = composite_optimum(RAGGED, factor * strength)
    assert factor < 1 or (due == 0).any()  # the regulariser acts
    run = losac.simulate(task, algorithm, rounds=6000, clients_per_round=sampled, eval_every=6000, dtype="float64")
    np.testing.assert_allclose(run.params, due, atol=1e-9)


def test_zero_regulariser_changes_nothing():
    """Law 2: Ψ = 0 makes every proximal version its smooth one."""
    for algorithm in (method(ETA, T, M), losac.algorithms.scaffold(ETA, T, M), losac.algorithms.dsgd(ETA)):
        smooth = losac.simulate(RAGGED.task, algorithm, rounds=5, clients_per_round=S, dtype="float64")
        task = losac.regression(losac.models.linear(3), RAGGED.data, regularizer=losac.prox.l1(0.0))
        proximal = losac.simulate(task, algorithm, rounds=5, clients_per_round=S, dtype="float64")
        np.testing.assert_allclose(proximal.params, smooth.params, rtol=1e-14)


def warm_start(scale):
    """The state with y_ij = g_ij(x⁰) and φ = scale · Σ y."""
    run = losac.simulate(
        RAGGED.task, method(ETA, T, 1), rounds=1, clients_per_round=S, dtype="float64", keep_state=True
    )
    y = np.array([x.T @ (0 - b) for x, b in map(RAGGED.data.client, range(N))])[:, None]
    server = run.state.server._replace(x=np.zeros(3), phi=scale * y.sum((0, 1)))
    return run.state._replace(server=server, store=run.state.store._replace(table=y), round=np.int32(0)), y


def test_warm_start_that_contradicts_itself_is_refused():
    """φ = Σ y with the paper's factor N/S ends where Σ∇f_i(x) = (1 − S/N) Σ∇f_i(x⁰); it is refused."""
    state, y = warm_start(scale=1.0)
    with pytest.raises(ValueError, match="wrong point"):
        losac.simulate(RAGGED.task, method(ETA, T, 1), rounds=1, clients_per_round=S, dtype="float64", state=state)
    algorithm = method(ETA * S / N, T, 1)
    *_, (x, _, _) = transcription(RAGGED, algorithm, 3000, phi=y.sum((0, 1)), y=y)
    gradient = sum(RAGGED.hessians) @ (x - RAGGED.optimum)
    np.testing.assert_allclose(gradient, (1 - S / N) * y.sum((0, 1)), atol=1e-9)
    assert np.abs(x - RAGGED.optimum).max() > 1e-3


def test_consistent_warm_start_is_taken_and_right():
    state, _ = warm_start(scale=N / S)
    algorithm = method(ETA * S / N, T, 1)
    run = {"rounds": 4000, "clients_per_round": S, "eval_every": 4000, "dtype": "float64"}
    warm = losac.simulate(RAGGED.task, algorithm, state=state, **run)
    np.testing.assert_allclose(warm.params, RAGGED.optimum, atol=1e-9)


def test_kappa_is_the_planned_number_whoever_answers():
    """With fewer clients than planned in most rounds, φ = (N/S planned) Σ y still holds, and the optimum is right."""
    lists = [[0, 1], [2], [3, 4], [1], [4, 2], [0], [3]]
    algorithm = method(ETA * S / (N * M), T, M)
    run = losac.simulate(
        RAGGED.task, algorithm, rounds=7000, clients_per_round=S, sampling=lists, eval_every=7000, dtype="float64",
        keep_state=True,
    )  # fmt: skip
    np.testing.assert_allclose(run.params, RAGGED.optimum, atol=1e-9)
    due = N / S * np.asarray(run.state.store.table).sum((0, 1))
    np.testing.assert_allclose(run.state.server.phi, due, atol=1e-9)


def test_the_table_costs_what_it_says():
    """A client sends and receives two models; it keeps M of them."""
    run = losac.simulate(RAGGED.task, method(ETA, T, M), rounds=3, clients_per_round=S, keep_state=True)
    model = 3 * 4
    assert run.bytes_up.tolist() == [0, 2 * S * model, 4 * S * model, 6 * S * model]
    assert run.bytes_down.tolist() == run.bytes_up.tolist()
    assert run.state.store.table.shape == (N, M, 3)
    assert jax.tree.leaves(run.state.store.rows) == []


def test_same_trajectory_where_blocks_divide_and_where_they_do_not():
    """A vectorised group of ragged clients gives each the same as by itself."""
    algorithm = method(ETA, T, M)
    runs = [
        losac.simulate(RAGGED.task, algorithm, rounds=6, clients_per_round=4, dtype="float64", layout=layout)
        for layout in (Layout(1, 1), Layout(4, 1), Layout(3, 1), Layout(2, 2))
    ]
    for run in runs[1:]:
        np.testing.assert_allclose(run.params, runs[0].params, rtol=1e-12)
