"""The compiled program: rounds over phases over clients, and evaluation when due.

Nothing here knows any algorithm: it calls the functions of the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac import _random
from losac._checks import takes
from losac.algorithms.contract import Algorithm, Federation, Phase, Received
from losac.models.trained import with_frozen
from losac.simulation.placement.layout import ClientSlot, Cohort, CohortWork, Layout, over_chunks, over_clients
from losac.simulation.placement.store import BlockPlan, View, plan_blocks
from losac.simulation.program.client import ClientState, Message, Resident, averages_by_weight, summed, work
from losac.simulation.program.drawing import Rows
from losac.simulation.program.judged import JudgedPhase, Shared, broadcast_arrays, judged
from losac.simulation.program.objective import weighted_sum
from losac.simulation.program.state import Chunks, ProgramInputs, ProgramShape, RunState, Schedule
from losac.trees import Array, Tree, map_trees


def run(
    shape: ProgramShape, problem: ProgramInputs, state: RunState, schedule: Schedule, count: Array
) -> tuple[RunState, dict[str, Array]]:
    """Run the first ``count`` evaluation intervals of a schedule; return the state and the metrics after each."""
    most = schedule.lengths.shape[0]
    blank = jax.eval_shape(lambda s: evaluate(shape, problem, s), state)
    record = {name: jnp.full((most,), jnp.nan, leaf.dtype) for name, leaf in blank.items()}

    def interval(e: Array, carry: tuple[RunState, dict[str, Array]]) -> tuple[RunState, dict[str, Array]]:
        state, record = carry

        def next_round(r: Array, state: RunState) -> RunState:
            return one_round(shape, problem, state, schedule.ids[e, r], schedule.active[e, r])

        state = jax.lax.fori_loop(0, schedule.lengths[e], next_round, state)
        values = evaluate(shape, problem, state)
        return state, {name: record[name].at[e].set(values[name]) for name in record}

    return jax.lax.fori_loop(0, count, interval, (state, record))


def evaluate(shape: ProgramShape, problem: ProgramInputs, state: RunState) -> dict[str, Array]:
    """Return the training loss (and objective), and the metrics on the test data or else on the training data."""
    x = problem.algorithm.at(state.round).model(state.server)
    key = _random.evaluation_key(state.key)
    objective, frozen = shape.client.objective, problem.resident.frozen

    def loss(params: Tree, chunk: tuple[Array, Array], key: Array, model_state: Tree, frozen: Tree) -> Array:
        return objective.given(frozen).call(params, chunk, key, model_state, training=False)[0]

    def mean(function: Callable[..., Array], chunks: Chunks) -> Array:
        def part(shared: Any, chunk: Chunks) -> Array:
            x, key, model_state, frozen = shared
            return weighted_sum(lambda p, c, k: function(p, c, k, model_state, frozen), x, chunk, key, objective.whole)

        layout = Layout() if objective.whole else shape.layout  # coupled rows stay together
        return over_chunks(layout, part, (x, key, state.model_state, frozen), chunks)

    train = _fold(problem.resident.rows, problem.train)
    values = {"loss": _now_and_then(shape.loss_every, state, lambda: mean(loss, train))}
    if shape.composite:
        values["objective"] = values["loss"] * problem.scale + problem.regularizer.value(x)
    if problem.test is not None:
        values["test_loss"] = mean(loss, problem.test)
    examined = train if problem.test is None else problem.test
    for name, metric in shape.metrics:
        values[name] = mean(partial(_measure, metric), examined)
    return values


def _measure(metric: Callable[..., Array], params: Tree, chunk: Any, key: Array, state: Tree, frozen: Tree) -> Array:
    """Return a metric, which may look at the model's state and the frozen weights."""
    more = {"state": state} if takes(metric, "state") else {}
    return with_frozen(metric, frozen)(params, chunk, **more)


def _fold(rows: Rows, weights: Array) -> Chunks:
    """Return the resident training rows in the chunks of their weights; a reshape, not a copy."""
    used = weights.size
    x, y = (a[:used].reshape(*weights.shape, *a.shape[1:]) for a in (rows.x, rows.y))
    return x, y, weights


def _now_and_then(every: int, state: RunState, value: Callable[[], Array]) -> Array:
    if every == 1:
        return value()
    due = (state.round % every == 0) | (state.broken >= 0)
    return jax.lax.cond(due, value, lambda: jnp.full((), jnp.nan, jax.eval_shape(value).dtype))


def one_round(shape: ProgramShape, problem: ProgramInputs, state: RunState, ids: Array, active: Array) -> RunState:
    """Run all phases of one round."""
    algorithm = problem.algorithm.at(state.round)
    key = _random.round_key(state.key, state.round)
    steps = algorithm.draw_steps(_random.steps_uniform(key))
    for phase_index, phase in enumerate(algorithm.phases()):
        turn = PhaseTurn(algorithm, phase, phase_index, ids, active, _random.phase_key(key, phase_index), steps)
        if phase.clients == "all":
            n = shape.client.clients
            turn = turn._replace(ids=jnp.arange(n, dtype=ids.dtype), active=jnp.ones(n, bool))
        state = perhaps(turn, partial(one_phase, shape, problem, turn), state)
    leaves = jax.tree.leaves(algorithm.model(state.server))
    finite = jnp.isfinite(sum(jnp.sum(leaf) for leaf in leaves))
    broken = jnp.where((state.broken < 0) & ~finite, state.round + 1, state.broken)
    return state._replace(round=state.round + 1, broken=broken)


class PhaseTurn(NamedTuple):
    """One phase of one round: its algorithm, its index among the phases, who takes part, its random key."""

    algorithm: Algorithm
    phase: Phase
    phase_index: int
    ids: Array
    active: Array
    key: Array
    steps: Any


def perhaps(turn: PhaseTurn, take_place: Callable[[RunState], RunState], state: RunState) -> RunState:
    """Run a phase, or skip it, by its chance."""
    if turn.phase.chance is None:
        return take_place(state)
    return jax.lax.cond(_random.chance_uniform(turn.key) < turn.phase.chance, take_place, lambda state: state, state)


def by_index(plan: BlockPlan, resident: Resident) -> BlockPlan:
    """Return a plan that is asked by a client's index in the arrays instead of its name."""
    if plan is None or resident.names is None:
        return plan
    return lambda index: plan(resident.name(index))


def one_phase(shape: ProgramShape, problem: ProgramInputs, turn: PhaseTurn, state: RunState) -> RunState:
    """Send out, let the clients work, and update the server."""
    algorithm, phase, phase_index, ids, active, key, steps = turn
    shared = Shared(
        algorithm,
        problem.regularizer,
        problem.resident,
        Message(phase.broadcast(state.server), state.model_state),
        key,
        steps,
    )

    def one(
        shared: Shared, who: ClientSlot, row: ClientState, view: View | None
    ) -> tuple[Message, ClientState, View | None]:
        visit = shared.turn(phase_index, who, shape.client.clients)
        return work(shape.client, shared.resident, shared.regularizer, visit, shared.message, row, view)

    weight = active.astype(problem.resident.weight.dtype)
    if averages_by_weight(phase):
        weight = weight * problem.resident.weight[ids]
    store = state.store if phase.table else state.store._replace(table=())
    planned = shape.client.phases[phase_index].steps
    plan = by_index(plan_blocks(phase.draw, planned, key), problem.resident) if phase.table else None
    rows = problem.resident.weight.shape[0]
    cohort = Cohort(ids, active, weight)
    if algorithm.aggregation or problem.attackers is not None:
        memory = state.memory[phase_index] if state.memory else ()
        found = judged(shape, problem, JudgedPhase(phase_index, shared, plan, cohort, memory), store)
        total, store = found.total, found.store
        if state.memory:
            before, after = state.memory[:phase_index], state.memory[phase_index + 1 :]
            state = state._replace(memory=(*before, found.memory, *after))
    else:
        total, store = over_clients(shape.layout, rows, CohortWork(one, broadcast_arrays, shared, plan), cohort, store)
    count = weight.sum()
    here = Federation(shape.client.clients, shape.client.sampled, problem.regularizer.prox)
    content = summed(algorithm.transforms_of(phase), _random.sum_noise_key(key), total.content)
    server = phase.update(here, state.server, Received(content, count))
    model_state = map_trees(lambda s, d: s + d / count, state.model_state, total.model_state)
    if averages_by_weight(phase):
        old = state.server, state.model_state
        server, model_state = map_trees(lambda a, b: jnp.where(count > 0, a, b), (server, model_state), old)
    store = store if phase.table else store._replace(table=state.store.table)
    return state._replace(server=server, model_state=model_state, store=store)
