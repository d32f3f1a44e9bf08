"""Clients that work step by step, uncompiled, on NumPy arrays or on any other kind with operators (PyTorch tensors).

They call the same functions of the algorithm as the compiled simulator. ``begin`` and ``step`` see arrays of
the chosen kind; ``end`` and ``record`` see NumPy arrays, since their results are converted to these anyway, and the
transforms' ``encode`` sees JAX arrays. If a local optimiser of optax takes the steps, only gradients are computed in
the chosen kind.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from losac import _random
from losac.algorithms.contract import Algorithm, Gradient, Local, LossNeededError, ValuedGradient
from losac.algorithms.privacy import refuse_model_state
from losac.algorithms.transform import Transform
from losac.algorithms.walk import Border, Sending, Step, walk
from losac.federation.arrays import Entries, as_numpy, border, dtype_of
from losac.federation.draws import LocalWork, local_work, plain
from losac.federation.secret import secret_for
from losac.federation.settle import settled
from losac.federation.shapes import transform_states
from losac.federation.work import Assignment, Kept, Message, Result
from losac.prox import Regularizer
from losac.prox import zero as no_regularizer
from losac.simulation.engines.resident import precision
from losac.simulation.program.client import Keys, encode, no_states
from losac.simulation.program.costs import dense_table
from losac.task import Reduction
from losac.trees import Tree, map_trees, sub

CHUNK = 4096
"""How many rows are evaluated at a time."""

_encode = jax.jit(encode)
"""Transforms are pytrees of their numeric settings."""


@dataclass(frozen=True, kw_only=True)
class EagerOptions:
    """What an :class:`EagerWorker` takes besides its algorithm, its gradient and its number of rows.

    Args:
      value: ``value(params, rows)``: the means of the loss and of any metrics over these rows, as
        ``{"loss": …, "accuracy": …}``; only :meth:`EagerWorker.evaluate` needs it.
      with_value: ``with_value(params, rows, model_state, seed)``: the mean loss that the gradient is of, the gradient
        and the model's next state, for algorithms whose steps need the loss; without it they ask ``value`` for it.
      whole: the value is asked for all rows at once, so that it need not be a mean over rows.
      regularizer: Ψ, from :mod:`losac.prox`.
      reduction: whether f_i is the ``"sum"`` over the client's rows or their ``"mean"``.
      local_steps: how many local steps this client takes, instead of the algorithm's own number.
      arrays: makes an array of the user's kind from one of any kind; by default a NumPy one.
      stateful: the model has a state, or is random: the functions are then
        ``gradient(params, rows, model_state, seed)``, which also returns the next state, and
        ``value(params, rows, model_state)``.
      params, model_state: NumPy arrays of the model's shapes and dtypes, with any numbers; where messages are
        to be read, as on Flower.
    """

    value: Callable[..., Mapping[str, Any]] | None = None
    with_value: Callable[..., tuple[Any, Tree, Tree]] | None = None
    regularizer: Regularizer | None = None
    reduction: Reduction = "sum"
    local_steps: int | None = None
    arrays: Callable[[Any], Any] = as_numpy
    whole: bool = False
    stateful: bool = False
    params: Tree = None
    model_state: Tree = ()


class EagerWorker:
    """A client with a function that computes its gradients on arrays of the user's kind.

    Args:
      algorithm: the federation's.
      gradient: ``gradient(params, rows)``: the gradient of the mean loss over some of the client's rows, given as an
        array of their numbers from 0; a tree of arrays like ``params``.
      rows: how many rows the client has.
      options: an :class:`EagerOptions`.
      keywords: the same options one by one.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        gradient: Callable[..., Any],
        rows: int,
        *,
        options: EagerOptions | None = None,
        **keywords: Any,
    ) -> None:
        given = replace(options or EagerOptions(), **keywords)
        value, stateful = given.value, given.stateful
        _check(algorithm, rows, given.regularizer, given.reduction, given.local_steps)
        refuse_model_state(algorithm, given.model_state)
        self.algorithm, self.rows, self.reduction = algorithm, rows, given.reduction
        self.regularizer: Regularizer = no_regularizer() if given.regularizer is None else given.regularizer
        self.local_steps, self.arrays = given.local_steps, given.arrays
        self.params, self.model_state = given.params, given.model_state
        self._gradient = gradient if stateful else lambda p, r, state, seed: (gradient(p, r), state)
        self._value = value if stateful or value is None else lambda p, r, state: value(p, r)
        self._both = given.with_value
        self.whole, self._tried_out = given.whole, given.whole
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
        """The structure of what is kept; its numbers do not matter."""
        return self.start(self.params)

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        """Do the work of one phase."""
        dtype = dtype_of(message.content)
        with precision(dtype):
            return self._walk(local_work(self.algorithm, task, self.rows, self.local_steps), message, kept, dtype)

    def settle(self, task: Assignment, upload: Tree, accepted: Tree, kept: Kept) -> Kept:
        """Return what is kept once it is known how much of the upload the server used."""
        return settled(self, task, upload, accepted, kept, self.local_steps)

    def with_algorithm(self, algorithm: Algorithm) -> EagerWorker:
        """Return a client with the same data that runs another algorithm."""
        _check(algorithm, self.rows, self.regularizer, self.reduction, self.local_steps)
        refuse_model_state(algorithm, self.model_state)
        other = copy.copy(self)
        other.__dict__.pop("kept_like", None)
        other.algorithm = algorithm
        return other

    def simulated(self, start: int, rows: int, local_steps: int | None = None) -> EagerWorker:
        """Return a client with some of these rows, for a simulation: its private noise follows the seed too."""
        _check(self.algorithm, rows, self.regularizer, self.reduction, local_steps)
        whole, other = self, copy.copy(self)
        other.rows, other.local_steps, other.secret = rows, local_steps, lambda transforms: None
        other._gradient = lambda params, rows, state, seed: whole._gradient(params, start + rows, state, seed)
        if whole._value is not None:
            value: Callable[..., Any] = whole._value
            other._value = lambda params, rows, state: value(params, start + rows, state)
        if whole._both is not None:
            both: Callable[..., Any] = whole._both
            other._both = lambda params, rows, state, seed: both(params, start + rows, state, seed)
        return other

    def evaluate(self, params: Tree, model_state: Tree = ()) -> dict[str, float]:
        """Return the mean loss and the metrics on the client's own data."""
        if self._value is None:
            raise ValueError("this client cannot evaluate: it was made without the function that computes its loss")
        params, model_state = map_trees(self.arrays, (params, model_state))
        everything, size = np.arange(self.rows), self.rows if self.whole else CHUNK
        if self.rows > size and not self._tried_out:
            some = np.sort(_random.trial_generator(0).permutation(self.rows)[:size])
            check_means(*(self._mean(some, part, params, model_state) for part in (size, size // 3)))
            self._tried_out = True
        return self._mean(everything, size, params, model_state)

    def _mean(self, rows: np.ndarray, size: int, params: Tree, model_state: Tree) -> dict[str, float]:
        """Return the values on some rows, as means over parts of these of at most this size."""
        assert self._value is not None
        totals: dict[str, float] = {}
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            for name, value in self._value(params, part, model_state).items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(part)
        return {name: total / len(rows) for name, total in totals.items()}

    def _with_value(self, params: Tree, rows: np.ndarray, state: Tree, seed: int) -> tuple[Any, Tree, Tree]:
        """Return the mean loss over some rows, its gradient, and the model's next state."""
        if self._both is not None:
            found: tuple[Any, Tree, Tree] = self._both(params, rows, state, seed)
            return found
        if self._value is None:
            raise LossNeededError(
                f"{self.algorithm.label} needs the value of the loss: give the client the function that computes it"
            )
        g, after = self._gradient(params, rows, state, seed)
        return self.arrays(self._value(params, rows, state)["loss"]), g, after

    def _walk(self, work: LocalWork, message: Message, kept: Kept, dtype: np.dtype[Any]) -> Result:
        algorithm, phase, _, course, _ = work
        load = as_numpy if getattr(algorithm, "local_optimizer", None) else self.arrays
        share = work.loss_factor(self.rows, self.reduction)
        first_state = model_state = map_trees(self.arrays, message.model_state)
        counted = 0

        def gradient(rows: np.ndarray, factor: float, state: Tree, seed: int, kind: Any, seen: list[Tree]) -> Gradient:
            def of(params: Tree) -> Tree:
                nonlocal counted
                counted += len(rows)
                g, after = self._gradient(map_trees(self.arrays, params), rows, state, seed)
                seen.append(after)
                return map_trees(lambda a: kind(a * (share * factor)), g)

            def with_value(params: Tree) -> tuple[Any, Tree]:
                nonlocal counted
                counted += len(rows)
                value, g, after = self._with_value(map_trees(self.arrays, params), rows, state, seed)
                seen.append(after)
                return kind(value * (share * factor)), map_trees(lambda a: kind(a * (share * factor)), g)

            return ValuedGradient(of, with_value)

        def here(kind: Any) -> Local:
            full = gradient(np.arange(self.rows), self.rows, first_state, course.seed, kind, [])
            return work.here(self.regularizer.prox, full)

        def steps() -> Iterator[Step]:
            nonlocal model_state
            for t in range(work.steps):
                seen: list[Tree] = []
                rows = course.batch(t)
                factor = self.rows if phase.draw.batch_size else phase.draw.blocks * len(rows)
                yield Step(gradient(rows, factor, model_state, int(course.seeds[t]), load, seen), int(course.block[t]))
                model_state = seen[0] if seen else model_state

        table = Entries(kept.table, load)
        crossing = Border(lambda tree: map_trees(load, tree), lambda tree: border(tree, dtype), here(as_numpy))
        sending = _sending(work, kept.transforms, self.secret)
        walked = walk(phase, here(load), message.content, kept.state, steps(), table, crossing, sending)
        change = border(sub(border(model_state, dtype), message.model_state), dtype)
        states = walked.transforms if sending is not None and work.own else kept.transforms
        after = Kept(walked.client, states, table.renewed() if phase.table else kept.table)
        return Result(Message(walked.payload, change), after, float(counted))


def check_means(at_once: Mapping[str, float], in_parts: Mapping[str, float]) -> None:
    """Refuse metrics that depend on how the same rows are cut into parts."""
    for name in set(in_parts) - {"loss"}:
        value, mean = at_once[name], in_parts[name]
        if not np.isclose(mean, value, rtol=1e-3, atol=1e-6, equal_nan=True):
            raise ValueError(
                f"metric {name!r} is not a mean over rows: on some rows at once it is {value:.4g}, but its mean over "
                f"parts of them, as taken here, is {mean:.4g}; declare it by losac.metrics.whole in losac.torch, "
                "or make the worker with whole=True"
            )


def _sending(work: LocalWork, states: Tree, secret: Callable[[tuple[Transform, ...]], Any]) -> Sending | None:
    """Return how the upload is transformed; None if it isn't."""
    transforms = work.algorithm.transforms_of(work.phase)
    if not transforms:
        return None
    before = states if work.own else no_states(transforms)

    def encoded(upload: Tree) -> Any:
        course = work.course
        keys = Keys(_random.noise_key(course.key), _random.noise_key(course.common), secret(transforms))
        return map_trees(as_numpy, _encode(transforms, keys, before, upload))

    return Sending(encoded, work.algorithm.record if work.own else None)


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
