"""The state before the first round."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from losac.simulation.client import Row, Tally
from losac.simulation.costs import exchange
from losac.simulation.state import Problem, Shape, State
from losac.simulation.store import Store
from losac.trees import Array, Tree, map_trees


def initial_state(
    shape: Shape, problem: Problem, params: Tree, model_state: Tree, key: Array, places: int | None = None
) -> State:
    """Return the state before the first round; every client's is a copy of one that depends on x⁰ only.

    ``places`` is the number of clients to make room for, all of them by default.
    """
    algorithm = problem.algorithm.at(0)
    n = shape.client.clients if places is None else places

    def spread(tree: Tree, *lead: int) -> Tree:
        return map_trees(lambda a: jnp.broadcast_to(a, (*lead, *jnp.shape(a))), tree)

    row = Row(algorithm.init_client(params), (), algorithm.init_server_row(params))
    state = State(
        round=jnp.zeros((), jnp.int32),
        key=key,
        server=algorithm.init(params),
        model_state=model_state,
        store=Store(row, algorithm.init_entry(params) if algorithm.table else ()),
        broken=-jnp.ones((), jnp.int32),
    )
    if algorithm.transforms():
        row = row._replace(transforms=_transform_states(shape, problem, state))
    table = spread(state.store.table, n, algorithm.draw.blocks)
    return state._replace(store=Store(spread(row, n), table))


def _transform_states(shape: Shape, problem: Problem, state: State) -> Tree:
    """Return a client's first state of every upload transform, from the structure of an upload."""
    algorithm = problem.algorithm.at(0)
    place = next(i for i, phase in enumerate(algorithm.phases()) if phase is algorithm)
    lead = state._replace(store=map_trees(lambda a: a[None], state.store))
    lead = lead._replace(store=lead.store._replace(table=map_trees(lambda a: a[None], lead.store.table)))
    shapes = jax.eval_shape(lambda s: exchange(shape, problem, place, s, Tally())[1].content, lead)
    upload = map_trees(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    states = []
    for transform in algorithm.transforms():
        states.append(transform.init(upload))
        upload = transform.decode(transform.encode(jax.random.key(0), states[-1], upload)[0])
    return tuple(states)
