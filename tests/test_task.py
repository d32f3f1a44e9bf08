"""Tasks and models: what they accept, what they refuse, and what a newcomer reads when she is wrong."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac

A = losac.algorithms


@functools.cache
def digits():
    return losac.data.load("digits", clients=6, partition="dirichlet:0.5")


@pytest.mark.parametrize(
    "model",
    [
        lambda: losac.models.softmax_regression(64, 10),
        lambda: losac.models.two_nn(64, 10),
        lambda: losac.models.two_nn(64, 10, start="he"),
        lambda: losac.models.cnn((8, 8, 1), 10),
        lambda: losac.models.Function(lambda key: jnp.zeros((64, 10)), lambda w, x: x @ w),
        lambda: losac.models.from_flax(nn.Sequential([nn.Dense(16), nn.relu, nn.Dense(10)]), digits().x[:2]),
    ],
    ids=["softmax_regression", "two_nn", "two_nn-he", "cnn", "function", "flax"],
)
def test_every_model_learns_digits(model):
    task = losac.classification(model(), digits(), reduction="mean")
    run = losac.simulate(task, A.fedavg(0.2, batch_size=16, epochs=1), rounds=15, eval_every=15)
    assert run.final("accuracy") > 0.6
    assert run.final("loss") < run.metrics["loss"][0]


def test_the_papers_start():
    """2NN 784-200-200-10: Glorot-uniform weights within ±√(6/(in+out)), zero biases; the seed decides."""
    model = losac.models.two_nn()
    params = model.init(jax.random.key(0))
    assert [p["w"].shape for p in params] == [(784, 200), (200, 200), (200, 10)]
    for layer in params:
        bound = np.sqrt(6 / sum(layer["w"].shape))
        assert np.abs(layer["w"]).max() <= bound
        assert np.std(layer["w"]) == pytest.approx(bound / np.sqrt(3), rel=0.05)
        assert not layer["b"].any()
    assert not np.array_equal(params[0]["w"], model.init(jax.random.key(1))[0]["w"])


def test_models_compare_by_value_so_that_programs_are_reused():
    from losac.simulation.engines.resident import _run

    def go(step):
        task = losac.classification(losac.models.softmax_regression(64, 10), digits())
        return losac.simulate(task, A.fedavg(step), rounds=2, seed=int(1e4 * step))

    go(1e-3)
    compiled = _run._cache_size()
    go(2e-3)
    assert _run._cache_size() == compiled


def test_binary_and_plain_losses():
    data = losac.data.logistic(clients=4, samples=20, dim=3, seed=0)
    task = losac.classification(losac.models.logistic_regression(3), data, reduction="mean")
    run = losac.simulate(task, A.losac(0.5, 2, 2), rounds=30, clients_per_round=2, eval_every=30)
    assert run.final("accuracy") > 0.6
    bare = losac.Task(task.loss, task.params, data, test=None)
    assert set(losac.simulate(bare, A.dsgd(0.01), rounds=1).metrics) == {"loss"}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: losac.Task(None, 0.0, digits()), TypeError, r"loss must be a function"),
        (lambda: losac.Task(lambda p, b: p, 0.0, [(1, 2)]), TypeError, r"FederatedData\.from_clients"),
        (lambda: losac.Task(lambda p, b: p, 0.0, digits(), reduction="max"), ValueError, r"'sum' \(the paper\)"),
        (lambda: losac.Task(lambda p, b: p, 0.0, digits(), weights=[1, 2]), ValueError, r"there are 6 clients"),
        (lambda: losac.Task(lambda p, b: p, 0.0, digits(), metrics={"loss": len}), ValueError, r"are taken"),
        (lambda: losac.Task(lambda p, b, state: p, 0.0, digits()), ValueError, r"Task\(state=…\)"),
        (lambda: losac.Task(lambda p, b: p, 0.0, digits(), state=1), ValueError, r"no argument named 'state'"),
        (
            lambda: losac.classification(losac.models.two_nn(64, 5), digits()),
            ValueError,
            r"5 outputs but the labels reach 9",
        ),
        (lambda: losac.models.two_nn(64, 10, start="hee").init(jax.random.key(0)), ValueError, r"'glorot'"),
        (
            lambda: losac.simulate(losac.Task(lambda p, b: p * 1.0, 3, digits()), A.dsgd(1.0), rounds=1),
            ValueError,
            r"dtype",
        ),
    ],
)
def test_wrong_input_gets_a_clear_error(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_flax_module_with_batch_statistics_says_what_to_do():
    with pytest.raises(ValueError, match="batch_stats"):
        losac.models.from_flax(nn.BatchNorm(use_running_average=False), digits().x[:2])
