"""Decides, by tracing a client's work, which gradients are kept as products; forms a table of products."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac.algorithms.contract import Algorithm
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.layout import SMALL
from losac.simulation.placement.store import View
from losac.simulation.products import layers
from losac.simulation.products.factoring import Factoring, choose
from losac.simulation.products.matrices import formed
from losac.simulation.program import drawing
from losac.simulation.program.arrays import anybody
from losac.simulation.program.client import ClientShape, ClientState, ClientTurn, Message, Resident, Tally, train
from losac.simulation.program.objective import Batch
from losac.simulation.program.state import ProgramInputs, ProgramShape
from losac.task import Task, parameter_count
from losac.trees import Array, Tree, map_trees

WORTH_FACTORING = 2**24
"""Least bytes of a table that is kept as products, where these are smaller."""


def with_factoring(task: Task, algorithm: Algorithm, client: ClientShape, options: SimulationOptions) -> ClientShape:
    """Return the shape of a client's work, with gradients as products if that pays and the method allows it.

    Whether it does is tried: anything but adding, subtracting and scaling gradients and models raises an error.
    """
    phase_index = next((k for k, phase in enumerate(algorithm.phases()) if phase is algorithm), None)
    every = options.compute.gradients == "factored"
    if (
        phase_index is None
        or not _possible(algorithm, client, phase_index)
        or not (every or _pays(task, algorithm, client, options))
    ):
        return client
    params = jax.eval_shape(lambda: map_trees(lambda a: a.astype(options.dtype), task.init_params(_random.any_key())))
    if algorithm.table and not _starts_at_zero(algorithm.at(0), params):
        return client
    someone = anybody(task, client.most_rows, len(client.phases), options.dtype)
    try:
        rows = client.phases[phase_index].cut.rows
        batch = Batch(someone.rows.x[:rows], someone.rows.y[:rows], np.int32(rows))
        found = layers.find_layers(_value(client, phase_index, batch, someone.frozen), params)
    except Exception:  # a loss that cannot be traced alone reports its error when it is run
        return client
    leaves, structure = jax.tree.flatten(params)
    keeps = jax.tree.leaves(jax.eval_shape(lambda p: _rows(algorithm.at(0), p), params))
    for lazy in (False,) if keeps else (True, False):
        chosen = choose(found, table=algorithm.table, steps=client.phases[phase_index].steps, lazy=lazy, every=every)
        factoring = Factoring(chosen, tuple(a.shape for a in leaves), tuple(str(a.dtype) for a in leaves), structure)
        phases = list(client.phases)
        phases[phase_index] = phases[phase_index]._replace(factoring=factoring)
        changed = client._replace(phases=tuple(phases))
        if any(chosen) and _works(task, algorithm, changed, phase_index, params, someone):
            return changed
    return client


def _possible(algorithm: Algorithm, client: ClientShape, phase_index: int) -> bool:
    """Whether a phase takes steps with unmodified gradients, of a loss of parameters and rows alone."""
    return client.phases[phase_index].steps != 0 and not algorithm.transforms() and not client.objective.takes_state


def _pays(task: Task, algorithm: Algorithm, client: ClientShape, options: SimulationOptions) -> bool:
    """Whether the model, or the table, is so large that looking for products is worth it."""
    size = parameter_count(task)
    if not algorithm.table:
        return size > SMALL
    return client.clients * algorithm.draw.blocks * size * np.dtype(options.dtype).itemsize >= WORTH_FACTORING


def entry_size(client: ClientShape, parameters: int) -> int:
    """Return how many numbers an entry of the table has."""
    factoring = next((form.factoring for form in client.phases if form.factoring is not None), None)
    if factoring is None:
        return parameters
    pairs = zip(factoring.shapes, factoring.layers)
    return sum(layer.numbers if layer is not None else int(np.prod(shape)) for shape, layer in pairs)


def formed_table(shape: ProgramShape, problem: ProgramInputs, table: Tree) -> Tree:
    """Return a table [N, M, …] with all gradients formed, in the run's dtype; a copy if they were not."""
    phase_index = next((k for k, phase in enumerate(problem.algorithm.phases()) if phase.table), 0)
    form, draw = shape.client.phases[phase_index], problem.algorithm.phases()[phase_index].draw
    if form.factoring is None:
        return map_trees(lambda a: jnp.asarray(a).astype(problem.resident.weight.dtype), table)
    factoring, rows = form.factoring, problem.resident.rows

    def one(client: Array, block: Array, entry: Tree) -> Tree:
        stage = drawing.prepare(draw, form.cut, rows, client, _random.any_key(), form.passes, shape.client.most_rows)
        value = _value(shape.client, phase_index, stage.batch(block), problem.resident.frozen)
        traced = layers.trace(value, factoring.params(), factoring.layers)
        return formed(factoring.unpack(entry, traced), all_of_them=True)

    def client(args: tuple[Array, Tree]) -> Tree:
        i, entries = args
        return jax.vmap(lambda j, entry: one(i, j, entry))(jnp.arange(draw.blocks), entries)

    return jax.lax.map(client, (jnp.arange(shape.client.clients), map_trees(jnp.asarray, table)))


def _rows(algorithm: Algorithm, params: Tree) -> Any:
    return algorithm.init_client(params), algorithm.init_server_row(params)


def _starts_at_zero(algorithm: Algorithm, params: Tree) -> bool:
    """Whether the table starts with zeros, which any product can be."""
    ones = map_trees(lambda a: np.ones(a.shape, a.dtype), params)
    return not any(np.any(np.asarray(a)) for a in jax.tree.leaves(algorithm.init_entry(ones)))


def _value(client: ClientShape, phase_index: int, batch: Batch, frozen: Tree) -> Any:
    """Return the loss of a batch as a function of the parameters, to find its layers and their inputs."""
    cut, objective = client.phases[phase_index].cut, client.objective.given(frozen)
    return lambda params: objective.total(params, batch, cut, _random.any_key(), ())


def _works(
    task: Task, algorithm: Algorithm, client: ClientShape, phase_index: int, params: Tree, someone: Resident
) -> bool:
    """Whether a client's work can be traced so."""
    numbers = map_trees(lambda v: np.asarray(v, someone.weight.dtype), (algorithm, task.regularizer))
    factoring = client.phases[phase_index].factoring
    assert factoring is not None

    def run(params: Tree, numbers: Any, someone: Resident) -> Any:
        method, regularizer = numbers[0].at(0), numbers[1]
        message = Message(method.broadcast(method.init(params)), ())
        kept, at_server = _rows(method, params)
        view = None
        if method.table:
            entry, lead = factoring.blank(method.init_entry(params), client.table_dtype), method.draw.blocks
            view = View(map_trees(lambda a: jnp.broadcast_to(a, (lead, *a.shape)), entry), None)
        zero, key = jnp.zeros((), jnp.int32), _random.any_key()
        visit = ClientTurn(
            method, method, phase_index, zero, zero, key, key, method.draw_steps(jnp.zeros((), jnp.float32))
        )
        return train(client, someone, regularizer, visit, message, ClientState(kept, (), at_server), view, Tally())[2:]

    try:
        jax.eval_shape(run, params, numbers, someone)
    except Exception:  # the gradients are formed then, and a real fault shows when it is run
        return False
    return True
