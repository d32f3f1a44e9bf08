"""Schedules by name: their values, their texts, and the runs that use them."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from losac import schedules
from losac.experiment.file import sections_of
from losac.experiment.options import Experiment

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cosine:0.4:10", {0: 0.4, 5: 0.2, 10: 0.0, 99: 0.0}),
        ("cosine:0.4:10:0.2", {0: 0.4, 5: 0.3, 10: 0.2, 99: 0.2}),
        ("warmup:0.4:4", {0: 0.1, 1: 0.2, 3: 0.4, 99: 0.4}),
        ("warmup_cosine:0.4:4:14", {0: 0.1, 3: 0.4, 4: 0.4, 9: 0.2, 14: 0.0}),
        ("step:0.4:3:0.5", {0: 0.4, 2: 0.4, 3: 0.2, 6: 0.1}),
        ("inverse_sqrt:0.4", {0: 0.4, 3: 0.2, 99: 0.04}),
    ],
)
def test_values_and_texts(text, values):
    schedule = schedules.parse(text)
    for r, value in values.items():
        assert float(schedule(r)) == pytest.approx(value, abs=1e-7)
    assert repr(schedule) == text
    assert schedules.parse(repr(schedule)) == schedule
    (built,) = Experiment().build_algorithms([f"fedavg:step_size={text}"])
    assert sections_of(built)["step_size"] == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cosine:0.4", "not of the form cosine:PEAK:ROUNDS"),
        ("cosine:-1:5", "peak=-1.0 must be a positive number"),
        ("cosine:1:0", "rounds=0 must be a whole number of at least 1"),
        ("step:1:5:2", r"factor=2.0 must be a number in \[0, 1\]"),
        ("warmup_cosine:1:5:5", "rounds=5 must be more than the 5 that warm up"),
        ("inverse_sqrt:a", "'a' must be a number"),
    ],
)
def test_wrong_texts_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        schedules.parse(text)


def test_a_run_follows_its_schedule():
    """One client with one full step and the loss ½w²: the model is the product of 1 − η_r."""
    data = losac.FederatedData.from_clients([(np.ones((1, 1)), np.zeros(1))])
    task = losac.Task(lambda w, batch: 0.5 * ((batch[0] * w) ** 2).mean(), np.ones(1), data)
    schedule = schedules.cosine(0.5, 4)
    algorithm = losac.algorithms.fedavg(step_size=schedule, local_steps=1, blocks=1)
    history = losac.simulate(task, algorithm, rounds=5, dtype="float64")
    assert float(history.params[0]) == pytest.approx(np.prod([1 - float(schedule(r)) for r in range(5)]), rel=1e-6)
