"""``losac.personalize``: every client goes on from the shared model with its own rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac._devices import prepare_jax
from losac.data import FederatedData
from losac.evaluation.evaluate import evaluate
from losac.evaluation.measure import Measures, Metrics, at_client, dtype_of, measures_of
from losac.evaluation.per_client import PerClient, Personalized
from losac.evaluation.rows import groups, hold_out, padded, row_numbers
from losac.prox import Regularizer
from losac.simulation.engine import precision
from losac.simulation.objective import Batch, Cut
from losac.task import Task
from losac.trees import Array, Tree, axpy


def personalize(
    task: Task,
    params: Tree,
    *,
    steps: int = 10,
    step_size: float,
    batch_size: int | None = None,
    data: FederatedData | None = None,
    fraction: float = 0.25,
    seed: int = 0,
    model_state: Tree = None,
    metrics: Metrics | None = None,
) -> Personalized:
    """Let every client take some steps of gradient descent of its own, and measure on rows not used for them.

    The steps go down the mean loss of the client's rows, whatever the task's reduction; a regulariser acts by its
    proximal operator. Nothing is sent anywhere.

    Args:
      task: as trained.
      params: the shared model, such as a history's ``params``.
      steps: how many steps each client takes.
      step_size: of each, for the mean loss.
      batch_size: rows per step, drawn with replacement; all of the client's by default.
      data: held-out rows of the task's clients, in the same order, as :func:`losac.hold_out` gives them before the
        training. By default a share of every client's own rows is kept from these steps; the shared model was
        trained on them, so that *before* then looks better than it is.
      fraction: that share.
      seed: decides the rows held out, and the batches.
      model_state, metrics: as for :func:`losac.evaluate`.

    >>> import losac
    >>> train, held = losac.hold_out(losac.data.load("digits", clients=10, partition="dirichlet:0.3"))
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), train)
    >>> history = losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=5, eval_every=5)
    >>> found = losac.personalize(task, history.params, steps=20, step_size=0.5, data=held)
    >>> found.after.mean("accuracy") > found.before.mean("accuracy")
    True
    """
    prepare_jax()
    _check(steps, step_size, batch_size)
    own, held = hold_out(task.data, fraction, seed=seed) if data is None else (task.data, data)
    if own.num_clients != held.num_clients:
        raise ValueError(
            f"data has {held.num_clients} clients, the task {own.num_clients}; give held-out rows of the same clients, "
            "as losac.hold_out makes them"
        )
    state = task.state if model_state is None else model_state
    measures = measures_of(task, metrics)
    found = np.empty((held.num_clients, len(measures.names)))
    numbers = row_numbers(held) + sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params))
    with precision(dtype_of(params)):
        for ids, real, length in groups(held.sizes, numbers, measures.whole):
            mine = padded(own, ids, 1 << int(own.sizes[ids].max() - 1).bit_length())
            theirs = padded(held, ids, length)
            cut = Cut(mine[0].shape[1], tuple(sorted({int(size) for size in mine[2]})))
            keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.asarray(ids, jnp.uint32))
            values = _tuned(
                measures, cut, bool((theirs[2] == length).all()), batch_size, task.reduction == "sum", steps,
                task.regularizer, step_size, params, state, keys, mine, theirs,
            )  # fmt: skip
            found[ids[:real]] = np.asarray(values)[:real]
    before = evaluate(task, params, model_state, metrics, data=held)
    return Personalized(before, PerClient(dict(zip(measures.names, found.T)), held.sizes, held.name))


@partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _tuned(
    measures: Measures,
    cut: Cut,
    even: bool,
    batch_size: int | None,
    summed: bool,
    steps: Any,
    regularizer: Regularizer,
    step_size: Any,
    params: Tree,
    state: Tree,
    keys: Array,
    mine: Any,
    theirs: Any,
) -> Array:
    """Return [clients, measures] on the held-out rows, each client with its own model."""
    objective = measures.objective

    def at(key: Array, mine: tuple[Array, Array, Array], theirs: tuple[Array, Array, Array]) -> Array:
        x, y, size = mine

        def loss(w: Tree, state: Tree, key: Array) -> tuple[Array, Tree]:
            draw, noise = jax.random.split(key)
            if batch_size is None:
                total, after = objective.total(w, Batch(x, y, size), cut, noise, state)
                return total / size, after
            rows = jax.random.randint(draw, (batch_size,), 0, size)
            return objective.call(w, (x[rows], y[rows]), noise, state)

        def step(t: Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            w, state = carry
            gradient, after = jax.grad(loss, has_aux=True)(w, state, jax.random.fold_in(key, t))
            w = axpy(-step_size, gradient, w)
            return regularizer.prox(w, step_size / size if summed else step_size), after

        w, after = jax.lax.fori_loop(0, steps, step, (params, state))
        return at_client(measures, even, w, after, *theirs)

    return jax.vmap(at)(keys, mine, theirs)


def _check(steps: int, step_size: float, batch_size: int | None) -> None:
    for name, value in (("steps", steps), ("batch_size", 1 if batch_size is None else batch_size)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
    if not step_size > 0:
        raise ValueError(f"step_size={step_size!r} must be a positive number")
