"""The worker in JAX: the simulator's own program for one client, on that client's data alone."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from losac import _random
from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.algorithms.privacy import refuse_model_state
from losac.federation.evaluate import evaluate
from losac.federation.secret import secret_for
from losac.federation.settle import settled
from losac.federation.work import Assignment, Kept, Message, Result
from losac.simulation.engines.resident import precision
from losac.simulation.options import ComputeOptions, RunOptions, SimulationOptions
from losac.simulation.placement.store import View
from losac.simulation.program import client as simulated
from losac.simulation.program import drawing
from losac.simulation.program.arrays import cast
from losac.simulation.program.client import ClientShape, ClientState, ClientTurn, Resident
from losac.simulation.program.costs import Costs, costs
from losac.simulation.program.setup import cast_numbers, mean_metrics, program_inputs, program_shape
from losac.simulation.program.start import initial_state
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.task import Task
from losac.trees import Array, Tree, map_trees

ANY = 2
"""N and S, when neither matters."""


class CompiledWorker:
    """A client that runs :func:`losac.simulation.program.client.send`, as the simulator does.

    Args:
      task: the problem, with the data of this client alone.
      algorithm: the method.
      dtype: the precision of the computation.
    """

    def __init__(self, task: Task, algorithm: Algorithm, dtype: str = "float32") -> None:
        if task.data.num_clients != 1:
            raise ValueError(
                f"a client of a federation has its own data only, but this task has {task.data.num_clients} clients; "
                "pick one with data.subset([i])"
            )
        refuse_model_state(algorithm, task.state)
        prepare_jax()
        self.task, self.algorithm, self.dtype = task, algorithm, np.dtype(dtype)
        self.rows, self.frozen = len(task.data), task.frozen_digest
        shapes_of = jax.eval_shape(task.init_params, _random.any_key())
        self.params = map_trees(lambda a: np.zeros(a.shape, self.dtype), shapes_of)
        self.model_state = () if task.state is None else map_trees(lambda a: cast(a, self.dtype), task.state)
        self._known: dict[tuple[int, int], tuple[ClientShape, ProgramInputs, tuple[Costs, ...]]] = {}

    def start(self, params: Tree) -> Kept:
        """Return what is kept before the client first takes part, from the initial model x⁰."""
        with precision(self.dtype):
            shape, arrays = self._blank
            state = self._first(shape, arrays, map_trees(lambda a: cast(a, self.dtype), params))
            return Kept(*map_trees(np.asarray, _kept(state)))

    @cached_property
    def kept_like(self) -> Kept:
        """The structure of what is kept; its numbers do not matter."""
        with precision(self.dtype):
            shape, arrays = self._blank
            return Kept(*jax.eval_shape(lambda p: _kept(self._first(shape, arrays, p)), self.params))

    @cached_property
    def _blank(self) -> tuple[ProgramShape, ProgramInputs]:
        options = self._options(ANY)
        shape = self._shape(options, ANY)
        return shape, program_inputs(self.task, self.algorithm, shape, options)

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        """Do the work of one phase."""
        with precision(self.dtype):
            shape, arrays, prices = self._prepare(task.clients, task.sampled)
            resident = arrays.resident._replace(
                weight=np.asarray([task.weight], self.dtype), names=np.asarray([task.client], np.int32)
            )
            numbers = TracedNumbers(
                np.int32(task.round), np.int32(task.slot), None if task.steps is None else np.int32(task.steps),
                _random.run_key(task.seed), secret_for(self.algorithm.transforms()),
            )  # fmt: skip
            payload, change, row, table = _work(
                shape, task.phase_index, arrays._replace(resident=resident), numbers, message,
                ClientState(kept.state, kept.transforms, ()), kept.table,
            )  # fmt: skip
            found = map_trees(np.asarray, (payload, change, row, table))
        payload, change, row, table = found
        return Result(Message(payload, change), Kept(row.state, row.transforms, table), self._gradients(task, prices))

    def settle(self, task: Assignment, upload: Tree, accepted: Tree, kept: Kept) -> Kept:
        """Return what is kept once it is known how much of the upload the server used."""
        return settled(self, task, upload, accepted, kept)

    def with_algorithm(self, algorithm: Algorithm) -> CompiledWorker:
        """Return a client with the same data that runs another algorithm."""
        return CompiledWorker(self.task, algorithm, str(self.dtype))

    def evaluate(self, params: Tree, model_state: Tree = ()) -> dict[str, float]:
        """Return the mean loss and the metrics on the client's own data."""
        data = self.task.data
        return evaluate(self._evaluated, (data.x, data.y), params, model_state, self.dtype)

    @cached_property
    def _evaluated(self) -> Task:
        """The task, once its metrics have been tried out."""
        mean_metrics(self.task, self.dtype)
        return self.task

    def _options(self, sampled: int) -> SimulationOptions:
        dtype: Any = str(self.dtype)
        compute = ComputeOptions(dtype=dtype, gradients="formed")
        return SimulationOptions(RunOptions(rounds=1), compute, sampled)

    def _shape(self, options: SimulationOptions, clients: int) -> ProgramShape:
        shape = program_shape(self.task, self.algorithm, options)
        return shape._replace(client=shape.client._replace(clients=clients))

    def _first(self, shape: ProgramShape, arrays: ProgramInputs, params: Tree) -> RunState:
        return initial_state(shape, arrays, params, self.model_state, _random.any_key(), rows=1)

    def _prepare(self, clients: int, sampled: int) -> tuple[ClientShape, ProgramInputs, tuple[Costs, ...]]:
        """Return the program's static part, its arrays and its prices for N and S."""
        if (clients, sampled) not in self._known:
            options = self._options(sampled)
            shape = self._shape(options, clients)
            arrays = program_inputs(self.task, self.algorithm, shape, options)
            arrays = arrays._replace(algorithm=cast_numbers(self.algorithm, self.dtype))
            state = jax.eval_shape(lambda p: self._first(shape, arrays, p), self.params)
            self._known[clients, sampled] = shape.client, arrays, costs(shape, arrays, state)
        return self._known[clients, sampled]

    def _gradients(self, task: Assignment, prices: tuple[Costs, ...]) -> float:
        phase, price = self.algorithm.phases()[task.phase_index], prices[task.phase_index]
        draw = phase.draw
        own = task.steps if phase is self.algorithm else None
        size = np.asarray([self.rows])
        steps = drawing.step_counts(draw, size) if own is None else own
        return float(price.gradients_per_step * drawing.rows_drawn(draw, size, steps)[0]) + (
            price.full_gradients * self.rows
        )


def _kept(state: RunState) -> tuple[Tree, Tree, Tree]:
    """Return what the only client of a state keeps."""
    rows, table = map_trees(lambda a: a[0], (state.store.rows, state.store.table))
    return rows.state, rows.transforms, table


class TracedNumbers(NamedTuple):
    """What can change between a client's assignments without a new program: the keys are those of the run."""

    round: Array
    slot: Array
    steps: Array | None
    key: Array
    secret: Array | None


@partial(jax.jit, static_argnums=(0, 1))
def _work(
    shape: ClientShape,
    phase_index: int,
    arrays: ProgramInputs,
    numbers: TracedNumbers,
    message: Message,
    row: ClientState,
    table: Tree,
) -> tuple[Tree, Tree, ClientState, Tree]:
    """Return the payload, the change of the model's state, and what is kept; keys as in the simulator's rounds."""
    algorithm = arrays.algorithm.at(numbers.round)
    phase = algorithm.phases()[phase_index]
    key = _random.phase_key(_random.round_key(numbers.key, numbers.round), phase_index)
    resident: Resident = arrays.resident
    assert resident.names is not None
    mine, common = _random.client_key(key, resident.names[0]), _random.common_key(key, shape.clients)
    turn = ClientTurn(
        algorithm, phase, phase_index, np.int32(0), numbers.slot, mine, common, numbers.steps, numbers.secret
    )  # fmt: skip
    view = View(table, None) if phase.table else None
    payload, upload, row, view = simulated.send(shape, resident, arrays.regularizer, turn, message, row, view)
    return payload, upload.model_state, row, table if view is None else view.entries
