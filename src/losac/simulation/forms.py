"""Decides, by tracing a client's work, which gradients are kept as products; and forms a table that is kept so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Algorithm
from losac.simulation import drawing, layers
from losac.simulation.client import ClientShape, Message, Resident, Row, Tally, Visit, train
from losac.simulation.factoring import Factoring, choose
from losac.simulation.layout import SMALL
from losac.simulation.matrices import formed
from losac.simulation.objective import Batch
from losac.simulation.state import Problem, Shape
from losac.simulation.store import View
from losac.task import Task
from losac.trees import Array, Tree, map_trees

WORTH_FACTORING = 2**24
"""Bytes from which on a table is kept as products where these are smaller."""


def with_factoring(task: Task, algorithm: Algorithm, client: ClientShape, plan: Any) -> ClientShape:
    """Return the shape of a client's work with its gradients as products where that pays and the method allows it.

    Whether it does is tried: anything but adding, subtracting and scaling gradients and models raises an error.
    """
    place = next((k for k, phase in enumerate(algorithm.phases()) if phase is algorithm), None)
    if place is None or algorithm.transforms() or client.phases[place].steps == 0:
        return client
    form, every = client.phases[place], plan.gradients == "factored"
    shapes = jax.eval_shape(lambda: task.init_params(jax.random.key(0)))
    size = sum(int(np.prod(a.shape)) for a in jax.tree.leaves(shapes))
    table = client.clients * algorithm.draw.blocks * size * np.dtype(plan.dtype).itemsize
    if not every and (table < WORTH_FACTORING if algorithm.table else size <= SMALL):
        return client
    params = jax.eval_shape(lambda: map_trees(lambda a: a.astype(plan.dtype), task.init_params(jax.random.key(0))))
    try:
        found = layers.find_layers(_loss(task, client, place, plan.dtype), params)
    except Exception:  # a loss that cannot be traced by itself has its say when it is run
        return client
    rows = jax.tree.leaves(jax.eval_shape(lambda p: _rows(algorithm.at(0), p), params))
    if algorithm.table and not _starts_at_zero(algorithm.at(0), params):
        return client
    leaves, structure = jax.tree.flatten(params)
    shapes, dtypes = tuple(a.shape for a in leaves), tuple(str(a.dtype) for a in leaves)
    for lazy in (True, False) if not rows else (False,):
        chosen = choose(found, table=algorithm.table, steps=form.steps, lazy=lazy, every=every)
        if not any(chosen):
            continue
        factoring = Factoring(chosen, shapes, dtypes, structure)
        phases = list(client.phases)
        phases[place] = form._replace(factoring=factoring)
        changed = client._replace(phases=tuple(phases))
        if _works(task, algorithm, changed, place, params):
            return changed
    return client


def entry_size(client: ClientShape, parameters: int) -> int:
    """Return how many numbers an entry of the table has."""
    factoring = next((form.factoring for form in client.phases if form.factoring is not None), None)
    if factoring is None:
        return parameters
    pairs = zip(factoring.shapes, factoring.layers)
    return sum(layer.numbers if layer is not None else int(np.prod(shape)) for shape, layer in pairs)


def formed_table(shape: Shape, problem: Problem, table: Tree) -> Tree:
    """Return a table [N, M, …] with all gradients formed, in the run's dtype; a copy where they were not."""
    place = next((k for k, phase in enumerate(problem.algorithm.phases()) if phase.table), 0)
    form, draw = shape.client.phases[place], problem.algorithm.phases()[place].draw
    if form.factoring is None:
        return map_trees(lambda a: jnp.asarray(a).astype(problem.resident.weight.dtype), table)
    factoring, rows = form.factoring, problem.resident.rows

    def one(client: Array, block: Array, entry: Tree) -> Tree:
        stage = drawing.prepare(draw, form.cut, rows, client, jax.random.key(0), form.passes, shape.client.most_rows)
        value = _value(shape.client, place, stage.batch(block))
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


def _value(client: ClientShape, place: int, batch: Batch) -> Any:
    """Return the loss of a batch as a function of the parameters, to find its layers and their inputs."""
    cut, objective = client.phases[place].cut, client.objective
    return lambda params: objective.total(params, batch, cut, jax.random.key(0), ())


def _loss(task: Task, client: ClientShape, place: int, dtype: Any) -> Any:
    rows = client.phases[place].cut.rows
    x, y = (np.asarray(a[:1]) for a in (task.data.x, task.data.y))
    batch = Batch(_repeated(x, rows, dtype), _repeated(y, rows, dtype), np.int32(rows))
    state = () if task.state is None else task.state
    cut, objective = client.phases[place].cut, client.objective
    return lambda params: objective.total(params, batch, cut, jax.random.key(0), state)


def _repeated(row: np.ndarray, rows: int, dtype: Any) -> np.ndarray:
    """Return one row so many times, in the run's dtype."""
    kind = dtype if np.issubdtype(row.dtype, np.floating) else np.int32
    return np.broadcast_to(row.astype(kind), (rows, *row.shape[1:]))


def _works(task: Task, algorithm: Algorithm, client: ClientShape, place: int, params: Tree) -> bool:
    """Whether a client's work can be traced so."""
    dtype = jax.tree.leaves(params)[0].dtype
    numbers = map_trees(lambda v: np.asarray(v, dtype), (algorithm, task.regularizer))
    x, y = (np.asarray(a[:1]) for a in (task.data.x, task.data.y))
    longest = client.most_rows + max(form.cut.rows for form in client.phases)
    one = np.zeros(1, np.int32)
    rows = drawing.Rows(_repeated(x, longest, dtype), _repeated(y, longest, dtype), one, one + client.most_rows)
    steps = np.full((len(client.phases), 1), client.phases[place].steps or 1, np.int32)
    resident = Resident(rows, np.ones(1, dtype), steps)
    factoring = client.phases[place].factoring
    assert factoring is not None

    def run(params: Tree, numbers: Any) -> Any:
        method, regularizer = (numbers[0].at(0), numbers[1])
        message = Message(method.broadcast(method.init(params)), () if task.state is None else task.state)
        row = Row(*(_rows(method, params)[0], (), _rows(method, params)[1]))
        view = None
        if method.table:
            entry = factoring.blank(method.init_entry(params), client.table_dtype)
            lead = method.draw.blocks
            view = View(map_trees(lambda a: jnp.broadcast_to(a, (lead, *a.shape)), entry), None)
        zero, key = jnp.zeros((), jnp.int32), jax.random.key(0)
        visit = Visit(method, method, place, zero, zero, key, key, method.draw_steps(jnp.zeros((), jnp.float32)))
        return train(client, map_trees(jnp.asarray, resident), regularizer, visit, message, row, view, Tally())[2:]

    try:
        jax.eval_shape(run, params, numbers)
    except Exception:  # whatever the reason: the gradients are formed then, and a real fault shows when it is run
        return False
    return True
