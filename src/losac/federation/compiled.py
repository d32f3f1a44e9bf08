"""The worker in JAX: the simulator's own program for one client, on that client's data alone."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import jax
import numpy as np

from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.algorithms.privacy import refuse_model_state
from losac.federation.evaluate import evaluate
from losac.federation.secret import secret_for
from losac.federation.work import Assignment, Kept, Message, Result
from losac.simulation import client as simulated
from losac.simulation import drawing
from losac.simulation.arrays import cast
from losac.simulation.client import ClientShape, Resident, Row, Visit
from losac.simulation.costs import Costs, costs
from losac.simulation.engine import precision
from losac.simulation.setup import Plan, cast_numbers, problem, shapes
from losac.simulation.start import initial_state
from losac.simulation.state import Problem, Shape, State
from losac.simulation.store import View
from losac.task import Task
from losac.trees import Array, Tree, map_trees

ANY = 2
"""N and S where neither matters."""


class CompiledWorker:
    """A client that runs :func:`losac.simulation.client.send`, as the simulator does.

    Args:
      task: the problem, whose data is that of this client alone.
      algorithm: the method.
      dtype: in which precision to compute.
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
        self.rows = len(task.data)
        shapes_of = jax.eval_shape(task.init_params, jax.random.key(0))
        self.params = map_trees(lambda a: np.zeros(a.shape, self.dtype), shapes_of)
        self.model_state = () if task.state is None else map_trees(lambda a: cast(a, self.dtype), task.state)
        self._known: dict[tuple[int, int], tuple[ClientShape, Problem, tuple[Costs, ...]]] = {}

    def start(self, params: Tree) -> Kept:
        """Return what is kept before the client first takes part, from the initial model x⁰."""
        with precision(self.dtype):
            shape, arrays = self._blank
            state = self._first(shape, arrays, map_trees(lambda a: cast(a, self.dtype), params))
            return Kept(*map_trees(np.asarray, _kept(state)))

    @cached_property
    def kept_like(self) -> Kept:
        """The structure of what is kept, whatever its numbers."""
        with precision(self.dtype):
            shape, arrays = self._blank
            return Kept(*jax.eval_shape(lambda p: _kept(self._first(shape, arrays, p)), self.params))

    @cached_property
    def _blank(self) -> tuple[Shape, Problem]:
        plan = self._plan(ANY)
        shape = self._shape(plan, ANY)
        return shape, problem(self.task, self.algorithm, shape, plan)

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        """Do the work of one phase."""
        with precision(self.dtype):
            shape, arrays, prices = self._prepare(task.clients, task.sampled)
            resident = arrays.resident._replace(
                weight=np.asarray([task.weight], self.dtype), names=np.asarray([task.client], np.int32)
            )
            payload, change, row, table = _work(
                shape, task.place, arrays._replace(resident=resident), jax.random.key(task.seed),
                secret_for(self.algorithm.transforms()),
                np.int32(task.round), np.int32(task.slot), None if task.steps is None else np.int32(task.steps),
                simulated.Message(*message), Row(kept.state, kept.transforms, ()), kept.table,
            )  # fmt: skip
            found = map_trees(np.asarray, (payload, change, row, table))
        payload, change, row, table = found
        return Result(Message(payload, change), Kept(row.state, row.transforms, table), self._gradients(task, prices))

    def with_algorithm(self, algorithm: Algorithm) -> CompiledWorker:
        """Return a client with the same data that runs another algorithm."""
        return CompiledWorker(self.task, algorithm, str(self.dtype))

    def evaluate(self, params: Tree, model_state: Tree = ()) -> dict[str, float]:
        """Return the mean loss and the metrics on the client's own data."""
        data = self.task.data
        return evaluate(self.task, (data.x, data.y), params, model_state, self.dtype)

    def _plan(self, sampled: int) -> Plan:
        return Plan(sampled, self.dtype, None, None, 1)

    def _shape(self, plan: Plan, clients: int) -> Shape:
        shape = shapes(self.task, self.algorithm, plan)
        return shape._replace(client=shape.client._replace(clients=clients))

    def _first(self, shape: Shape, arrays: Problem, params: Tree) -> State:
        return initial_state(shape, arrays, params, self.model_state, jax.random.key(0), places=1)

    def _prepare(self, clients: int, sampled: int) -> tuple[ClientShape, Problem, tuple[Costs, ...]]:
        """Return the program's static part, its arrays and its prices for N and S."""
        if (clients, sampled) not in self._known:
            plan = self._plan(sampled)
            shape = self._shape(plan, clients)
            arrays = problem(self.task, self.algorithm, shape, plan)
            arrays = arrays._replace(algorithm=cast_numbers(self.algorithm, self.dtype))
            state = jax.eval_shape(lambda p: self._first(shape, arrays, p), self.params)
            self._known[clients, sampled] = shape.client, arrays, costs(shape, arrays, state)
        return self._known[clients, sampled]

    def _gradients(self, task: Assignment, prices: tuple[Costs, ...]) -> float:
        phase, price = self.algorithm.phases()[task.place], prices[task.place]
        draw = phase.draw
        rows = self.rows / draw.blocks if draw.batch_size is None else min(draw.batch_size, self.rows)
        own = task.steps if phase is self.algorithm else None
        steps = own or int(drawing.step_counts(draw, np.asarray([self.rows]))[0])
        return price.gradients_per_step * steps * rows + price.full_gradients * self.rows


def _kept(state: State) -> tuple[Tree, Tree, Tree]:
    """Return what the only client of a state keeps."""
    rows, table = map_trees(lambda a: a[0], (state.store.rows, state.store.table))
    return rows.state, rows.transforms, table


@partial(jax.jit, static_argnums=(0, 1))
def _work(
    shape: ClientShape,
    place: int,
    arrays: Problem,
    key: Array,
    secret: Array | None,
    round_index: Array,
    slot: Array,
    steps: Any,
    message: simulated.Message,
    row: Row,
    table: Tree,
) -> tuple[Tree, Tree, Row, Tree]:
    """Return the payload, the change of the model's state, and what is kept; keys as in ``program.one_round``."""
    algorithm = arrays.algorithm.at(round_index)
    phase = algorithm.phases()[place]
    key = jax.random.fold_in(jax.random.fold_in(key, round_index), place)
    resident: Resident = arrays.resident
    assert resident.names is not None
    mine, common = jax.random.fold_in(key, resident.names[0]), jax.random.fold_in(key, shape.clients)
    visit = Visit(algorithm, phase, place, np.int32(0), slot, mine, common, steps, secret)
    view = View(table, None) if phase.table else None
    payload, upload, row, view = simulated.send(shape, resident, arrays.regularizer, visit, message, row, view)
    return payload, upload.model_state, row, table if view is None else view.entries
