"""Calls the compiled program for about a second at a time, and yields what each call has measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import DTypeLike

from losac._compat import enable_x64
from losac.algorithms.contract import Algorithm
from losac.history.measured import Measurements
from losac.simulation.engines.flat import unflatten
from losac.simulation.engines.identity import Identity, admitted, fitted, identify
from losac.simulation.engines.intervals import ends
from losac.simulation.engines.schedule import Calls, fill
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.mesh import agreed, host_state, is_key, pin_state, state_to_device, to_device
from losac.simulation.program import rounds as program
from losac.simulation.program import setup
from losac.simulation.program.cache import tracked
from losac.simulation.program.costs import Costs, costs
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState, Schedule
from losac.simulation.program.whole import WholeMetrics
from losac.simulation.sampling import Sampler
from losac.task import Task
from losac.trees import Array, Tree, map_trees


@tracked(static=1, donate=(2,))
def _run(shape: ProgramShape, problem: ProgramInputs, state: RunState, schedule: Schedule, count: Array) -> Any:
    state, record = program.run(shape, problem, state, schedule, count)
    return pin_state(state, shape.layout), record


class ResidentEngine:
    """One run: a task, an algorithm and options, with the state in between; used under :func:`precision` of its dtype.

    Args:
      task: the problem.
      algorithm: the method.
      options: what to run, and how to compute it.
      state: where to continue from.
      shape: the program's static part, of :func:`~losac.simulation.program.setup.checked_shape`; made if not given.
    """

    def __init__(
        self,
        task: Task,
        algorithm: Algorithm,
        options: SimulationOptions,
        state: Any = None,
        shape: ProgramShape | None = None,
    ) -> None:
        self.task, self.algorithm, self.options = task, algorithm, options
        self.shape: ProgramShape = shape or setup.checked_shape(task, algorithm, options)
        self.shape = setup.share_out(task, algorithm, self.shape, options)
        self.problem: ProgramInputs = setup.program_inputs(task, algorithm, self.shape, options)
        self.state: RunState = setup.first_state(task, self.shape, self.problem, options.seed, options.dtype)
        if state is not None:
            taken = adopted(self.state, state, algorithm, self.shape, self.problem, self.identity)
            self.state = state_to_device(taken, self.shape.layout, self.shape.client.clients)
        self.costs: tuple[Costs, ...] = costs(self.shape, self.problem, self.state)
        self.whole = WholeMetrics(task, options.dtype)

    @cached_property
    def identity(self) -> Identity:
        """What the states of the run belong to."""
        return identify(self.task, self.algorithm, self.options)

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state as NumPy arrays."""
        x = self.algorithm.at(self.state.round).model(self.state.server)
        return map_trees(np.asarray, x), map_trees(np.asarray, self.state.model_state)

    def kept(self) -> RunState:
        """Return the state as NumPy arrays, [N, …] for the clients' on any layout."""
        kept = host_state(self.state, self.shape.client.clients)
        return kept._replace(identity=self.identity.sealed(kept))

    def run(
        self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]
    ) -> Iterator[Measurements]:
        """Run to each of the rounds in ``stops`` and evaluate there; the first may be the present round.

        With ``live`` the sampler is asked before every round, since it looks at the history.
        """
        clients, layout = self.task.data.num_clients, self.shape.layout
        alone = bool(self.whole) or self.options.run.until is not None  # a run ends at the evaluation that is there
        calls = Calls(int(self.state.round), stops, self.options.sampled, alone=alone, live=live)
        for part in calls:
            schedule = calls.blank(self.options.sampled)
            visits = fill(schedule, part, sampler, self.options.seed, clients, history() if live else None)
            began = time.perf_counter()
            self.state, record = _run(
                self.shape, self.problem, self.state, to_device(schedule, layout), np.int32(len(part))
            )
            metrics = {k: np.asarray(v)[: len(part)] for k, v in record.items()}
            calls.took(agreed(time.perf_counter() - began, layout))
            whole = self.whole(*self.model()) if self.whole and part[-1].stop else {}
            broken = int(self.state.broken)
            yield Measurements(metrics=metrics, visits=visits, broken=broken, whole=whole, **ends(part))


def adopted(
    own: Any, given: Any, algorithm: Algorithm, shape: ProgramShape, problem: ProgramInputs, identity: Identity
) -> Any:
    """Return a state from outside, as NumPy arrays, after checking that it is one of this run.

    Its random key is that of this run: a state can continue with another seed.

    Args:
      own: the run's own state; its arrays of clients may be longer than there are clients.
      given: the state to take, or its arrays by name (:mod:`losac.simulation.engines.flat`).
      algorithm, shape, problem, identity: the run's.
    """
    expected = state_shapes(own, shape.client.clients)

    def fit(given: Any) -> Any:
        return fitted(expected, unflatten(given, expected) if isinstance(given, Mapping) else given)

    def check(state: RunState) -> None:
        setup.check_given(algorithm, shape, problem, state)

    taken = admitted(identity, given, algorithm, fit, check)
    return map_trees(lambda a, b: b if is_key(a) else np.asarray(b, a.dtype), expected, taken)._replace(key=own.key)


def state_shapes(own: RunState, clients: int) -> RunState:
    """Return the shapes of a run's own state, with as many rows in its store as there are clients."""
    found: RunState = jax.eval_shape(lambda s: s._replace(store=map_trees(lambda a: a[:clients], s.store)), own)
    return found._replace(key=own.key)


GPU_PRODUCTS = {"float32": "highest", "tensorfloat32": "TF32_TF32_F32", "bfloat16": "BF16_BF16_F32"}
"""What a GPU's compiler calls the precisions of matrix products; a CPU has one only."""


@contextmanager
def precision(dtype: DTypeLike, matmul: str | None = None) -> Iterator[None]:
    """Return the context where arrays of this dtype can be made and matrix products have this precision."""
    products = nullcontext()
    if matmul is not None:
        products = jax.default_matmul_precision(GPU_PRODUCTS[matmul] if jax.default_backend() == "gpu" else matmul)
    with enable_x64(np.dtype(dtype).itemsize == 8), products:
        yield
