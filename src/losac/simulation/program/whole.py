"""Metrics that see all rows at once: computed after each call of the compiled program, not inside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from losac._checks import takes
from losac.metrics.declared import Metric, ScoreOfModel, is_whole, outputs_of, real_number, score_of
from losac.models.trained import with_frozen
from losac.simulation.program.arrays import cast, chunk_rows, frozen_weights, pad
from losac.simulation.program.cache import tracked
from losac.simulation.program.objective import Objective
from losac.simulation.program.rowmeans import compiled
from losac.task import Examples, Task
from losac.trees import Array, Tree


class WholeMetrics:
    """The whole-set metrics of a task, on its test rows, or its training rows if there are none.

    A model's outputs are computed chunk by chunk, once for all of its scores.
    """

    def __init__(self, task: Task, dtype: Any, examples: Examples | None = None) -> None:
        self.metrics: dict[str, Metric] = {name: metric for name, metric in task.metrics.items() if is_whole(metric)}
        given = examples or task.test
        rows: Examples = given if isinstance(given, tuple) else (task.data.x, task.data.y)
        self.x, self.y = rows
        self.dtype, self.frozen = dtype, frozen_weights(task, dtype) if self.metrics else ()
        self.chunk = len(self.x) if Objective.of(task).whole else chunk_rows(self.x)

    def __bool__(self) -> bool:
        return bool(self.metrics)

    def __call__(self, params: Tree, state: Tree) -> dict[str, np.ndarray]:
        """Return the metrics of a model, NaN if one is undefined; arrays [1], as of one evaluation."""
        found: dict[str, float] = {}
        outputs: dict[Metric, np.ndarray] = {}
        for name, metric in self.metrics.items():
            if isinstance(metric, ScoreOfModel):
                if metric.model not in outputs:
                    outputs[metric.model] = np.concatenate(list(self._outputs(metric.model, params, state)))
                found[name] = score_of(metric.score, outputs[metric.model], self.y)
            else:
                rows = cast(self.x, self.dtype), cast(self.y, self.dtype)
                with compiled(name):
                    found[name] = real_number(_measured(metric, params, state, self.frozen, rows))
        return {name: np.asarray([value]) for name, value in found.items()}

    def _outputs(self, model: Metric, params: Tree, state: Tree) -> Iterator[np.ndarray]:
        for first in range(0, len(self.x), self.chunk):
            x = cast(self.x[first : first + self.chunk], self.dtype)
            yield np.asarray(_outputs(model, params, pad(x, self.chunk), state, self.frozen))[: len(x)]


@tracked(static=1)
def _outputs(model: Metric, params: Tree, x: Array, state: Tree, frozen: Tree) -> Array:
    return outputs_of(model, params, x, state, frozen)


@tracked(static=1)
def _measured(metric: Metric, params: Tree, state: Tree, frozen: Tree, rows: Examples) -> Array:
    return with_frozen(metric, frozen)(params, rows, **({"state": state} if takes(metric, "state") else {}))
