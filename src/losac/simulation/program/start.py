"""The state before the first round."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from losac import _random
from losac.algorithms.contract import Algorithm
from losac.simulation.placement.mesh import pin_state, store_rows
from losac.simulation.placement.store import Store
from losac.simulation.program.client import ClientState, Tally
from losac.simulation.program.costs import exchange
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.trees import Array, Tree, map_trees


def initial_state(
    shape: ProgramShape, problem: ProgramInputs, params: Tree, model_state: Tree, key: Array, rows: int | None = None
) -> RunState:
    """Return the state before the first round; every client's is a copy of one that depends on x⁰ only.

    ``rows`` is the number of clients to make room for, all of them by default.
    """
    algorithm = problem.algorithm.at(0)
    n = store_rows(shape.layout, shape.client.clients) if rows is None else rows

    def spread(tree: Tree, *lead: int) -> Tree:
        return map_trees(lambda a: jnp.broadcast_to(a, (*lead, *jnp.shape(a))), tree)

    row = ClientState(algorithm.init_client(params), (), algorithm.init_server_row(params))
    state = RunState(
        round=jnp.zeros((), jnp.int32),
        key=key,
        server=algorithm.init(params),
        model_state=model_state,
        store=Store(row, first_entry(shape, algorithm, params) if algorithm.table else ()),
        broken=-jnp.ones((), jnp.int32),
    )
    if problem.attackers is not None:
        state = state._replace(memory=_memory(shape, problem, state))
    if algorithm.transforms():
        row = row._replace(transforms=_transform_states(shape, problem, state))
    table = spread(state.store.table, n, algorithm.draw.blocks)
    return pin_state(state._replace(store=Store(spread(row, n), table)), shape.layout)


def first_entry(shape: ProgramShape, algorithm: Algorithm, params: Tree) -> Tree:
    """Return an entry of the table at the start, in the form and dtype of the table."""
    phase_index = next(k for k, phase in enumerate(algorithm.phases()) if phase.table)
    factoring, entry = shape.client.phases[phase_index].factoring, algorithm.init_entry(params)
    if factoring is not None:
        return factoring.blank(entry, shape.client.table_dtype)
    kind = shape.client.table_dtype
    return entry if kind is None else map_trees(lambda a: a.astype(kind), entry)


def _transform_states(shape: ProgramShape, problem: ProgramInputs, state: RunState) -> Tree:
    """Return a client's first state of every upload transform, from the structure of an upload."""
    algorithm = problem.algorithm.at(0)
    phase_index = next(i for i, phase in enumerate(algorithm.phases()) if phase is algorithm)
    upload = _blank_upload(shape, problem, phase_index, state)
    states = []
    for transform in algorithm.transforms():
        states.append(transform.init(upload))
        upload = transform.decode(transform.encode(_random.any_key(), states[-1], upload)[0])
    return tuple(states)


def _memory(shape: ProgramShape, problem: ProgramInputs, state: RunState) -> Tree:
    """Return what lying clients remember of each phase before the first round."""
    uploads = [_blank_upload(shape, problem, k, state) for k in range(len(problem.algorithm.at(0).phases()))]
    return tuple(problem.attackers.start(upload, shape.client.clients) for upload in uploads)  # type: ignore[union-attr]


def _blank_upload(shape: ProgramShape, problem: ProgramInputs, phase_index: int, state: RunState) -> Tree:
    """Return zeros in the shapes of a client's upload in a phase, before any transform."""
    lead = state._replace(store=state.store._replace(rows=map_trees(lambda a: a[None], state.store.rows)))
    shapes = jax.eval_shape(lambda s: exchange(shape, problem, phase_index, s, Tally()).upload.content, lead)
    return map_trees(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
