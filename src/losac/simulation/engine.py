"""Drives the compiled program in calls of about a second, and hands out what each has measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from losac._compat import enable_x64
from losac.algorithms.contract import Algorithm
from losac.simulation import program, setup
from losac.simulation.costs import Costs, costs
from losac.simulation.flat import unflatten
from losac.simulation.mesh import Layout, agreed, host_state, is_key, pin_state, place, place_state
from losac.simulation.sampling import Sampler, draw_clients
from losac.simulation.state import Problem, Schedule, Shape, State
from losac.task import Task
from losac.trees import Array, Tree, map_trees

CALL_SECONDS = 1.0
MOST_INTERVALS = 64
SMALL_SCHEDULE = 2**16
"""Up to so many entries a schedule is rounded up, at five bytes each."""


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def _run(shape: Shape, problem: Problem, state: State, schedule: Schedule, count: Array) -> Any:
    state, record = program.run(shape, problem, state, schedule, count)
    return pin_state(state, shape.layout), record


class Measured(NamedTuple):
    """What one call of the program brought: the rounds evaluated, their metrics, and who took part up to each."""

    rounds: np.ndarray
    metrics: dict[str, np.ndarray]
    visits: list[np.ndarray]  # for each evaluation, the ids of all clients that took part since the one before
    broken: int


class Engine:
    """One run: a task, an algorithm and a plan, with the state in between.

    Used under :func:`precision` of its dtype.
    """

    def __init__(self, task: Task, algorithm: Algorithm, plan: setup.Plan, seed: int, state: Any = None) -> None:
        setup.check(task, algorithm, plan.sampled)
        self.task, self.algorithm, self.plan, self.seed = task, algorithm, plan, seed
        self.shape: Shape = setup.shapes(task, algorithm, plan)
        self.problem: Problem = setup.problem(task, algorithm, self.shape, plan)
        self.shape = setup.share_out(task, self.shape, self.problem, plan.dtype)
        self.state: State = setup.first_state(task, self.shape, self.problem, seed, plan.dtype)
        if state is not None:
            taken = adopted(self.state, state, algorithm, self.shape, self.problem)
            self.state = place_state(taken, self.shape.layout, self.shape.client.clients)
        self.costs: tuple[Costs, ...] = costs(self.shape, self.problem, self.state)

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state as NumPy arrays."""
        x = self.algorithm.at(self.state.round).model(self.state.server)
        return map_trees(np.asarray, x), map_trees(np.asarray, self.state.model_state)

    def kept(self) -> State:
        """Return the state as NumPy arrays, [N, …] for the clients' on any layout."""
        return host_state(self.state, self.shape.client.clients)

    def run(self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]) -> Iterator[Measured]:
        """Run to each of the rounds in ``stops`` and evaluate there; the first may be the present round.

        With ``live`` the sampler is asked anew before every round, since it looks at the history.
        """
        n, sampled, start = self.task.data.num_clients, self.plan.sampled, int(self.state.round)
        lengths = np.diff([start, *stops])
        longest, most = int(lengths.max(initial=1)), min(len(stops), MOST_INTERVALS)
        done, take, first = 0, 1, start
        while done < len(stops):
            part = lengths[done : done + take]
            schedule = blank_schedule(most, longest, sampled)
            visits = []
            for e, length in enumerate(part):
                ids, active = draw_clients(
                    sampler, self.seed, first, int(length), n, sampled, history() if live else None
                )
                schedule.ids[e, :length], schedule.active[e, :length] = ids, active
                schedule.lengths[e] = length
                visits.append(ids[active])
                first += int(length)
            began = time.perf_counter()
            self.state, record = _run(
                self.shape, self.problem, self.state, place(schedule, self.shape.layout), np.int32(len(part))
            )
            metrics = {k: np.asarray(v)[: len(part)] for k, v in record.items()}
            seconds = agreed(time.perf_counter() - began, self.shape.layout)
            yield Measured(np.asarray(stops[done : done + len(part)]), metrics, visits, int(self.state.broken))
            done += len(part)
            if not live:  # the first call compiles, so that its time says too little: grow step by step
                take = int(np.clip(CALL_SECONDS / seconds * len(part), 1, min(most, 4 * take)))


def adopted(own: Any, given: Any, algorithm: Algorithm, shape: Shape, problem: Problem) -> Any:
    """Return a state from outside, as NumPy arrays, after checking that it fits a run and the method's invariant.

    Arrays by name are what a run itself came to, and only have to fit. What it has lost of the invariant to rounding
    may be large beside gradients that have become small, and it goes on as it would have without a break.

    Args:
      own: the run's own state, whose arrays of clients may be longer than there are clients.
      given: the state to take, or its arrays by name (:mod:`losac.simulation.flat`).
      algorithm, shape, problem: the run's.
    """
    n = shape.client.clients
    expected = jax.eval_shape(lambda s: s._replace(store=map_trees(lambda a: a[:n], s.store)), own)
    of_the_run = isinstance(given, Mapping)
    if of_the_run:
        given = unflatten(given, own._replace(store=expected.store))
    structure: Any = jax.tree.structure(own)
    if jax.tree.structure(given) != structure:
        raise ValueError("the given state is of another algorithm, model or storage than this run")
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(given)):
        if a.shape != np.shape(b):
            raise ValueError(
                f"the given state has shape {np.shape(b)} at {jax.tree_util.keystr(path)}; expected {a.shape}"
            )
    if not of_the_run:
        setup.check_given(algorithm, shape, problem, given)
    return map_trees(lambda a, b: b if is_key(a) else np.asarray(b, a.dtype), expected, given)


GPU_PRODUCTS = {"float32": "highest", "tensorfloat32": "TF32_TF32_F32", "bfloat16": "BF16_BF16_F32"}
"""What a GPU's compiler calls the precisions of matrix products; a CPU has one only."""


@contextmanager
def precision(dtype: Any, matmul: str | None = None) -> Iterator[None]:
    """Return the context in which arrays of this dtype can be made, and matrix products are of this precision."""
    products = nullcontext()
    if matmul is not None:
        products = jax.default_matmul_precision(GPU_PRODUCTS[matmul] if jax.default_backend() == "gpu" else matmul)
    with enable_x64(np.dtype(dtype).itemsize == 8), products:
        yield


def default_plan(sampled: int, dtype: Any = np.float32, layout: Layout | None = None) -> setup.Plan:
    """Return the plan with nothing special in it."""
    return setup.Plan(sampled, dtype, layout, None, 1)


def blank_schedule(evaluations: int, rounds: int, sampled: int) -> Schedule:
    """Return a schedule of at least this size with nobody in it.

    A small one is rounded up, so that a run of another length, or the rest of a run, finds its program compiled.
    """
    roomy = (MOST_INTERVALS, max(8, 1 << (rounds - 1).bit_length()), sampled)
    shape = roomy if math.prod(roomy) <= SMALL_SCHEDULE else (evaluations, rounds, sampled)
    return Schedule(np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(shape[0], np.int32))
