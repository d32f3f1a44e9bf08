"""PowerSGD: matrices of low rank arrive whole, the rest is left out and not lost, and LoSAC-lean stays exact."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac.algorithms import power_sgd
from losac.trees import nbytes
from problems import quadratic

N, S, M, T = 6, 2, 3, 4
PROBLEM = quadratic(clients=N, samples=18, dim=12)
SHAPE = (3, 4)


def low_rank(rank: int, shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    columns = int(np.prod(shape[1:]))
    return jnp.asarray((rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, columns))).reshape(shape))


def through(transform: Any, upload: Any, seed: int = 0, state: Any = None) -> tuple[Any, Any, Any]:
    state = transform.init(upload) if state is None else state
    payload, state = transform.encode(jax.random.key(seed), state, upload)
    return transform.decode(payload), payload, state


@pytest.mark.parametrize("rank", [1, 2])
def test_matrices_of_the_rank_arrive_whole_and_vectors_as_they_are(rank: int):
    upload = {
        "w": low_rank(rank, (9, 7)),
        "kernel": low_rank(rank, (8, 3, 5)),
        "b": jnp.arange(40.0),
        "small": jnp.ones((2, 2)),
    }
    sent, payload, _ = through(power_sgd(rank, error_feedback=False), upload)
    for name, array in upload.items():
        np.testing.assert_allclose(sent[name], array, atol=2e-5)
        assert sent[name].dtype == array.dtype
    assert nbytes(payload) == 4 * (rank * (9 + 7) + rank * (8 + 15) + 40 + 4)
    np.testing.assert_array_equal(sent["b"], upload["b"])


@pytest.mark.parametrize("bits", [None, 16, 8])
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e8])
def test_it_comes_nearer_whatever_the_scale_and_never_sends_what_is_not_there(bits: Any, scale: float):
    """Within a tenth of the best approximation of the rank; P and Q in b bits take rank·(rows + columns)·b/8 bytes."""
    matrix = scale * (low_rank(2, (30, 20)) + 0.3 * np.random.default_rng(1).normal(size=(30, 20))).astype(np.float32)
    sent, payload, _ = through(power_sgd(2, bits=bits, error_feedback=False), matrix)
    exact = np.asarray(matrix, float) / scale
    best = np.sqrt((np.linalg.svd(exact, compute_uv=False)[2:] ** 2).sum())
    assert np.linalg.norm(np.asarray(sent, float) / scale - exact) < 1.1 * best
    assert nbytes(payload) == {None: 4, 16: 2, 8: 1}[bits] * 2 * 50 + (4 * 2 * 2 if bits == 8 else 0)
    vector = jnp.asarray(scale * np.linspace(-1, 1, 50))
    whole, payload, _ = through(power_sgd(2, bits=bits, error_feedback=False), vector)
    assert np.abs(whole / scale - vector / scale).max() <= {None: 0, 16: 2**-8, 8: 0.51 / 127}[bits]
    assert nbytes(payload) == {None: 200, 16: 100, 8: 54}[bits]
    nothing = through(power_sgd(2, bits=bits, error_feedback=False), jnp.zeros((30, 20)))[0]
    np.testing.assert_array_equal(nothing, 0)


def test_error_feedback_loses_nothing():
    rng, state, total, due = np.random.default_rng(0), None, 0, 0
    for r in range(20):
        u = jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)
        sent, _, state = through(power_sgd(1), u, seed=r, state=state)
        total, due = total + sent, due + u
    np.testing.assert_allclose(total + state, due, atol=2e-5)
    assert through(power_sgd(1, error_feedback=False), jnp.ones((6, 5)))[2] == ()


def predict(params: Any, x: Any) -> Any:
    return x @ params.reshape(-1)


@pytest.mark.parametrize(
    ("name", "bits"), [("losac_lean", None), ("losac_lean", 8), ("scaffold", None), ("fedavg", None)]
)
def test_losac_lean_reaches_the_optimum_and_others_stop_short(name: str, bits: Any):
    """On a quadratic of a matrix, with sampled clients and random blocks: 1e-9 against more than 1e-3."""
    task = losac.Task(
        lambda params, batch: 0.5 * ((predict(params, batch[0]) - batch[1]) ** 2).mean(), jnp.zeros(SHAPE), PROBLEM.data
    )
    exact = name == "losac_lean"
    uploads = (power_sgd(1, bits=bits, error_feedback=False),)
    method = getattr(losac.algorithms, name)(0.02 / PROBLEM.curvature, T, M, uploads=uploads)
    rounds = 12000 if exact else 2000
    run = losac.simulate(task, method, rounds=rounds, clients_per_round=S, eval_every=rounds, dtype="float64")
    away = np.abs(run.params.reshape(-1) - PROBLEM.optimum).max()
    assert away < 1e-9 if exact else away > 1e-3
