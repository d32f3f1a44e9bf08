"""``losac.personalize``: every client fine-tunes the shared model on its own rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac._checks import POSITIVE, check_count, check_number
from losac._devices import prepare_jax
from losac._seeds import check_seed
from losac.data import FederatedData
from losac.evaluation.evaluate import evaluate
from losac.evaluation.measure import Measures, Metrics, at_client, check_model, dtype_of, measures_of, with_scores
from losac.evaluation.per_client import PerClient, Personalized
from losac.evaluation.rows import groups, hold_out, padded, row_numbers
from losac.history.history import DivergedError
from losac.prox import Regularizer
from losac.simulation.engines.intervals import MOST_ROUNDS
from losac.simulation.engines.resident import precision
from losac.simulation.program.arrays import frozen_weights
from losac.simulation.program.cache import tracked
from losac.simulation.program.objective import Batch, Cut
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
    """Let every client take some steps of gradient descent, and measure on rows not used for them.

    The steps minimise the mean loss of the client's rows, for either reduction of the task; a regulariser acts through
    its proximal operator. Nothing is sent.

    Args:
      task: the task that was trained.
      params: the shared model, such as a history's ``params``.
      steps: how many steps each client takes.
      step_size: the step size, for the mean loss.
      batch_size: rows per step, drawn with replacement; by default all rows of the client.
      data: held-out rows of the task's clients, in the same order, from :func:`losac.hold_out` before training. By
        default a share of every client's own rows is not used in these steps; but the shared model was trained on them,
        and *before* then looks better than it is.
      fraction: that share.
      seed: decides the rows held out, and the batches.
      model_state, metrics: as for :func:`losac.evaluate`.

    Steps that lead a client's loss beyond the finite numbers raise :class:`~losac.DivergedError`.

    >>> import losac
    >>> train, held = losac.hold_out(losac.data.load("digits", clients=10, partition="dirichlet:0.3"))
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), train)
    >>> history = losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=5, eval_every=5)
    >>> found = losac.personalize(task, history.params, steps=20, step_size=0.5, data=held)
    >>> found.after.mean("accuracy") > found.before.mean("accuracy")
    True
    """
    prepare_jax()
    seed = check_seed(seed)
    _check(steps, step_size, batch_size)
    check_model(task, params, data)
    own, held = hold_out(task.data, fraction, seed=seed) if data is None else (task.data, data)
    if own.num_clients != held.num_clients:
        raise ValueError(
            f"data has {held.num_clients} clients, the task {own.num_clients}; give held-out rows of the same clients, "
            "as losac.hold_out makes them"
        )
    if batch_size is not None and batch_size > own.sizes.sum():
        raise ValueError(
            f"batch_size={batch_size} is more than the {own.sizes.sum()} rows that all clients have together"
        )
    state = task.state if model_state is None else model_state
    measures = measures_of(task, metrics, params, state, held)
    found = np.empty((held.num_clients, len(measures.names)))
    numbers = row_numbers(held) + sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params))
    with precision(dtype_of(params)):
        for ids, real, length in groups(held.sizes, numbers, measures.whole):
            mine = padded(own, ids, 1 << int(own.sizes[ids].max() - 1).bit_length())
            theirs = padded(held, ids, length)
            cut = Cut(mine[0].shape[1], tuple(sorted({int(size) for size in mine[2]})))
            keys = jax.vmap(_random.personal_key, (None, 0))(seed, jnp.asarray(ids, jnp.uint32))
            even = bool((theirs[2] == length).all())
            descent = Descent(measures, cut, even, batch_size, task.reduction == "sum")
            model = params, state, frozen_weights(task, dtype_of(params))
            values = _tuned(descent, steps, step_size, task.regularizer, model, keys, mine, theirs)
            found[ids[:real]] = with_scores(measures, values, theirs[1], theirs[2])[:real]
    before = evaluate(task, params, model_state, metrics, data=held)
    _check_finite(found[:, 0], before.values["loss"], step_size)
    after = PerClient(dict(zip(measures.names, found.T)), held.sizes, held.name, measures.undefinable)
    return Personalized(before, after)


class Descent(NamedTuple):
    """Static facts about the steps of a group of clients, and about what is measured after them.

    ``even`` says that all have equally many held-out rows, ``summed`` that the task sums over rows.
    """

    measures: Measures
    cut: Cut
    even: bool
    batch_size: int | None
    summed: bool


@tracked(static=1)
def _tuned(
    descent: Descent,
    steps: Any,
    step_size: Any,
    regularizer: Regularizer,
    model: tuple[Tree, Tree, Tree],
    keys: Array,
    mine: Any,
    theirs: Any,
) -> tuple[Array, list[Array]]:
    """Return :func:`~losac.evaluation.measure.at_client` on the held-out rows, each client with its own model."""
    measures, cut, even, batch_size, summed = descent
    params, state, frozen = model
    objective = measures.objective.given(frozen)

    def at(key: Array, mine: tuple[Array, Array, Array], theirs: tuple[Array, Array, Array]) -> Any:
        x, y, size = mine

        def loss(w: Tree, state: Tree, key: Array) -> tuple[Array, Tree]:
            draw, noise = _random.personal_step_keys(key)
            if batch_size is None:
                total, after = objective.total(w, Batch(x, y, size), cut, noise, state)
                return total / size, after
            rows = jax.random.randint(draw, (batch_size,), 0, size)
            return objective.call(w, (x[rows], y[rows]), noise, state)

        def step(t: Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            w, state = carry
            gradient, after = jax.grad(loss, has_aux=True)(w, state, _random.personal_step_key(key, t))
            w = axpy(-step_size, gradient, w)
            return regularizer.prox(w, step_size / size if summed else step_size), after

        w, after = jax.lax.fori_loop(0, steps, step, (params, state))
        return at_client(measures, even, w, after, frozen, *theirs)

    return jax.vmap(at)(keys, mine, theirs)


def _check_finite(after: np.ndarray, before: np.ndarray, step_size: float) -> None:
    """Raise DivergedError if steps have led a client with a finite loss beyond the finite numbers."""
    lost = np.flatnonzero(~np.isfinite(after) & np.isfinite(before))
    if len(lost):
        raise DivergedError(
            f"personalize with step_size={step_size:g} diverged at {len(lost)} of {len(after)} clients, the first of "
            f"them client {lost[0]}: their loss is no longer finite; try step_size={step_size / 4:.2g}"
        )


def _check(steps: int, step_size: float, batch_size: int | None) -> None:
    if check_count("steps", steps) > MOST_ROUNDS:
        raise ValueError(f"steps={steps} are more than a client can count, {MOST_ROUNDS}")
    check_number("step_size", step_size, POSITIVE)
    if batch_size is not None:
        check_count("batch_size", batch_size)
