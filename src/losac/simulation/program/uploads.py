"""The single uploads of a round (the program itself only sums them), for measurements and checks."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from losac import _random
from losac.simulation.placement.store import plan_blocks, read_rows, read_view
from losac.simulation.program.cache import tracked
from losac.simulation.program.client import ClientTurn, Message, send
from losac.simulation.program.rounds import PhaseTurn, one_phase, perhaps
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.trees import Array, Tree


@tracked(static=1)
def round_uploads(shape: ProgramShape, problem: ProgramInputs, state: RunState, ids: Array) -> tuple[Tree, ...]:
    """Return what clients send in the round that follows a state, phase by phase, led by the clients of the phase.

    Args:
      shape, problem, state: an engine's, on one device.
      ids: the clients of the round; a phase that asks all clients asks all of them.
    """
    algorithm = problem.algorithm.at(state.round)
    key = _random.round_key(state.key, state.round)
    steps = algorithm.draw_steps(_random.steps_uniform(key))
    found = []
    for phase_index, phase in enumerate(algorithm.phases()):
        who = jnp.arange(shape.client.clients, dtype=ids.dtype) if phase.clients == "all" else ids
        turn = PhaseTurn(
            algorithm, phase, phase_index, who, jnp.ones(len(who), bool), _random.phase_key(key, phase_index), steps
        )
        uploads = jax.lax.map(partial(_upload, shape, problem, turn, state), (who, jnp.arange(len(who))))
        found.append(uploads)
        if phase_index + 1 < len(algorithm.phases()):
            state = perhaps(turn, partial(one_phase, shape, problem, turn), state)
    return tuple(found)


def _upload(
    shape: ProgramShape, problem: ProgramInputs, turn: PhaseTurn, state: RunState, who: tuple[Array, Array]
) -> Tree:
    client, slot = who
    message = Message(turn.phase.broadcast(state.server), state.model_state)
    mine, common = _random.client_key(turn.key, client), _random.common_key(turn.key, shape.client.clients)
    visit = ClientTurn(turn.algorithm, turn.phase, turn.phase_index, client, slot, mine, common, turn.steps)
    view: Any = None
    if turn.phase.table:
        plan = plan_blocks(turn.phase.draw, shape.client.phases[turn.phase_index].steps, turn.key)
        view = read_view(state.store.table, plan, client)
    row = read_rows(state.store.rows, client)
    return send(shape.client, problem.resident, problem.regularizer, visit, message, row, view)[1].content
