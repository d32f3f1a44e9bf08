"""What a round costs, read off the algorithm's functions as the compiled simulator reads it off its program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from losac.algorithms.contract import Algorithm, Local
from losac.federation.shapes import message_like, payload_like
from losac.simulation.client import Tally
from losac.simulation.costs import Costs
from losac.trees import Tree, nbytes, zeros


def costs(algorithm: Algorithm, params: Tree, model_state: Tree, clients: int, sampled: int) -> tuple[Costs, ...]:
    """Return the bytes and the gradients of one client in every phase."""
    found, also = [], nbytes(model_state)
    for place in range(len(algorithm.phases())):
        tally = Tally()
        jax.eval_shape(lambda x, p=place, t=tally: _walk(algorithm, p, x, clients, sampled, t), params)
        down = nbytes(message_like(algorithm, place, params)) + also
        up = nbytes(payload_like(algorithm, place, params, clients, sampled)) + also
        found.append(Costs(down, up, tally.per_step, tally.full))
    return tuple(found)


def _walk(algorithm: Algorithm, place: int, params: Tree, clients: int, sampled: int, tally: Tally) -> Tree:
    """Go through a client's work once, with one step, and count the gradients that it asks for."""
    now = algorithm.at(0)
    phase, nought = now.phases()[place], jnp.zeros((), jnp.int32)

    def full(x: Tree) -> Tree:
        tally.full += 1
        return zeros(x)

    def one(x: Tree) -> Tree:
        tally.per_step += 1
        return zeros(x)

    here = Local(
        clients, sampled, lambda x, step: x, phase.draw.blocks, nought + 1, full, nought, jax.random.key(0)
    )  # fmt: skip
    message = phase.broadcast(now.init(params))
    local, client = phase.begin(here, message, now.init_client(params))
    if phase.draw.steps != 0:
        entry: Any = (now.init_entry(params),) if phase.table else ()
        local = phase.step(here, message, client, local, one, *entry)
        local = local[0] if phase.table else local
    return phase.end(here, message, client, local)[0]
