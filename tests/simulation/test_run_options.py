"""Runs that end early, clients that draw their numbers of local steps, and weight decay."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import losac
from losac.runs import open_run, record
from losac.testing.problems import quadratic


@pytest.fixture(scope="module")
def task():
    return losac.classification(
        losac.models.softmax_regression(64, 10), losac.data.load("digits", clients=10, partition="sorted")
    )


LOSAC = losac.algorithms.losac(step_size=1e-3, local_steps=4, blocks=5)


def test_a_run_ends_at_the_first_evaluation_that_is_there(task, tmp_path):
    options = {"clients_per_round": 5, "eval_every": 2}
    whole = losac.simulate(task, LOSAC, rounds=20, **options)
    for goal in ("accuracy=0.8", "loss=1.5"):
        metric, value = goal.split("=")
        early = losac.simulate(task, LOSAC, rounds=20, until=goal, **options)
        assert early.rounds[-1] == whole.rounds_to(metric, float(value)) < 20
        np.testing.assert_array_equal(early.metric("loss"), whole.metric("loss")[: len(early.rounds)])
        assert early.planned == early.rounds[-1]
    kept = record(task, LOSAC, tmp_path, rounds=20, until="accuracy=0.8", **options)
    found = open_run(tmp_path)
    assert (found.status, found.last, found.history().planned) == ("finished", kept.rounds[-1], kept.rounds[-1])
    before = (tmp_path / "history.npz").stat().st_mtime_ns
    again = record(task, LOSAC, tmp_path, rounds=20, until="accuracy=0.8", resume=True, **options)
    assert again.rounds[-1] == kept.rounds[-1]
    assert (tmp_path / "history.npz").stat().st_mtime_ns == before, "the run is complete"
    further = record(task, LOSAC, tmp_path, rounds=20, resume=True, **options)
    np.testing.assert_array_equal(further.metric("loss"), whole.metric("loss"))


def test_what_is_no_goal_is_refused(task):
    for goal, words in (
        ("accurracy=0.9", "did you mean 'accuracy'"),
        ("accuracy", "METRIC=NUMBER"),
        ("accuracy=nan", "METRIC=NUMBER"),
    ):
        with pytest.raises(ValueError, match=words):
            losac.simulate(task, LOSAC, rounds=2, until=goal)
    with pytest.raises(TypeError, match="until"):
        losac.sweep(task, LOSAC, {"step_size": [1e-3]}, rounds=2, until="loss=1")


def test_clients_draw_their_numbers_of_local_steps():
    """Between the two, evenly, anew for each client and round; gradients are counted accordingly."""
    task = quadratic(clients=4).task
    algorithm = losac.algorithms.fedavg(step_size=1e-3, local_steps=1, blocks=1)
    history = losac.simulate(task, algorithm, rounds=150, random_steps="2:5")
    rows = int(task.data.sizes[0])
    assert (task.data.sizes == rows).all()
    steps = np.diff(history.gradients) / rows
    assert steps.min() >= 4 * 2
    assert steps.max() <= 4 * 5
    assert steps.mean() / 4 == pytest.approx(3.5, abs=0.15)
    assert len(np.unique(steps)) > 6
    with pytest.raises(ValueError, match="equally many local steps of all clients"):
        losac.simulate(task, losac.algorithms.vrl_sgd(1e-3, local_steps=1, blocks=1), rounds=1, random_steps="1:2")
    for text in ("0:2", "3:2", "3", "a:b", "1:2:3"):
        with pytest.raises(ValueError, match="LEAST:MOST"):
            losac.simulate(task, algorithm, rounds=1, random_steps=text)


def test_weight_decay_adds_to_every_gradient():
    """One step of all clients is w − η (Σ ∇f + n λ w) for f_i = sum, w − η (∇f + λ w) for the mean."""
    data = losac.data.quadratic(clients=2, samples=6, dim=3, seed=0)
    start, decay, eta = np.arange(1.0, 4.0), 0.3, 1e-2
    model = losac.models.Function(lambda key: start, lambda w, x: x @ w)
    for reduction, rows in (("sum", 6), ("mean", 1)):
        plain = losac.regression(model, data, reduction=reduction)
        decayed = losac.regression(model, data, reduction=reduction, weight_decay=decay)
        algorithm = losac.algorithms.fedavg(step_size=eta, local_steps=1, blocks=1)
        ends = [losac.simulate(t, algorithm, rounds=1, dtype="float64").params for t in (plain, decayed)]
        np.testing.assert_allclose(ends[1], ends[0] - eta * rows * decay * start, rtol=1e-12)
    value = jax.grad(lambda w: decayed.loss(w, (data.x, data.y)) - plain.loss(w, (data.x, data.y)))(start)
    np.testing.assert_allclose(value, decay * start, rtol=1e-5)
    with pytest.raises(ValueError, match="weight_decay=-1"):
        losac.regression(model, data, weight_decay=-1)
