"""Clients that work step by step, uncompiled, on NumPy arrays or on any other kind with operators (PyTorch tensors).

They call the same functions of the algorithm as the compiled simulator. Of these, ``begin`` and ``step`` see arrays of
the chosen kind; ``end`` and ``record`` see NumPy arrays, in which their results cross the border anyway, and the
transforms' ``encode`` sees JAX arrays. Where a local optimiser of optax takes the steps, only gradients are computed in
the chosen kind.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Algorithm, Gradient, Local, Phase
from losac.algorithms.privacy import refuse_model_state
from losac.algorithms.transform import Transform
from losac.federation.arrays import Entries, as_numpy, border, dtype_of, put_entry
from losac.federation.draws import Course, course_of
from losac.federation.secret import secret_for
from losac.federation.shapes import transform_states
from losac.federation.work import Assignment, Kept, Message, Result, phase_of
from losac.prox import Regularizer
from losac.prox import zero as no_regularizer
from losac.simulation.client import averages_by_weight, encode, no_states, noise_key
from losac.simulation.costs import dense_table
from losac.simulation.drawing import step_counts
from losac.simulation.engine import precision
from losac.task import Reduction
from losac.trees import Tree, map_trees, sub

CHUNK = 4096
"""How many rows are evaluated at a time."""

_encode = jax.jit(encode)
"""Transforms are pytrees of their numbers."""


class EagerWorker:
    """A client whose gradients a function computes on arrays of the user's kind.

    Args:
      algorithm: the federation's.
      gradient: ``gradient(params, rows)``: the gradient of the mean loss over some of the client's rows, given as an
        array of their places from 0; a tree of arrays like ``params``.
      rows: how many rows the client has.
      value: ``value(params, rows)``: the means of the loss and of any metrics over these rows, as
        ``{"loss": …, "accuracy": …}``; only :meth:`evaluate` needs it.
      regularizer: Ψ, from :mod:`losac.prox`.
      reduction: whether f_i is the ``"sum"`` over the client's rows or their ``"mean"``.
      local_steps: how many local steps this client takes, instead of the algorithm's own number.
      arrays: makes an array of the user's kind from one of any kind; by default a NumPy one.
      stateful: the model has a state, or is random: the functions are then
        ``gradient(params, rows, model_state, seed)``, which also returns the next state, and
        ``value(params, rows, model_state)``.
      params, model_state: NumPy arrays of the model's shapes and dtypes, whatever their numbers; where messages are
        to be read, as on Flower.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        gradient: Callable[..., Any],
        rows: int,
        *,
        value: Callable[..., Mapping[str, Any]] | None = None,
        regularizer: Regularizer | None = None,
        reduction: Reduction = "sum",
        local_steps: int | None = None,
        arrays: Callable[[Any], Any] = as_numpy,
        stateful: bool = False,
        params: Tree = None,
        model_state: Tree = (),
    ) -> None:
        _check(algorithm, rows, regularizer, reduction, local_steps)
        refuse_model_state(algorithm, model_state)
        self.algorithm, self.rows, self.reduction = algorithm, rows, reduction
        self.regularizer: Regularizer = no_regularizer() if regularizer is None else regularizer
        self.local_steps, self.arrays = local_steps, arrays
        self.params, self.model_state = params, model_state
        self._gradient = gradient if stateful else lambda p, r, state, seed: (gradient(p, r), state)
        self._value = value if stateful or value is None else lambda p, r, state: value(p, r)
        self.secret: Callable[[tuple[Transform, ...]], Any] = secret_for

    def start(self, params: Tree) -> Kept:
        """Return what is kept before the client first takes part, from the initial model x⁰."""
        dtype = dtype_of(params)
        with precision(dtype):
            algorithm = plain(self.algorithm, 0)
            table = dense_table(algorithm, params) if algorithm.table else ()
            states = map_trees(as_numpy, transform_states(algorithm, params))
            return Kept(border(algorithm.init_client(params), dtype), states, border(table, dtype))

    @cached_property
    def kept_like(self) -> Kept:
        """The structure of what is kept, whatever its numbers."""
        return self.start(self.params)

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        """Do the work of one phase."""
        dtype = dtype_of(message.content)
        with precision(dtype):
            algorithm, phase = phase_of(plain(self.algorithm, task.round), task)
            steps = self._steps(algorithm, phase, task)
            visit = _Visit(algorithm, phase, task, course_of(task, phase.draw, self.rows, steps), steps)
            here, upload, kept, gradients = self._train(visit, message, kept, dtype)
            if algorithm.transforms_of(phase):
                upload, kept = _transform(visit, here, upload, kept, dtype, self.secret(algorithm.transforms_of(phase)))
            return Result(upload, kept, float(gradients))

    def with_algorithm(self, algorithm: Algorithm) -> EagerWorker:
        """Return a client with the same data that runs another algorithm."""
        _check(algorithm, self.rows, self.regularizer, self.reduction, self.local_steps)
        refuse_model_state(algorithm, self.model_state)
        other = copy.copy(self)
        other.__dict__.pop("kept_like", None)
        other.algorithm = algorithm
        return other

    def simulated(self, start: int, rows: int, local_steps: int | None = None) -> EagerWorker:
        """Return a client that has some of these rows, for a simulation: what is private in it follows the seed too."""
        _check(self.algorithm, rows, self.regularizer, self.reduction, local_steps)
        whole, other = self, copy.copy(self)
        other.rows, other.local_steps, other.secret = rows, local_steps, lambda transforms: None
        other._gradient = lambda params, places, state, seed: whole._gradient(params, start + places, state, seed)
        if whole._value is not None:
            value: Callable[..., Any] = whole._value
            other._value = lambda params, places, state: value(params, start + places, state)
        return other

    def evaluate(self, params: Tree, model_state: Tree = ()) -> dict[str, float]:
        """Return the mean loss and the metrics on the client's own data."""
        if self._value is None:
            raise ValueError("this client cannot evaluate: it was made without the function that computes its loss")
        params, model_state = map_trees(self.arrays, (params, model_state))
        totals: dict[str, float] = {}
        for start in range(0, self.rows, CHUNK):
            rows = np.arange(start, min(start + CHUNK, self.rows))
            for name, value in self._value(params, rows, model_state).items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(rows)
        return {name: total / self.rows for name, total in totals.items()}

    def _steps(self, algorithm: Algorithm, phase: Phase, task: Assignment) -> int:
        if phase is algorithm and task.steps is not None:
            return int(task.steps)
        if phase is algorithm and self.local_steps is not None:
            return self.local_steps
        return int(step_counts(phase.draw, np.array([self.rows]))[0])

    def _train(
        self, visit: _Visit, message: Message, kept: Kept, dtype: np.dtype[Any]
    ) -> tuple[Local, Message, Kept, int]:
        """Begin, take the local steps and end; return also how many gradients of single rows that took."""
        _, phase, task, course, steps = visit
        load = as_numpy if getattr(visit.algorithm, "local_optimizer", None) else self.arrays
        share = 1.0 if averages_by_weight(phase) else float(task.weight)
        share = share / self.rows if self.reduction == "mean" else share
        first_state = map_trees(self.arrays, message.model_state)
        counted = 0

        def gradient(rows: np.ndarray, factor: float, state: Tree, seed: int, kind: Any, seen: list[Tree]) -> Gradient:
            def of(params: Tree) -> Tree:
                nonlocal counted
                counted += len(rows)
                g, after = self._gradient(map_trees(self.arrays, params), rows, state, seed)
                seen.append(after)
                return map_trees(lambda a: kind(a * (share * factor)), g)

            return of

        def full(kind: Any) -> Gradient:
            return gradient(np.arange(self.rows), self.rows, first_state, course.seed, kind, [])

        blocks = phase.draw.blocks
        here = Local(
            task.clients, task.sampled, self.regularizer.prox, blocks, steps, full(load), task.slot, course.common
        )
        given = map_trees(load, message.content)
        local, state = phase.begin(here, given, map_trees(load, kept.state))
        model_state, entries = first_state, Entries(kept.table, load)
        for t in range(steps):
            seen: list[Tree] = []
            rows = course.batch(t)
            factor = self.rows if phase.draw.batch_size else blocks * len(rows)
            grad = gradient(rows, factor, model_state, int(course.seeds[t]), load, seen)
            if phase.table:
                j = int(course.block[t])
                local, entries.touched[j] = phase.step(here, given, state, local, grad, entries.entry(j))
            else:
                local = phase.step(here, given, state, local, grad)
            model_state = seen[0] if seen else model_state
        state, local = border((state, local), dtype)
        here = here._replace(gradient=full(as_numpy))
        upload, state = phase.end(here, message.content, state, local)
        sent = Message(upload, sub(border(model_state, dtype), message.model_state))
        kept = Kept(border(state, dtype), kept.transforms, entries.renewed() if phase.table else kept.table)
        return here, border(sent, dtype), kept, counted


class _Visit(NamedTuple):
    """A phase of an algorithm, with the settings of the round, as one client meets it."""

    algorithm: Algorithm
    phase: Phase
    task: Assignment
    course: Course
    steps: int


def _transform(
    visit: _Visit, here: Local, upload: Message, kept: Kept, dtype: np.dtype[Any], secret: Any
) -> tuple[Message, Kept]:
    """Transform the upload, and let the client record what was really sent."""
    algorithm, phase, _, course, steps = visit
    transforms = algorithm.transforms_of(phase)
    keys = noise_key(course.key), secret
    before = kept.transforms if phase is algorithm else no_states(transforms)
    payload, sent, states = map_trees(as_numpy, _encode(transforms, keys, before, upload.content))
    if phase is not algorithm:
        return upload._replace(content=payload), kept
    if algorithm.table:
        j = int(course.block[steps - 1])
        last = map_trees(lambda a: a[j], kept.table)
        state, y = algorithm.record(here, upload.content, sent, kept.state, last)
        put_entry(kept.table, j, y)  # this round's own copy
    else:
        (state,) = algorithm.record(here, upload.content, sent, kept.state)
    return upload._replace(content=payload), Kept(border(state, dtype), states, kept.table)


def plain(algorithm: Algorithm, round_index: int) -> Algorithm:
    """Return the algorithm of a round with its numbers as Python's, which go with arrays of every kind."""
    now: Algorithm = map_trees(float, algorithm.at(jnp.asarray(round_index, jnp.int32)))
    return now


def _check(
    algorithm: Algorithm, rows: int, regularizer: Regularizer | None, reduction: str, local_steps: int | None
) -> None:
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"{algorithm!r} is not an algorithm; make one with losac.algorithms")
    if rows < 1:
        raise ValueError(f"rows={rows}: a client needs at least one row of data")
    for draw in (phase.draw for phase in algorithm.phases()):
        if draw.batch_size is None and draw.blocks > rows:
            raise ValueError(f"blocks={draw.blocks}, but the client has only {rows} rows: use at most blocks={rows}")
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction={reduction!r} must be 'sum' (the paper) or 'mean'")
    if local_steps is not None and local_steps < 1:
        raise ValueError(f"local_steps={local_steps} must be at least 1; leave it out for the algorithm's own number")
    if regularizer is not None and not isinstance(regularizer, no_regularizer) and not algorithm.composite:
        raise ValueError(f"{algorithm.label} has no proximal step, so it cannot take the regulariser {regularizer}")
