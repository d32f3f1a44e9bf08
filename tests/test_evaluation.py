"""Evaluation per client: the numbers of a plain loop over the clients, and what is said of them."""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac.evaluation import rows

A = losac.algorithms
SIZES = (9, 4, 17, 4, 2, 30)


def logistic(sizes=SIZES, seed=0):
    rng = np.random.default_rng(seed)
    pairs = [(rng.normal(size=(n, 3)).astype("float32") + i / 3, rng.integers(0, 2, n)) for i, n in enumerate(sizes)]
    return losac.FederatedData.from_clients(pairs, num_classes=2)


TASK = losac.classification(losac.models.two_nn(3, 2, hidden=5), logistic())


@cache
def start():
    return TASK.params(jax.random.key(3))


@pytest.fixture(params=[rows.BUDGET, 40], ids=["one group", "many groups"])
def budget(request, monkeypatch):
    """Either all clients fit into one array, or few of them do and their number is padded."""
    monkeypatch.setattr(rows, "BUDGET", request.param)


@pytest.mark.usefixtures("budget")
def test_every_client_gets_what_it_would_measure_itself():
    found = losac.evaluate(TASK, start())
    for i in range(len(SIZES)):
        own = TASK.data.client(i)
        assert found.values["loss"][i] == pytest.approx(float(TASK.loss(start(), own)), rel=1e-5)
        assert found.values["accuracy"][i] == pytest.approx(float(TASK.metrics["accuracy"](start(), own)), rel=1e-5)


class Spread:
    """Not a mean over rows."""

    coupled: ClassVar[bool] = True

    def __call__(self, params, batch):
        return batch[0].max() - batch[0].min()


@pytest.mark.usefixtures("budget")
def test_a_metric_that_couples_rows_sees_all_of_a_clients_and_no_others():
    found = losac.evaluate(TASK, start(), metrics={"spread": Spread()})
    expected = [np.ptp(TASK.data.client(i)[0]) for i in range(len(SIZES))]
    np.testing.assert_allclose(found.values["spread"], expected, rtol=1e-6)
    assert list(found.values) == ["loss", "spread"]


def test_a_models_state_reaches_loss_and_metrics():
    def loss(params, batch, state):
        return jnp.mean(batch[0]) + params + state, state + 1

    def level(params, batch, state):
        return state * 1.0

    task = losac.Task(loss, jnp.zeros(()), TASK.data, state=jnp.asarray(2.0), metrics={"level": level})
    assert losac.evaluate(task, jnp.zeros(())).mean("level") == 2
    assert losac.evaluate(task, jnp.zeros(()), jnp.asarray(5.0)).mean("level") == 5


def test_double_precision_is_kept():
    params = jax.tree.map(lambda a: np.asarray(a, np.float64) + 1e-12, start())
    shift = losac.evaluate(TASK, params).values["loss"] - losac.evaluate(TASK, start()).values["loss"]
    assert 0 < np.abs(shift).max() < 1e-6


def test_the_numbers_in_short():
    values = np.array([0.9, 0.5, 0.7, 1.0] * 5)
    found = losac.PerClient({"accuracy": values, "loss": values}, np.array([1, 3, 1, 1] * 5))
    assert found.mean("accuracy") == pytest.approx(0.775)
    assert found.weighted_mean("accuracy") == pytest.approx((0.9 + 1.5 + 0.7 + 1.0) / 6)
    assert found.worst("accuracy") == 0.5
    assert found.worst("loss") == 1.0
    assert found.worst("accuracy", 1.0) == pytest.approx(0.775)
    assert found.std("accuracy") == pytest.approx(values.std())
    assert found.jain("accuracy") == pytest.approx(values.sum() ** 2 / (20 * (values**2).sum()))
    assert list(found.to_frame().columns) == ["client", "rows", "accuracy", "loss"]
    assert found.summary().loc["accuracy", "worst 10 %"] == 0.5
    assert "worst 10 %" in repr(found)
    with pytest.raises(KeyError, match="did you mean 'accuracy'"):
        found.mean("acuracy")


def test_fairness_is_between_one_client_and_all():
    assert losac.evaluation.jain(np.full(7, 0.3)) == pytest.approx(1)
    assert losac.evaluation.jain([0, 0, 0, 2.0]) == pytest.approx(1 / 4)
    assert losac.evaluation.jain(np.zeros(3)) == 1


def test_rows_are_held_out_at_every_client():
    train, held = losac.hold_out(TASK.data, 0.25, seed=1)
    assert held.sizes.tolist() == [2, 1, 4, 1, 1, 8]
    assert (train.sizes + held.sizes).tolist() == list(SIZES)
    for i in range(len(SIZES)):
        both = np.concatenate([train.client(i)[0], held.client(i)[0]])
        assert sorted(map(tuple, both)) == sorted(map(tuple, TASK.data.client(i)[0]))
    with pytest.raises(ValueError, match="client 1 has only one row"):
        losac.hold_out(logistic((3, 1)))
    with pytest.raises(ValueError, match="share between 0 and 1"):
        losac.hold_out(TASK.data, 1.5)


@pytest.mark.usefixtures("budget")
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_personal_steps_are_gradient_descent_of_each_client(reduction):
    """With the proximal operator of the client's own problem f_i + Ψ, in units of its mean loss."""
    psi = losac.prox.l1(0.01)
    task = losac.classification(losac.models.softmax_regression(3, 2), TASK.data, reduction=reduction, regularizer=psi)
    start = task.params(jax.random.key(0))
    train, held = losac.hold_out(task.data, 0.3)
    found = losac.personalize(
        losac.classification(losac.models.softmax_regression(3, 2), train, reduction=reduction, regularizer=psi),
        start, steps=3, step_size=0.4, data=held,
    )  # fmt: skip
    np.testing.assert_allclose(found.before.values["loss"], losac.evaluate(task, start, data=held).values["loss"])
    for i in range(len(SIZES)):
        w = start
        for _ in range(3):
            gradient = jax.grad(task.loss)(w, train.client(i))
            w = jax.tree.map(lambda a, g: a - 0.4 * g, w, gradient)
            w = psi.prox(w, 0.4 / train.sizes[i] if reduction == "sum" else 0.4)
        assert found.after.values["loss"][i] == pytest.approx(float(task.loss(w, held.client(i))), rel=1e-5)


def test_own_models_help_clients_that_differ():
    """Labels that mean something else at each client: no shared model can be right, each own one is."""
    rng = np.random.default_rng(0)
    pairs = []
    for i in range(6):
        x = rng.normal(size=(40, 2)).astype("float32")
        pairs.append((x, ((x[:, 0] > 0) ^ (i % 2)).astype("int32")))
    train, held = losac.hold_out(losac.FederatedData.from_clients(pairs, num_classes=2))
    task = losac.classification(losac.models.softmax_regression(2, 2), train, reduction="mean")
    run = losac.simulate(task, A.fedavg(0.1), rounds=5, eval_every=5)
    found = losac.personalize(task, run.params, steps=60, step_size=1.0, batch_size=8, data=held)
    assert found.before.mean("accuracy") < 0.8
    assert found.after.worst("accuracy") > 0.8
    assert found.gain("accuracy").mean() > 0.2
    assert found.gain("loss").min() > 0
    assert "better at" in repr(found)
    assert {"accuracy_before", "accuracy_after"} <= set(found.to_frame().columns)


def test_a_coupled_loss_is_personalised_on_whole_clients():
    def centred(params, batch):
        x, _ = batch
        return jnp.mean((x - x.mean(0) - params) ** 2)

    task = losac.Task(centred, jnp.ones(3), TASK.data, coupled=True)
    found = losac.personalize(task, jnp.ones(3), steps=40, step_size=0.5, fraction=0.4)
    spread = [np.asarray(losac.hold_out(TASK.data, 0.4)[1].client(i)[0]).var(0).mean() for i in range(len(SIZES))]
    np.testing.assert_allclose(found.after.values["loss"], spread, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0, "step_size": 0.1}, "steps=0 must be"),
        ({"step_size": -1.0}, "step_size=-1.0 must be"),
        ({"step_size": 0.1, "batch_size": 0}, "batch_size=0 must be"),
        ({"step_size": 0.1, "data": logistic((3, 3))}, "2 clients, the task 6"),
        ({"step_size": 0.1, "metrics": {"loss": len}}, "'loss' is taken"),
    ],
)
def test_wrong_input_gets_a_clear_error(options, message):
    with pytest.raises(ValueError, match=message):
        losac.personalize(TASK, start(), **options)


def test_pictures_are_drawn():
    found = losac.personalize(TASK, start(), steps=2, step_size=0.1)
    assert found.before.plot("accuracy").axes[0].get_ylabel() == "accuracy"
    assert found.plot().axes[0].get_xlabel() == "accuracy before"


def test_a_million_rows_of_many_clients_take_few_programs():
    from losac.evaluation.measure import at_clients

    data = losac.data.crowd(clients=20_000, samples=8, dim=60)
    task = losac.classification(losac.models.softmax_regression(60, 10), data)
    before = at_clients._cache_size()
    found = losac.evaluate(task, task.params(jax.random.key(0)))
    assert at_clients._cache_size() == before + 1
    assert found.mean("loss") == pytest.approx(np.log(10), rel=1e-4)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_model_that_diverged_is_not_scored(number):
    """The first class was taken for the answer to every row, and its share for an accuracy."""
    broken = jax.tree.map(lambda a: np.full_like(a, number), start())
    with pytest.raises(ValueError, match="not finite"):
        losac.evaluate(TASK, broken)
    with pytest.raises(ValueError, match="not finite"):
        losac.personalize(TASK, broken, step_size=0.1)


def test_personal_steps_that_are_too_long_are_a_divergence():
    """NaN came back without a word."""
    with pytest.raises(
        losac.DivergedError, match=r"step_size=1e\+30 diverged at 6 of 6 clients.*try step_size=2.5e\+29"
    ):
        losac.personalize(TASK, start(), steps=50, step_size=1e30)
