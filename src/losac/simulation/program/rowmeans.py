"""Finds out which metrics the compiled program may take row by row: those that are means over rows.

A metric, or a loss, is compared on some rows at once with its mean over these rows one by one, with the given model and
with random ones near it: where a model starts at zero, wrong metrics may agree by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random, losses
from losac._checks import described, takes
from losac._compat import enable_x64
from losac.metrics.declared import Metric, is_whole
from losac.models.built import Convolutional, Dense, Inner
from losac.models.trained import with_frozen
from losac.simulation.program.alike import first_alike
from losac.simulation.program.arrays import cast
from losac.simulation.program.cache import tracked
from losac.simulation.program.objective import Chunk, Objective, per_row
from losac.task import Examples, Task
from losac.trees import Array, Tree, map_trees, nbytes

ROWS = 128
"""The number of rows tried, or all if there are fewer."""
LARGE, FEW_ROWS = 2**24, 4
"""With frozen weights of so many bytes a row takes long, and fewer are tried."""
MODELS = 5
SCALE = 0.1
"""The standard deviation of the difference between random models, in each number."""
TOLERANCE = 1e-4
"""Relative to the mean size of a row's value: far above rounding."""


def row_means(
    metrics: Mapping[str, Metric], model: Callable[[], tuple[Tree, Tree, Tree]], examples: Examples, dtype: Any
) -> tuple[tuple[str, Metric], ...]:
    """Return the metrics that are means over rows; refuse those that are neither that nor declared whole.

    Args:
      metrics: name → metric.
      model: returns parameters, model state and frozen weights.
      examples: x and y of the rows that are measured.
      dtype: of the run.
    """
    means = only_means(metrics)
    unknown = {name: metric for name, metric in means.items() if getattr(metric, "coupled", None) is None}
    if unknown and len(examples[0]) > 1:
        with enable_x64(np.dtype(dtype).itemsize == 8), jax.default_matmul_precision("highest"):
            own = model()
            for name, metric in unknown.items():
                _try_out(name, metric, own, examples, dtype)
    return tuple(means.items())


def check_loss(task: Task, model: Callable[[], tuple[Tree, Tree, Tree]], dtype: Any) -> None:
    """Refuse a loss that is not a mean over rows and does not say that it couples them, such as a sum.

    A loss with a random key cannot be tried out so, and losac's own need not be.
    """
    objective = Objective.of(task)
    if objective.whole or objective.takes_key or _is_own(task.loss) or len(task.data) < 2:
        return
    with enable_x64(np.dtype(dtype).itemsize == 8), jax.default_matmul_precision("highest"):
        examples = (task.data.x, task.data.y)
        found = _difference("the loss", _Evaluated(objective), model(), examples, dtype)
    if found is not None:
        count, together, alone = found
        raise ValueError(
            f"the loss is not a mean over rows: on {count} rows at once it is {together:.4g}, but its mean over them "
            f"one by one is {alone:.4g}; return the mean of the batch, or where it couples the rows, say Task(…, "
            "coupled=True), and it sees whole batches"
        )


def _is_own(loss: Any) -> bool:
    loss = loss.loss if isinstance(loss, losses.Decayed) else loss
    return type(loss).__module__ == losses.__name__ and isinstance(loss.model, Convolutional | Dense | Inner)


@dataclass(frozen=True)
class _Evaluated:
    """The loss as a metric, in the form that is evaluated."""

    objective: Objective

    def __call__(self, params: Tree, rows: Chunk, state: Tree = None, frozen: Tree = None) -> Array:
        return self.objective.given(frozen).call(params, rows, _random.any_key(), state, training=False)[0]


def only_means(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that are not declared whole."""
    return {name: first_alike(metric) for name, metric in metrics.items() if not is_whole(metric)}


@contextmanager
def compiled(name: str) -> Iterator[None]:
    """Raise a clear error if a metric cannot be compiled."""
    try:
        yield
    except jax.errors.TracerArrayConversionError:
        raise TypeError(
            f"metric {name!r} cannot be compiled: write it in jax.numpy, or if it computes with NumPy or "
            "scikit-learn, as a function of outputs and targets declared by losac.metrics.score"
        ) from None


def _try_out(name: str, metric: Metric, model: tuple[Tree, Tree, Tree], examples: Examples, dtype: Any) -> None:
    """Refuse a metric that differs from its mean over rows."""
    with compiled(name):
        found = _difference(f"metric {name!r}", metric, model, examples, dtype)
    if found is None:
        return
    count, together, alone = found
    raise ValueError(
        f"metric {name!r} is not a mean over rows: on {count} rows at once it is {together:.4g}, but its mean "
        f"over them one by one, which a simulation takes, is {alone:.4g}; declare it, as "
        "losac.metrics.whole(metric), and it sees all rows at once"
    )


def _difference(
    name: str, metric: Metric, model: tuple[Tree, Tree, Tree], examples: Examples, dtype: Any
) -> tuple[int, float, float] | None:
    """Return the number of rows, a value on them at once and its mean over them, where these differ on two choices of
    rows and models."""
    most = ROWS if nbytes(model[2]) < LARGE else FEW_ROWS
    differences = []
    for seed in range(2):
        rng = _random.trial_generator(seed)
        rows = np.sort(rng.permutation(len(examples[0]))[:most])
        x, y = (cast(np.asarray(a[rows]), dtype) for a in examples)
        one_by_one, at_once, size = map(np.asarray, _both(metric, _random.run_key(seed), model, x, y))
        if at_once.shape != (MODELS,):
            raise TypeError(f"{name} must return one number, not an array of shape {at_once.shape[1:]}")
        alone_finite, together_finite = np.isfinite(one_by_one), np.isfinite(at_once)
        close = np.abs(one_by_one - at_once) <= TOLERANCE * np.maximum(size, np.abs(at_once))  # true of infinite sizes
        apart = (alone_finite != together_finite) | (alone_finite & ~close)
        if not apart.any():
            return None
        differences.append((len(rows), float(at_once[apart][0]), float(one_by_one[apart][0])))
    return differences[0]


@tracked(static=1)
def _both(metric: Metric, key: Array, model: tuple[Tree, Tree, Tree], x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return a metric's mean over rows one by one, its value on all at once, and the mean size of a row's value."""
    params, state, frozen = model
    metric = with_frozen(metric, frozen)
    given = {"state": state} if takes(metric, "state") else {}
    leaves, structure = jax.tree.flatten(map_trees(jnp.asarray, params))

    def one(number: Array) -> tuple[Array, Array, Array]:
        keys = _random.leaf_keys(_random.trial_key(key, number), len(leaves))
        noise = [SCALE * jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves)]
        own = jax.tree.unflatten(structure, [a + jnp.where(number > 0, n, 0) for a, n in zip(leaves, noise)])
        at_once = _number(metric(own, (x, y), **given))
        each = per_row(lambda p, rows, _: _number(metric(p, rows, **given)), own, (x, y), key)
        return each.mean(0), at_once, jnp.abs(each).mean(0)

    return jax.vmap(one)(jnp.arange(MODELS))


def _number(value: Any) -> Array:
    if not hasattr(value, "dtype") and not isinstance(value, int | float):
        raise TypeError(f"a metric returned {described(value)}; it must return one number, the mean of the batch")
    if jnp.iscomplexobj(value):
        raise TypeError("a metric returned a complex number; it must return a real one")
    return jnp.asarray(value)
