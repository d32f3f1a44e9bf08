"""Regularisers: the proximal operator minimises what it says, in JAX and in NumPy alike."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from losac import prox

REGULARIZERS = [
    prox.zero(),
    prox.l1(0.7),
    prox.l2(0.6),
    prox.elastic_net(0.4, 1.3),
    prox.group_l2(0.9),
    prox.nuclear(0.8),
    prox.box(-0.5, 0.25),
    prox.simplex(1.0),
]


@pytest.mark.parametrize("psi", REGULARIZERS, ids=str)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), step=st.floats(0.05, 3.0))
def test_prox_is_the_minimiser(psi, seed, step):
    """No feasible point near or far has a smaller Ψ(x) + ‖x − v‖²/(2·step) than the prox."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(4, 3))

    def energy(x):
        return float(psi.value(x)) + ((x - v) ** 2).sum() / (2 * step)

    best = psi.prox(v, step)
    assert np.isfinite(energy(best))
    for size in (1e-3, 0.1, 1.0):
        other = best + size * rng.normal(size=v.shape)
        if isinstance(psi, prox.Regularizer) and psi.label in ("box", "simplex"):
            other = psi.prox(other, 1.0)  # stay feasible
        assert energy(best) <= energy(other) + 1e-10


@pytest.mark.parametrize("psi", REGULARIZERS, ids=str)
def test_jax_and_numpy_agree(psi):
    v = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(psi.prox(jnp.asarray(v), 0.3), psi.prox(v, 0.3), atol=2e-6)


def test_known_answers():
    assert prox.l1(1.0).prox(np.array([3.0, -0.5, -2.0]), 0.5).tolist() == [2.5, 0.0, -1.5]
    u = np.diag([3.0, 1.0, 0.2])
    np.testing.assert_allclose(prox.nuclear(0.5).prox(u, 1.0), np.diag([2.5, 0.5, 0.0]), atol=1e-12)
    assert prox.nuclear(2.0).value(u) == pytest.approx(8.4)
    np.testing.assert_allclose(prox.simplex(1.0).prox(np.array([0.5, 0.5, 3.0]), 1.0), [0, 0, 1])
    np.testing.assert_allclose(prox.group_l2(1.0).prox(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0), [[2.4, 3.2], [0, 0]])
    assert prox.box(0.0, 1.0).value(np.array([0.5, 2.0])) == np.inf


def test_trees_are_regularised_leaf_by_leaf():
    tree = {"w": np.array([2.0, -2.0]), "b": np.array([0.1])}
    shrunk = prox.l1(1.0).prox(tree, 0.5)
    assert shrunk["w"].tolist() == [1.5, -1.5]
    assert shrunk["b"].tolist() == [0.0]
    assert prox.l1(1.0).value(tree) == pytest.approx(4.1)


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="l1: strength=-1"):
        prox.l1(-1)
    with pytest.raises(ValueError, match="must not exceed"):
        prox.box(1.0, 0.0)
