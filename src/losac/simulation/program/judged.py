"""A phase whose uploads are looked at one by one, because some may lie or because the server does not just sum them.

It takes two passes: the clients work, and then, once it is known how much of each upload the server used, those that
keep records correct them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac import _random
from losac.algorithms.aggregation import aggregate
from losac.algorithms.contract import Algorithm
from losac.prox import Regularizer
from losac.simulation.attackers import Present
from losac.simulation.placement.layout import ClientSlot, Cohort, CohortWork, over_clients
from losac.simulation.placement.store import BlockPlan, Store, View
from losac.simulation.program.client import ClientState, ClientTurn, Message, Resident, send, settle
from losac.simulation.program.state import ProgramInputs, ProgramShape
from losac.trees import Array, Tree, map_trees


class Shared(NamedTuple):
    """The arrays that every client of a phase works with."""

    algorithm: Algorithm
    regularizer: Regularizer
    resident: Resident
    message: Message
    key: Array
    steps: Any

    def turn(self, phase_index: int, who: ClientSlot, clients: int) -> ClientTurn:
        """Return the turn of one client."""
        mine = _random.client_key(self.key, self.resident.name(who.client))
        common, phase = _random.common_key(self.key, clients), self.algorithm.phases()[phase_index]
        return ClientTurn(self.algorithm, phase, phase_index, who.client, who.slot, mine, common, self.steps)


class JudgedPhase(NamedTuple):
    """A phase: its index, what its clients share, their plan of blocks, who they are, and what liars remember."""

    phase_index: int
    shared: Shared
    plan: BlockPlan
    cohort: Cohort
    memory: Tree


def broadcast_arrays(shared: Shared) -> list[Array]:
    """Return the arrays of the message, which contributions may be sums of."""
    return jax.tree.leaves(shared.message.content)


class Judged(NamedTuple):
    """What the server uses instead of the sum of the uploads, the new store, and what liars remember."""

    total: Message
    store: Store
    memory: Tree


def judged(shape: ProgramShape, problem: ProgramInputs, phase: JudgedPhase, store: Store) -> Judged:
    """Let the clients of a phase work and lie, and the server weigh what they send."""
    phase_index, shared, plan, cohort, memory = phase
    algorithm, attackers = shared.algorithm, problem.attackers
    rows = problem.resident.weight.shape[0]

    def one(
        shared: Shared, who: ClientSlot, row: ClientState, view: View | None
    ) -> tuple[Message, ClientState, View | None]:
        resident = shared.resident
        if attackers is not None:
            lies = attackers.are(resident.name(who.client), shape.client.clients)
            y = resident.rows.y
            resident = resident._replace(rows=resident.rows._replace(y=attackers.labels(y, lies)))
        visit = shared.turn(phase_index, who, shape.client.clients)
        return send(shape.client, resident, shared.regularizer, visit, shared.message, row, view)[1:]

    duty = CohortWork(one, broadcast_arrays, shared, plan, one_by_one=True)
    honest, store = over_clients(shape.layout, rows, duty, cohort, store)
    own = algorithm.phases()[phase_index] is algorithm
    recorded = algorithm.records(honest.content) if own else ()
    sent = honest.content
    if attackers is not None:
        clients, key = shared.resident.name(cohort.ids), _random.lie_key(shared.key)
        there = Present(clients, attackers.are(clients, shape.client.clients) & cohort.active, cohort.active)
        memory = attackers.learn(memory, key, sent, there)
        sent = attackers.corrupt(key, sent, there, recorded, memory)
    change = map_trees(lambda a: jnp.tensordot(cohort.weight.astype(a.dtype), a, 1), honest.model_state)
    if not algorithm.aggregation and not (own and algorithm.server_rows):
        total = map_trees(lambda a: jnp.tensordot(cohort.weight.astype(a.dtype), a, 1), sent)
        return Judged(Message(total, change), store, memory)
    if not algorithm.aggregation:
        content, store = over_clients(
            shape.layout, rows, CohortWork(_received, _nothing, (algorithm, sent), plan), cohort, store
        )
        return Judged(Message(content, change), store, memory)
    stages, key = algorithm.aggregation, _random.aggregation_key(shared.key)
    total, shares = aggregate(stages, key, sent, cohort.active, recorded)
    if not (recorded and algorithm.acknowledges):
        return Judged(Message(total, change), store, memory)

    def record(given: Any, who: ClientSlot, row: ClientState, view: View | None) -> tuple[Tree, Any, View | None]:
        shared, uploads, shares = given
        upload, share = map_trees(lambda a: a[who.slot], (uploads, shares))
        visit = shared.turn(phase_index, who, shape.client.clients)
        accepted = map_trees(lambda a, u: a * u, share, upload)
        return (), *settle(shape.client, shared.resident, shared.regularizer, visit, upload, accepted, row, view)

    told = CohortWork(record, _nothing, (shared, honest.content, shares), plan)
    _, store = over_clients(shape.layout, rows, told, cohort, store)
    return Judged(Message(total, change), store, memory)


def _received(
    given: tuple[Algorithm, Tree], who: ClientSlot, row: ClientState, view: View | None
) -> tuple[Tree, ClientState, View | None]:
    """Return what an upload adds to the sum, with the server's new row of the client."""
    algorithm, uploads = given
    content, kept = algorithm.receive(row.server, map_trees(lambda a: a[who.slot], uploads))
    return content, row._replace(server=kept), view


def _nothing(shared: Any) -> list[Array]:
    return []
