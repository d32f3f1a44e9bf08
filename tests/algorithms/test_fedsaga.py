"""FedSaga against equation (fedsaga) of the paper, in units of the unbiased block gradients."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from problems import blocks_of, drawn_blocks, drawn_clients, quadratic

N, S, M, T = 5, 2, 3, 4
PROBLEM = quadratic(clients=N, samples=[9, 12, 7, 10, 8], dim=3)
ETA = 0.05 / PROBLEM.curvature


@pytest.mark.parametrize(("average", "divisor"), [("sampled", S), ("all", N)])
def test_fedsaga_equals_the_printed_equations(average, divisor):
    x, y, gamma = np.zeros(3), np.zeros((N, M, 3)), 1.3
    for r in range(6):
        moved = np.zeros(3)
        for i in drawn_clients(0, r, N, S):
            a, b = (blocks_of(v, M) for v in PROBLEM.data.client(i))
            w = x.copy()
            for j in drawn_blocks(0, r, int(i), T, M):
                g = M * a[j].T @ (a[j] @ w - b[j])
                w = w - ETA * (g - y[i, j] + y[i].mean(0))
                y[i, j] = g
            moved += w - x
        x = x + gamma * moved / divisor
    algorithm = losac.algorithms.fedsaga(ETA, T, M, server_step=gamma, average=average)
    run = losac.simulate(PROBLEM.task, algorithm, rounds=6, clients_per_round=S, dtype="float64", keep_state=True)
    np.testing.assert_allclose(run.params, x, rtol=1e-11)
    np.testing.assert_allclose(run.state.store.table, y, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(run.state.store.rows.state, y.mean(1), rtol=1e-11, atol=1e-12)
