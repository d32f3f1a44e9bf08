"""The single uploads of a round, which the program itself only sums up: for measuring them, and for checks."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from losac.simulation.client import Message, Visit, send
from losac.simulation.program import Turn, one_phase, perhaps
from losac.simulation.state import Problem, Shape, State
from losac.simulation.store import plan_blocks, read_rows, read_view
from losac.trees import Array, Tree


@partial(jax.jit, static_argnums=0)
def round_uploads(shape: Shape, problem: Problem, state: State, ids: Array) -> tuple[Tree, ...]:
    """Return what clients send in the round that follows a state, phase by phase, led by the clients of the phase.

    Args:
      shape, problem, state: an engine's, on one device.
      ids: the clients of the round; a phase that asks all clients asks all of them.
    """
    algorithm = problem.algorithm.at(state.round)
    key = jax.random.fold_in(state.key, state.round)
    steps = algorithm.draw_steps(jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32))
    found = []
    for place, phase in enumerate(algorithm.phases()):
        who = jnp.arange(shape.client.clients, dtype=ids.dtype) if phase.clients == "all" else ids
        turn = Turn(algorithm, phase, place, who, jnp.ones(len(who), bool), jax.random.fold_in(key, place), steps)
        uploads = jax.lax.map(partial(_upload, shape, problem, turn, state), (who, jnp.arange(len(who))))
        found.append(uploads)
        if place + 1 < len(algorithm.phases()):
            state = perhaps(turn, partial(one_phase, shape, problem, turn), state)
    return tuple(found)


def _upload(shape: Shape, problem: Problem, turn: Turn, state: State, who: tuple[Array, Array]) -> Tree:
    client, slot = who
    message = Message(turn.phase.broadcast(state.server), state.model_state)
    mine, common = (jax.random.fold_in(turn.key, number) for number in (client, shape.client.clients))
    visit = Visit(turn.algorithm, turn.phase, turn.place, client, slot, mine, common, turn.steps)
    view: Any = None
    if turn.phase.table:
        view = read_view(state.store.table, plan_blocks(turn.phase.draw, turn.key), client)
    row = read_rows(state.store.rows, client)
    return send(shape.client, problem.resident, problem.regularizer, visit, message, row, view)[1].content
