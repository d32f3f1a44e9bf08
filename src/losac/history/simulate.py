"""``losac.simulate``: one run of one algorithm on one task, recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.history.callbacks import Callback
from losac.history.follow import Going, follow
from losac.history.history import History
from losac.history.recorder import Recorder, header
from losac.simulation.engine import precision
from losac.simulation.flat import as_arrays
from losac.simulation.layout import Layout
from losac.simulation.residence import make_engine
from losac.simulation.setup import Gradients, Plan
from losac.task import Task

Dtype = Literal["float32", "float64"]
Matmul = Literal["float32", "tensorfloat32", "bfloat16"]
TableDtype = Literal["float64", "float32", "bfloat16", "float16"]


def simulate(
    task: Task,
    algorithm: Algorithm,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    seed: int = 0,
    eval_every: int = 1,
    dtype: Dtype = "float32",
    sampling: Any = "uniform",
    local_steps: Sequence[int] | None = None,
    loss_every: int | None = None,
    layout: Layout | None = None,
    gradients: Gradients = "auto",
    table_dtype: TableDtype | None = None,
    matmul: Matmul | None = None,
    state: Any = None,
    keep_state: bool = False,
    store: str | Path = "auto",
    progress: Callable[[History], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> History:
    """Simulate a federation.

    Args:
      task: the problem.
      algorithm: from :mod:`losac.algorithms`.
      rounds: how many rounds to run (from the given state, where there is one).
      clients_per_round: S; all clients by default.
      seed: decides client sampling, local data and initial weights.
      eval_every: rounds between evaluations; the start and the last round are evaluated in any case.
      dtype: of all arrays.
      sampling: ``"uniform"``, ``"all"``, lists of client ids (one per round), a boolean availability trace
        [rounds, N], a sampler of :mod:`losac.simulation.sampling`, or a function ``(round, rng, history) -> ids``.
      local_steps: one number of local steps per client, instead of the algorithm's own.
      loss_every: evaluate the training loss only at rounds divisible by this; NaN at the others.
      layout: how the clients are laid out on the hardware; chosen by it if not given.
      gradients: ``"formed"`` forms every gradient; ``"factored"`` keeps those of dense layers as products of their
        inputs and errors, in LoSAC's table and in the local models, where the method only adds and scales them;
        ``"auto"`` does so where it is smaller. The same algorithm to rounding.
      table_dtype: in which precision LoSAC's table is kept; gradients are rounded to it before they are used, so
        that φ stays the sum of the table.
      matmul: the precision of matrix products of single-precision numbers: ``"float32"``, or faster on a GPU and less
        exact ``"tensorfloat32"`` or ``"bfloat16"``; by default the hardware's own choice.
      state: where to go on from: the ``state`` of an earlier run with the same seed continues it bit for bit; the
        earlier history itself, where it has its state, continues its record too.
      keep_state: keep the final state in the history (LoSAC's is M·d numbers per client).
      store: where the clients' states live: ``"device"``; ``"memory"`` or a folder, from where only those of the next
        few rounds go to the device (docs/clients.md); ``"auto"``: on the device where they fit. The numbers are the
        same.
      progress: called with the history so far about once a second.
      callbacks: told of the start, of what is measured and of the end (:class:`~losac.Callback`).

    Returns:
      The history. A run that leaves the finite numbers raises :class:`~losac.DivergedError`, which holds what was
      measured until then.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> algorithm = losac.algorithms.losac(step_size=1e-3, local_steps=4, blocks=5)
    >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=10)
    >>> history.rounds
    array([ 0, 10, 20])
    >>> bool(history.final("accuracy") > 0.5)
    True
    """
    prepare_jax()
    sampled = task.data.num_clients if clients_per_round is None else clients_per_round
    plan = make_plan(task, sampled, dtype, layout, local_steps, loss_every, gradients, table_dtype)
    earlier = state if isinstance(state, History) else None
    check_counts(rounds or (0 if earlier is None else 1), eval_every)
    check_matmul(matmul)
    if earlier is not None and earlier.state is None:
        raise ValueError("the given history has no state to go on from; make it with keep_state=True")
    given = state if earlier is None else as_arrays(earlier.state)
    with precision(plan.dtype, matmul):
        engine = make_engine(task, algorithm, plan, seed, given, store, rounds, keep_state)
        recorder = Recorder(header(engine, algorithm, seed), int(engine.state.round), earlier)
        going = Going(sampling, rounds, eval_every, keep_state, progress, callbacks)
        return follow(engine, recorder, going)


def make_plan(
    task: Task,
    sampled: int,
    dtype: Any,
    layout: Layout | None,
    local_steps: Any,
    loss_every: int | None,
    gradients: Gradients = "auto",
    table_dtype: TableDtype | None = None,
) -> Plan:
    """Check what does not depend on the algorithm."""
    if gradients not in get_args(Gradients):
        raise ValueError(f"gradients={gradients!r} must be 'auto', 'formed' or 'factored'")
    if table_dtype not in (None, *get_args(TableDtype)):
        raise ValueError(f"table_dtype={table_dtype!r} must be one of {', '.join(get_args(TableDtype))}")
    if str(dtype) not in ("float32", "float64"):
        raise ValueError(f"dtype={dtype!r} must be 'float32' or 'float64'")
    steps = None if local_steps is None else np.asarray(local_steps)
    n = task.data.num_clients
    if steps is not None and (steps.shape != (n,) or not np.issubdtype(steps.dtype, np.integer) or steps.min() < 1):
        raise ValueError(f"local_steps must hold one whole number of at least 1 for each of the {n} clients")
    return Plan(sampled, np.dtype(str(dtype)), layout, steps, loss_every or 1, gradients, table_dtype)


def check_matmul(matmul: str | None) -> None:
    """Refuse a precision that there is not."""
    if matmul not in (None, *get_args(Matmul)):
        raise ValueError(f"matmul={matmul!r} must be one of {', '.join(get_args(Matmul))}")


def check_counts(rounds: int, eval_every: int) -> None:
    """Refuse a number of rounds or an evaluation interval that is not a positive whole number."""
    for name, value in (("rounds", rounds), ("eval_every", eval_every)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
