"""Losses and metrics at many clients at once, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac.simulation.objective import Chunk, Objective, per_row
from losac.task import Task, takes
from losac.trees import Array, Tree

Metrics = Mapping[str, Callable[..., Any]]


class Measures(NamedTuple):
    """The loss, and the metrics by their names; static in compiled programs."""

    objective: Objective
    metrics: tuple[tuple[str, Callable[..., Any]], ...]

    @property
    def whole(self) -> bool:
        """Whether some measure must see all rows of a client at once, and no others."""
        return self.objective.coupled or any(getattr(metric, "coupled", False) for _, metric in self.metrics)

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured: the loss first."""
        return ("loss", *(name for name, _ in self.metrics))

    def functions(self, state: Tree) -> list[Callable[..., Array]]:
        """Return everything that is measured as functions of (params, rows, key)."""

        def loss(params: Tree, rows: Chunk, key: Array) -> Array:
            return self.objective.call(params, rows, key, state)[0]

        def as_function(metric: Callable[..., Any]) -> Callable[..., Array]:
            given = {"state": state} if takes(metric, "state") else {}
            return lambda params, rows, key: metric(params, rows, **given)

        return [loss, *(as_function(metric) for _, metric in self.metrics)]


def measures_of(task: Task, metrics: Metrics | None) -> Measures:
    """Return what to measure: the task's own metrics, unless others are given."""
    chosen = dict(task.metrics if metrics is None else metrics)
    if "loss" in chosen:
        raise ValueError("the name 'loss' is taken by the task's loss; give the metric another name")
    for name, metric in chosen.items():
        if not callable(metric):
            raise TypeError(f"metric {name!r} must be a function metric(params, (x, y)), not {type(metric).__name__}")
    return Measures(Objective.of(task), tuple(chosen.items()))


def at_client(measures: Measures, even: bool, params: Tree, state: Tree, x: Array, y: Array, size: Array) -> Array:
    """Return everything measured on the first ``size`` rows of a client; where even, there are no others."""
    key = jax.random.key(0)
    values = []
    for function in measures.functions(state):
        if even:
            value = function(params, (x, y), key)
        else:
            each = per_row(function, params, (x, y), key)
            value = jnp.where(jnp.arange(x.shape[0]) < size, each, 0).sum() / size
        values.append(jnp.asarray(value, jnp.result_type(float)))
    return jnp.stack(values)


@partial(jax.jit, static_argnums=(0, 1))
def at_clients(measures: Measures, even: bool, params: Tree, state: Tree, x: Array, y: Array, sizes: Array) -> Array:
    """Return [clients, measures] of one model."""
    return jax.vmap(lambda *rows: at_client(measures, even, params, state, *rows))(x, y, sizes)


def dtype_of(params: Tree) -> np.dtype[Any]:
    """Return the precision to compute in: double where the parameters are."""
    double = any(np.asarray(leaf).dtype == np.float64 for leaf in jax.tree.leaves(params))
    return np.dtype(np.float64 if double else np.float32)
