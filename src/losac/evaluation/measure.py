"""Compute losses and metrics at many clients at once, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac._checks import described, takes
from losac.data import FederatedData
from losac.data.federated import check_data
from losac.metrics.declared import ScoreOfModel, check_mapping, check_metrics, is_whole, outputs_of, score_of
from losac.models.trained import with_frozen
from losac.simulation.program.arrays import frozen_weights
from losac.simulation.program.cache import tracked
from losac.simulation.program.objective import Chunk, Objective, per_row
from losac.simulation.program.rowmeans import row_means
from losac.task import Task, check_task
from losac.trees import Array, Tree

Metrics = Mapping[str, Callable[..., Any]]


class Measures(NamedTuple):
    """The loss, and the metrics by their names; static in compiled programs."""

    objective: Objective
    metrics: tuple[tuple[str, Callable[..., Any]], ...]

    @property
    def whole(self) -> bool:
        """Whether a compiled measure must see all rows of a client at once, without padding."""
        return self.objective.coupled or any(is_whole(metric) for _, metric in self.compiled)

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured: the loss first."""
        return ("loss", *(name for name, _ in self.metrics))

    @property
    def undefinable(self) -> frozenset[str]:
        """The metrics where NaN means undefined."""
        return frozenset(name for name, metric in self.metrics if is_whole(metric))

    @property
    def scores(self) -> list[tuple[str, ScoreOfModel]]:
        """The metrics that are computed in NumPy, from a model's outputs."""
        return [(name, metric) for name, metric in self.metrics if isinstance(metric, ScoreOfModel)]

    @property
    def compiled(self) -> list[tuple[str, Callable[..., Any]]]:
        """The other metrics."""
        return [(name, metric) for name, metric in self.metrics if not isinstance(metric, ScoreOfModel)]

    @property
    def models(self) -> tuple[Callable[..., Any], ...]:
        """The models that scores need outputs of, each once."""
        return tuple(dict.fromkeys(metric.model for _, metric in self.scores))

    def functions(self, state: Tree, frozen: Tree) -> list[Callable[..., Array]]:
        """Return all compiled measures, as functions of (params, rows, key)."""

        def loss(params: Tree, rows: Chunk, key: Array) -> Array:
            return self.objective.given(frozen).call(params, rows, key, state)[0]

        def as_function(metric: Callable[..., Any]) -> Callable[..., Array]:
            given = {"state": state} if takes(metric, "state") else {}
            return lambda params, rows, key: with_frozen(metric, frozen)(params, rows, **given)

        return [loss, *(as_function(metric) for _, metric in self.compiled)]


def check_model(task: Task, params: Tree, data: FederatedData | None) -> None:
    """Refuse parameters and rows that do not fit a task."""
    check_task(task)
    if data is not None:
        check_data(data)
        if data.x.shape[1:] != task.data.x.shape[1:] or data.y.shape[1:] != task.data.y.shape[1:]:
            raise ValueError(
                f"data has rows of shape {data.x.shape[1:]} with targets {data.y.shape[1:]}, the task's have "
                f"{task.data.x.shape[1:]} and {task.data.y.shape[1:]}"
            )
    expected = jax.eval_shape(task.init_params, _random.any_key())
    structure: Any = jax.tree.structure(expected)
    if jax.tree.structure(params) != structure:
        raise ValueError(f"params is {described(params)} of another structure than the task's parameters")
    for (path, wanted), leaf in zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(params)):
        if np.shape(leaf) != wanted.shape or np.asarray(leaf).dtype.kind != "f":
            found = f"{np.asarray(leaf).dtype}{list(np.shape(leaf))}"
            raise ValueError(
                f"parameter {jax.tree_util.keystr(path) or 'x'} is {found}; the task's has shape {wanted.shape}"
            )
        if not np.isfinite(leaf).all():
            raise ValueError(
                f"parameter {jax.tree_util.keystr(path) or 'x'} holds numbers that are not finite, as those of a run "
                "that diverged do; a metric such as the accuracy would mean nothing"
            )


def measures_of(task: Task, metrics: Metrics | None, params: Tree, state: Tree, data: FederatedData) -> Measures:
    """Return what to measure: by default the task's own metrics."""
    chosen = check_mapping(task.metrics if metrics is None else metrics)
    check_metrics(chosen, reserved=("loss",))
    found = Measures(Objective.of(task), tuple(chosen.items()))
    if not found.whole:
        dtype = dtype_of(params)
        row_means(chosen, lambda: (params, state, frozen_weights(task, dtype)), (data.x, data.y), dtype)
    return found


def at_client(
    measures: Measures, even: bool, params: Tree, state: Tree, frozen: Tree, x: Array, y: Array, size: Array
) -> tuple[Array, list[Array]]:
    """Return what is measured on a client's first ``size`` rows, and the outputs on all rows, for scores.

    With ``even`` there are no other rows.
    """
    key = _random.any_key()
    values = []
    for function in measures.functions(state, frozen):
        if even:
            value = function(params, (x, y), key)
        else:
            each = per_row(function, params, (x, y), key)
            value = jnp.where(jnp.arange(x.shape[0]) < size, each, 0).sum() / size
        values.append(jnp.asarray(value, jnp.result_type(float)))
    return jnp.stack(values), [outputs_of(model, params, x, state, frozen) for model in measures.models]


@tracked(static=2)
def at_clients(
    measures: Measures, even: bool, params: Tree, state: Tree, frozen: Tree, x: Array, y: Array, sizes: Array
) -> tuple[Array, list[Array]]:
    """Return the result of :func:`at_client` for one model, with a leading axis for clients."""
    return jax.vmap(lambda *rows: at_client(measures, even, params, state, frozen, *rows))(x, y, sizes)


def with_scores(measures: Measures, found: tuple[Array, list[Array]], y: Array, sizes: np.ndarray) -> np.ndarray:
    """Return [clients, measures]; scores are computed from the outputs on each client's own rows."""
    names = ["loss", *(name for name, _ in measures.compiled)]
    columns = dict(zip(names, np.asarray(found[0], float).T))
    outputs = dict(zip(measures.models, map(np.asarray, found[1])))
    for name, metric in measures.scores:
        rows = zip(outputs[metric.model], y, sizes)
        columns[name] = np.array([score_of(metric.score, one[:size], own[:size]) for one, own, size in rows])
    return np.stack([columns[name] for name in measures.names], axis=1)


def dtype_of(params: Tree) -> np.dtype[Any]:
    """Return the precision to compute in: double if the parameters are double."""
    double = any(np.asarray(leaf).dtype == np.float64 for leaf in jax.tree.leaves(params))
    return np.dtype(np.float64 if double else np.float32)
