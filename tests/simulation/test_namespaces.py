"""A client's step is operators only: the same function gives the same numbers on NumPy arrays as under JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from catalogue import BLOCKS, CATALOGUE, CLIENTS, RANDOM_BLOCKS, SAMPLED, Entry
from losac._compat import enable_x64
from losac.algorithms import Local
from losac.algorithms.contract import ValuedGradient
from problems import quadratic

PROBLEM = quadratic(clients=CLIENTS)
X, Y = PROBLEM.data.client(0)
START = {"w": np.linspace(-1, 1, 4)}


def one_step(algorithm, asarray, regularizer):
    """Begin a round at START in every phase with local steps, and take two steps on the full batch."""

    def gradient(params):
        return {"w": asarray(X.T) @ (asarray(X) @ params["w"] - asarray(Y))}

    x = jax.tree.map(asarray, START)

    def with_value(params):
        residual = asarray(X) @ params["w"] - asarray(Y)
        return 0.5 * (residual * residual).sum(), gradient(params)

    grad = ValuedGradient(gradient, with_value)
    here = Local(CLIENTS, SAMPLED, regularizer.prox, BLOCKS, 5, gradient, 0, jax.random.key(0))
    found = []
    for phase in algorithm.phases():
        if phase.draw.steps == 0:
            continue
        message = jax.tree.map(asarray, phase.broadcast(algorithm.init(x)))
        local, client = phase.begin(here, message, jax.tree.map(asarray, algorithm.init_client(x)))
        y = (algorithm.init_entry(x),) if phase.table else ()
        for _ in range(2):
            local = phase.step(here, message, client, local, grad, *y)
            if phase.table:
                local, *y = local
        found.append((local, y))
    return found


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_a_step_is_the_same_on_numpy_and_jax(entry: Entry):
    algorithm = entry.make(PROBLEM.curvature, RANDOM_BLOCKS)
    regularizer = losac.prox.l1(0.1) if algorithm.composite else losac.prox.zero()
    with enable_x64(True):
        numpy, jaxed = (one_step(algorithm, f, regularizer) for f in (np.asarray, jnp.asarray))
        assert jax.tree.structure(numpy) == jax.tree.structure(jaxed)
        for a, b in zip(jax.tree.leaves(numpy), jax.tree.leaves(jaxed)):
            assert isinstance(a, np.ndarray | np.generic | int | float)
            np.testing.assert_allclose(a, b, rtol=1e-13)
