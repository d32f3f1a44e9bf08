"""What the server of a federation starts from and measures by; it has no training data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from losac.federation.evaluate import evaluate
from losac.prox import Regularizer
from losac.prox import zero as no_regularizer
from losac.simulation.program import setup
from losac.task import Task
from losac.trees import Tree


def nothing(params: Tree, model_state: Tree) -> dict[str, float]:
    """Measure nothing."""
    return {}


class Central(NamedTuple):
    """The first model and its state, the regulariser, and what is measured of a model on the server's own data.

    ``frozen`` is the digest of the frozen weights, which every client has itself; empty if there are none.
    """

    params: Tree
    model_state: Tree = ()
    regularizer: Regularizer = no_regularizer()
    evaluate: Callable[[Tree, Tree], dict[str, float]] = nothing
    name: str = ""
    frozen: str = ""


def central_of(task: Task, seed: int, dtype: str) -> Central:
    """Return the server's part of a task: its first model by the seed, and its test data; no other data is used."""
    params, model_state, _ = setup.start(task, seed, np.dtype(dtype))
    assert task.regularizer is not None
    setup.mean_metrics(task, dtype)

    def measure(params: Tree, model_state: Tree) -> dict[str, float]:
        if not isinstance(task.test, tuple):
            return {}
        found = evaluate(task, task.test, params, model_state, dtype)
        return {"test_loss": found.pop("loss"), **found}

    return Central(params, model_state, task.regularizer, measure, task.name, task.frozen_digest)
