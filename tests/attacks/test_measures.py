"""What gradients of dense layers say outright, and how recovered rows are compared with real ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import losac
from losac._compat import enable_x64
from losac.attacks import (
    cut,
    decibels,
    dense_layers,
    label_accuracy,
    labels_in,
    likeness,
    quotients,
    relative_error,
    row_space,
    span_angle,
)

RNG = np.random.default_rng(5)
CLASSES, FEATURES = 4, 12


def gradient(model, params, x, y):
    """The gradient of the sum of the losses of some rows, in double precision."""
    loss = losac.losses.BinaryCrossEntropy if np.shape(params[-1]["b"]) == (1,) else losac.losses.CrossEntropy
    with enable_x64(True):
        found = jax.grad(lambda p: len(x) * loss(model)(p, (jnp.asarray(x), jnp.asarray(y))))(params)
        return jax.tree.map(np.asarray, found)


def drawn(model, seed=0):
    """Parameters of a model at random, biases too, in double precision."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape) * 0.5, shapes)


# Layers.


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_the_span_of_k_rows_has_dimension_k_and_holds_them(rows):
    model = losac.models.Dense((FEATURES, 16, CLASSES), "glorot")
    x, y = RNG.normal(size=(rows, FEATURES)), RNG.integers(CLASSES, size=rows)
    found = row_space([gradient(model, drawn(model), x, y)], FEATURES, most=FEATURES, accuracy=1e-12)
    assert found.shape == (rows, FEATURES)
    np.testing.assert_allclose(found @ found.T, np.eye(rows), atol=1e-12)
    assert span_angle(found, x) < 1e-5


def test_gradients_at_several_models_add_to_the_span():
    """A softmax regression with 4 classes tells 3 directions at a time: the errors of a row sum to zero."""
    model = losac.models.softmax_regression(FEATURES, CLASSES)
    x, y = RNG.normal(size=(6, FEATURES)), RNG.integers(CLASSES, size=6)
    gradients = [gradient(model, drawn(model, seed), x, y) for seed in range(3)]
    assert [len(row_space(gradients[:k], FEATURES, most=FEATURES, accuracy=1e-12)) for k in (1, 2, 3)] == [3, 6, 6]
    assert span_angle(row_space(gradients, FEATURES, most=6), x) < 1e-5


def test_without_a_first_dense_layer_there_is_no_span():
    model = losac.models.cnn((8, 8, 1), CLASSES)
    params = model.init(jax.random.key(0))
    assert row_space([jax.tree.map(np.asarray, params)], 64, most=3) is None
    assert quotients([jax.tree.map(np.asarray, params)], 64, most=3).shape == (0, 64)
    assert len(list(dense_layers(params))) == 2


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_the_quotient_of_one_row_is_that_row(hidden):
    model = losac.models.Dense((FEATURES, *hidden, CLASSES), "glorot")
    x = RNG.uniform(size=(1, FEATURES))
    found = quotients([gradient(model, drawn(model), x, [2])], FEATURES, most=3, box=(0, 1))
    assert len(found) == 1
    np.testing.assert_allclose(found, x, atol=1e-10)


def test_rows_that_drive_a_unit_alone_are_recovered_all():
    """Unit k of the first layer is active for row k only: its weights point at that row, its threshold lies between."""
    x = np.eye(3, FEATURES) * 0.9 + 0.05
    model = losac.models.Dense((FEATURES, 3, CLASSES), "glorot")
    params = drawn(model)
    params[0] = {"w": 10 * x.T, "b": np.full(3, -4.0)}
    assert np.array_equal(x @ params[0]["w"] + params[0]["b"] > 0, np.eye(3, dtype=bool))
    found = quotients([gradient(model, params, x, [0, 1, 2])], FEATURES, most=3, box=(0, 1))
    assert likeness(found, x).mse.max() < 1e-20


def test_a_mixture_of_rows_outside_the_range_is_no_row():
    outside = [{"w": np.array([[3.0], [0.5]]), "b": np.array([1.0])}]
    assert quotients([outside], 2, most=2, box=(0, 1)).shape == (0, 2)
    assert quotients([outside], 2, most=2).tolist() == [[3.0, 0.5]]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=12))
def test_labels_are_exact_where_the_model_starts_at_zero(labels):
    """All probabilities are 1/C there, so that the bias of class c gets n/C − n_c."""
    bias = len(labels) / CLASSES - np.bincount(labels, minlength=CLASSES)
    found = labels_in([{"w": np.zeros((2, CLASSES)), "b": bias}], len(labels))
    assert found.tolist() == sorted(labels)


def test_that_bias_is_what_softmax_regression_has_at_zero():
    model, labels = losac.models.softmax_regression(FEATURES, CLASSES), np.array([3, 1, 1, 0, 3, 3])
    start = jax.tree.map(np.zeros_like, drawn(model))
    found = gradient(model, start, RNG.normal(size=(6, FEATURES)), labels)
    np.testing.assert_allclose(found[0]["b"], 6 / CLASSES - np.bincount(labels, minlength=CLASSES), atol=1e-12)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, CLASSES - 1), st.integers(0, 100))
def test_the_label_of_one_row_is_exact_at_any_model(label, seed):
    model = losac.models.Dense((FEATURES, 6, CLASSES), "glorot")
    x = np.random.default_rng(seed).normal(size=(1, FEATURES))
    assert labels_in(gradient(model, drawn(model, seed), x, [label]), 1).tolist() == [label]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=9))
def test_labels_of_a_logit_are_exact_at_zero(labels):
    """Σ_k (½ − y_k) = n/2 − n_1."""
    model = losac.models.logistic_regression(FEATURES)
    x = np.random.default_rng(0).normal(size=(len(labels), FEATURES))
    found = gradient(model, jax.tree.map(np.zeros_like, drawn(model)), x, labels)
    assert labels_in(found, len(labels)).tolist() == sorted(labels)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.integers(1, 9))
def test_noise_still_gives_as_many_labels_as_rows(bias, rows):
    found = labels_in([{"w": np.zeros((2, len(bias))), "b": np.array(bias)}], rows)
    assert len(found) == rows
    assert set(found) <= set(range(max(len(bias), 2)))


def test_without_biases_no_labels():
    assert labels_in([{"w": np.ones((2, 3))}], 2) is None
    assert labels_in(np.ones(3), 2) is None


# Measures.

rows = st.integers(1, 6)


@settings(deadline=None, max_examples=30)
@given(rows, st.integers(0, 99), st.randoms(use_true_random=False))
def test_the_order_of_recovered_rows_does_not_matter(count, seed, shuffle):
    rng = np.random.default_rng(seed)
    real, recovered = rng.uniform(size=(2, count, 5))
    order = list(range(count))
    shuffle.shuffle(order)
    first, second = likeness(recovered, real), likeness(recovered[order], real)
    np.testing.assert_allclose(first.mse.sum(), second.mse.sum())
    np.testing.assert_allclose(recovered[first.order], recovered[order][second.order])
    assert first.mse.sum() <= ((recovered - real) ** 2).mean(1).sum() + 1e-12


@settings(deadline=None, max_examples=20)
@given(rows, rows)
def test_rows_that_were_not_recovered_count_as_guesses(count, recovered):
    real = np.random.default_rng(count).uniform(0.5, 1, size=(count, 4))
    found = likeness(real[:recovered], real, nothing=0.0)
    assert (found.order >= 0).sum() == min(count, recovered)
    np.testing.assert_allclose(found.mse[found.order < 0], (real[found.order < 0] ** 2).mean(1))
    assert np.all(found.psnr[found.order >= 0] == 120)


def test_decibels():
    np.testing.assert_allclose(decibels(np.array([1.0, 0.1, 1e-3, 0.0])), [0, 10, 30, 120])
    np.testing.assert_allclose(decibels(np.array([4.0, 0.0]), peak=2), [0, 120])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_the_share_of_labels_is_a_share(real, guessed):
    share = label_accuracy(np.array(guessed), np.array(real))
    assert 0 <= share <= 1
    assert share == label_accuracy(np.array(guessed[::-1]), np.array(real))
    assert label_accuracy(np.array(real), np.array(real)) == 1


def test_angles():
    basis = np.eye(2, 4)
    assert span_angle(basis, np.array([[1.0, 2, 0, 0], [3, 0, 0, 0]])) == 0
    assert span_angle(basis, np.array([[0.0, 0, 5, 0]])) == 90
    assert span_angle(basis, np.array([[1.0, 0, 1, 0]])) == pytest.approx(45)
    assert span_angle(None, np.ones((2, 4))) == span_angle(np.zeros((0, 4)), np.ones((2, 4))) == 90


def test_relative_error():
    truth = {"a": np.array([3.0]), "b": np.array([4.0])}
    assert relative_error(truth, truth) == 0
    assert relative_error({"a": np.array([3.0]), "b": np.array([4.5])}, truth) == pytest.approx(0.1)


# Small clients, and what is public.


def test_no_client_holds_a_public_row():
    data = losac.data.load("digits", clients=4)
    ground = cut(data, 8, seed=1)
    kept = {row.tobytes() for row in ground.clients.x}
    public = [(x, y) for x, y in zip(data.x, data.y) if x.tobytes() not in kept] + list(zip(*data.test))
    assert ground.clients.sizes.tolist() == [8] * 4
    zeros = np.mean([x for x, y in public if y == 0], axis=0)
    np.testing.assert_allclose(ground.class_means[0], zeros, rtol=1e-5)
    assert ground.data == ((64,), (0.0, 1.0), 10, (8, 8))


def test_cutting_refuses_what_is_not_there():
    with pytest.raises(ValueError, match="samples=400 must be at least 1, and at most 359"):
        cut(losac.data.load("digits", clients=4), 400)
    with pytest.raises(ValueError, match="has no labels"):
        cut(losac.data.load("quadratic", clients=4), 2)
    alone = losac.data.FederatedData.from_clients([(np.ones((2, 3)), [0, 1])], num_classes=2)
    assert cut(alone, 2).class_means is None
    assert cut(alone, 2).data.box is None
