"""Synthetic problems have the truth they claim to have."""

from functools import partial

import numpy as np
import pytest

from losac.data import crowd, least_squares_optimum, logistic, lowrank, quadratic


def gradient(data, w, weights, reduction):
    total = np.zeros_like(w)
    for i, p in enumerate(weights):
        a, b = data.client(i)
        total += p * a.T @ (a @ w - b) / (len(a) if reduction == "mean" else 1)
    return total


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("weights", [None, [0.5, 0.3, 0.2]])
def test_the_gradient_vanishes_at_the_optimum(reduction, weights):
    data = quadratic(clients=3, samples=[5, 9, 7], dim=4, seed=1)
    w = least_squares_optimum(data, reduction, weights)
    np.testing.assert_allclose(gradient(data, w, weights or [1 / 3] * 3, reduction), 0, atol=1e-12)


def test_quadratic_knows_its_optimum():
    data = quadratic(clients=4, samples=6, dim=3)
    np.testing.assert_allclose(gradient(data, data.info["optimum"], [0.25] * 4, "sum"), 0, atol=1e-12)
    assert data.x.dtype == data.y.dtype == np.float64


def test_every_client_of_quadratic_has_the_condition_asked_for():
    data = quadratic(clients=5, samples=9, dim=6, condition=50.0)
    for i in range(5):
        a, _ = data.client(i)
        eigenvalues = np.linalg.eigvalsh(a.T @ a / len(a))
        np.testing.assert_allclose([eigenvalues[0], eigenvalues[-1]], [1 / 50, 1], rtol=1e-9)


def test_heterogeneity_moves_the_clients_optima_apart():
    def spread(h):
        data = quadratic(clients=6, samples=8, dim=3, heterogeneity=h, noise=0.0)
        return np.std([least_squares_optimum(data.subset([i])) for i in range(6)], axis=0).max()

    assert spread(0.0) < 1e-12 < spread(0.1) < spread(1.0)


def test_lowrank_is_the_papers():
    data = lowrank(clients=20, samples=60, dim=8, rank=3)
    truth = data.info["truth"]
    np.testing.assert_array_equal(truth, np.diag([1.0] * 3 + [0.0] * 5))
    assert data.x.shape == (1200, 8, 8)
    assert data.x.dtype == np.float32
    residual = data.y - np.tensordot(data.x, truth, axes=2)
    assert abs(residual.mean()) < 0.05
    assert residual.var() == pytest.approx(0.1, rel=0.15), "0.1 is the variance, not the deviation"
    assert data.x.mean() == pytest.approx(0.1, abs=0.02)
    assert data.x.std() == pytest.approx(1.0, abs=0.02)


def test_least_squares_recovers_the_low_rank_truth():
    data = lowrank(clients=10, samples=60, dim=4, rank=2)
    assert np.linalg.norm(least_squares_optimum(data) - data.info["truth"]) < 0.2


@pytest.mark.parametrize("make", [quadratic, partial(lowrank, rank=2), logistic, crowd])
def test_the_seed_fixes_the_data_and_more_clients_change_nobody(make):
    few, again, other = (make(clients=3, samples=8, dim=4, seed=seed) for seed in (1, 1, 2))
    more = make(clients=5, samples=8, dim=4, seed=1)
    np.testing.assert_array_equal(few.x, again.x)
    np.testing.assert_array_equal(few.y, again.y)
    np.testing.assert_array_equal(few.client(2)[0], more.client(2)[0])
    assert not np.array_equal(few.x, other.x)


def test_a_crowd_goes_over_the_groups_it_is_drawn_in():
    data, larger = crowd(clients=4100, samples=2, dim=3, classes=4), crowd(clients=9000, samples=2, dim=3, classes=4)
    np.testing.assert_array_equal(data.x, larger.x[:8200])
    np.testing.assert_array_equal(data.y, larger.y[:8200])
    assert not np.array_equal(larger.client(0)[0], larger.client(4096)[0])
    assert np.bincount(larger.y).min() > 1000


def test_logistic_clients_agree_without_heterogeneity_and_differ_with_it():
    def mean_gap(h):
        data = logistic(clients=8, samples=400, dim=3, classes=3, heterogeneity=h)
        return np.std([data.client(i)[0].mean(axis=0) for i in range(8)], axis=0).max()

    assert mean_gap(0.0) < 0.1 < mean_gap(1.0)
    data = logistic(clients=4, samples=40, classes=3)
    assert set(np.unique(data.y)) == {0, 1, 2}
    assert data.test is not None
    assert len(data.test[0]) == 40


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quadratic(samples=3, dim=5), "client 0 has samples=3 < dim=5.*at least 5"),
        (lambda: quadratic(clients=2, samples=[8, 4], dim=5), "client 1 has samples=4"),
        (lambda: quadratic(clients=3, samples=[8, 8]), "samples has 2 entries for clients=3"),
        (lambda: quadratic(condition=0.5), "condition=0.5; give at least 1"),
        (lambda: lowrank(dim=4, rank=5), "rank=5; give a rank from 1 to dim=4"),
        (lambda: logistic(heterogeneity=2.0), "heterogeneity=2.0.*0 .*to 1"),
        (lambda: crowd(heterogeneity=2.0), "heterogeneity=2.0.*0 .*to 1"),
        (lambda: logistic(classes=1), "classes=1; give at least 2"),
        (lambda: least_squares_optimum(quadratic(), "max"), "reduction='max'; give 'sum' or 'mean'"),
        (lambda: least_squares_optimum(quadratic(2), weights=[1, -1]), "non-negative.*2 clients"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
