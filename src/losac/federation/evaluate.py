"""Loss and metrics of a model on some examples, in chunks that fit in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from losac import _random
from losac._checks import takes
from losac.simulation.engines.resident import precision
from losac.simulation.program.arrays import cast, chunk_rows, frozen_weights
from losac.simulation.program.objective import Objective
from losac.simulation.program.rowmeans import only_means
from losac.simulation.program.whole import WholeMetrics
from losac.task import Examples, Task
from losac.trees import Tree


def evaluate(task: Task, examples: Examples, params: Tree, model_state: Tree, dtype: Any) -> dict[str, float]:
    """Return the mean loss and the task's metrics on some examples."""
    objective = Objective.of(task)
    with precision(np.dtype(dtype)):
        x, y = (cast(a, dtype) for a in examples)
        size = len(x) if objective.whole else chunk_rows(x)
        parts = [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]
        frozen = frozen_weights(task, dtype)
        found = {"loss": sum(len(p[0]) * _loss(objective)(params, p, model_state, frozen) for p in parts) / len(x)}
        for name, metric in only_means(task.metrics).items():
            more = {"state": model_state} if takes(metric, "state") else {}
            more |= {"frozen": frozen} if task.frozen is not None and takes(metric, "frozen") else {}
            found[name] = sum(len(p[0]) * _metric(metric)(params, p, **more) for p in parts) / len(x)
        found |= {name: value[0] for name, value in WholeMetrics(task, dtype, examples)(params, model_state).items()}
    return {name: float(value) for name, value in found.items()}


@lru_cache(maxsize=8)
def _loss(objective: Objective) -> Callable[..., Any]:
    def loss(params: Tree, batch: Examples, state: Tree, frozen: Tree) -> Any:
        return objective.given(frozen).call(params, batch, _random.any_key(), state, training=False)[0]

    return jax.jit(loss)


@lru_cache(maxsize=16)
def _metric(metric: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(metric)
