"""What a round costs, measured on the algorithm's functions, as the compiled simulator measures its program."""

from __future__ import annotations

import jax

from losac.algorithms.contract import Algorithm
from losac.federation.shapes import message_like, payload_like, share_like, traced_upload
from losac.simulation.program.client import Tally
from losac.simulation.program.costs import Costs
from losac.trees import Tree, nbytes, zeros


def costs(algorithm: Algorithm, params: Tree, model_state: Tree, clients: int, sampled: int) -> tuple[Costs, ...]:
    """Return the bytes and the gradients of one client in every phase."""
    found, also = [], nbytes(model_state)
    for index in range(len(algorithm.phases())):
        tally = Tally()
        jax.eval_shape(lambda x, p=index, t=tally: _count(algorithm, p, x, clients, sampled, t), params)
        down = nbytes(message_like(algorithm, index, params)) + also
        if algorithm.phases()[index] is algorithm:
            down += nbytes(share_like(algorithm, params, clients, sampled))
        up = nbytes(payload_like(algorithm, index, params, clients, sampled)) + also
        found.append(Costs(down, up, tally.per_step, tally.full))
    return tuple(found)


def _count(algorithm: Algorithm, phase_index: int, params: Tree, clients: int, sampled: int, tally: Tally) -> Tree:
    """Go through a client's work once, with one step, and count the gradients that it asks for."""

    def full(x: Tree) -> Tree:
        tally.full += 1
        return zeros(x)

    def one(x: Tree) -> Tree:
        tally.per_step += 1
        return zeros(x)

    return traced_upload(algorithm.at(0), phase_index, params, clients, sampled, one, full)
