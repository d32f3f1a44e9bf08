"""The paper's low-rank matrix estimation: its task, what is measured on it, and its composite optimum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac.data import FederatedData, load
from losac.models import Inner
from losac.prox import Regularizer, nuclear
from losac.task import Task, regression
from losac.trees import Array

DIM, CLIENTS, COUNTED = 64, 100, 1e-3
"""d, N, and the singular value above which the paper counts one towards the rank."""


@lru_cache(maxsize=2)
def lowrank_data(samples: int, rank: int) -> FederatedData:
    """Return the problem's data: D_j and y_j of all clients, and the truth X_G."""
    return load("lowrank", CLIENTS, samples=samples, dim=DIM, rank=rank)


def lowrank_task(samples: int, rank: int, strength: float, threshold: float) -> Task:
    """Return min (1/N) Σ_i mean_j (⟨X, D_j⟩ − y_j)² + λ‖X‖_*, measured against the truth.

    The truth and the threshold of the read-out travel as the one row of the test part, so all ranks and λ share
    one compiled program; the ``test_loss`` of this row means nothing.
    """
    data = lowrank_data(samples, rank)
    test = (data.info["truth"][None], np.array([threshold], np.float32))
    metrics = {"error": error, "rank": rank_of, "error after prox": shrunk_error, "rank after prox": shrunk_rank}
    return regression(
        Inner((DIM, DIM)), data, scale=1.0, reduction="mean", regularizer=nuclear(strength), metrics=metrics, test=test
    )


def error(x: Array, batch: Any) -> Array:
    """Return ‖X − X_G‖_F."""
    return jnp.linalg.norm(x - batch[0][0])


def rank_of(x: Array, batch: Any) -> Array:
    """Return the number of singular values above 10⁻³."""
    return _rank(jnp.linalg.svdvals(x))


def shrunk_error(x: Array, batch: Any) -> Array:
    """Return ‖prox(X) − X_G‖_F, one more proximal step at the server."""
    return jnp.linalg.norm(nuclear(1.0).prox(x, batch[1][0]) - batch[0][0])


def shrunk_rank(x: Array, batch: Any) -> Array:
    """Return the rank of prox(X)."""
    return _rank(jnp.linalg.svdvals(x) - batch[1][0])


def _rank(values: Array) -> Array:
    return jnp.sum(values > COUNTED).astype(values.dtype)


@lru_cache(maxsize=1)
def _gram(samples: int) -> tuple[Array, float]:
    """Return the Hessian AᵀA·2/n of the smooth part and its largest eigenvalue; the D_j are the same for all ranks."""
    rows = jnp.asarray(lowrank_data(samples, 1).x.reshape(CLIENTS * samples, -1))
    hessian = jnp.matmul(rows.T, rows, precision="highest") * (2 / len(rows))
    v = jnp.ones(len(hessian))
    for _ in range(50):
        v = hessian @ (v / jnp.linalg.norm(v))
    return hessian, float(jnp.linalg.norm(v))


@lru_cache(maxsize=32)
def optimum(samples: int, rank: int, strength: float, steps: int = 1000) -> tuple[np.ndarray, float]:
    """Return the composite optimum by accelerated proximal gradient steps, and by how much the last ones moved it."""
    data = lowrank_data(samples, rank)
    hessian, largest = _gram(samples)
    rows = jnp.asarray(data.x.reshape(len(data), -1))
    target = jnp.matmul(rows.T, jnp.asarray(data.y), precision="highest") * (2 / len(rows))
    x, moved = _accelerated(steps, nuclear(strength), hessian, target, jnp.asarray(1.01 * largest))
    return np.asarray(x), float(moved)


def _accelerated(
    steps: int, penalty: Regularizer, hessian: Array, target: Array, largest: Array
) -> tuple[Array, Array]:
    """Run FISTA from zero, restarted where its momentum points uphill; return x and the largest of the last moves."""

    @jax.jit
    def run(penalty: Regularizer, hessian: Array, target: Array, largest: Array) -> tuple[Array, Array]:
        def step(carry: Any, _: None) -> Any:
            x, ahead, t = carry
            slope = (jnp.matmul(hessian, ahead.reshape(-1), precision="highest") - target).reshape(x.shape)
            new = penalty.prox(ahead - slope / largest, 1 / largest)
            t = jnp.where(jnp.sum((ahead - new) * (new - x)) > 0, 1.0, t)
            following = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
            return (new, new + (t - 1) / following * (new - x), following), jnp.linalg.norm(new - x)

        first = jnp.zeros((math.isqrt(target.size),) * 2)
        (x, _, _), moves = jax.lax.scan(step, (first, first, jnp.ones(())), None, length=steps)
        return x, moves[-10:].max()

    return run(penalty, hessian, target, largest)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Keep LAPACK to one thread: on matrices this small several wait for each other, a hundred times as long."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    import_module("scipy.linalg")  # loads the LAPACK that is to be limited
    with threadpool_limits(1):
        yield
