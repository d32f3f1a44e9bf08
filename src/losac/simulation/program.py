"""The compiled program: rounds over phases over clients, and evaluation where it is asked for.

Nothing here knows any algorithm: it calls the functions of the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac.algorithms.contract import Algorithm, Federation, Phase, Received
from losac.prox import Regularizer
from losac.simulation.client import (
    Message,
    Resident,
    Row,
    Visit,
    averages_by_weight,
    summed,
    work,
)
from losac.simulation.costs import lot
from losac.simulation.drawing import Rows
from losac.simulation.layout import Duty, Layout, Sample, Who, over_chunks, over_clients
from losac.simulation.objective import weighted_sum
from losac.simulation.state import Chunks, Problem, Schedule, Shape, State
from losac.simulation.store import Plan, View, plan_blocks
from losac.task import takes
from losac.trees import Array, Tree, map_trees


def run(
    shape: Shape, problem: Problem, state: State, schedule: Schedule, count: Array
) -> tuple[State, dict[str, Array]]:
    """Run the first ``count`` evaluation intervals of a schedule; return the state and the metrics after each."""
    most = schedule.lengths.shape[0]
    blank = jax.eval_shape(lambda s: evaluate(shape, problem, s), state)
    record = {name: jnp.full((most,), jnp.nan, leaf.dtype) for name, leaf in blank.items()}

    def interval(e: Array, carry: tuple[State, dict[str, Array]]) -> tuple[State, dict[str, Array]]:
        state, record = carry

        def next_round(r: Array, state: State) -> State:
            return one_round(shape, problem, state, schedule.ids[e, r], schedule.active[e, r])

        state = jax.lax.fori_loop(0, schedule.lengths[e], next_round, state)
        values = evaluate(shape, problem, state)
        return state, {name: record[name].at[e].set(values[name]) for name in record}

    return jax.lax.fori_loop(0, count, interval, (state, record))


def evaluate(shape: Shape, problem: Problem, state: State) -> dict[str, Array]:
    """Return the training loss (and objective), and the metrics on the test data or else on the training data."""
    x = problem.algorithm.at(state.round).model(state.server)
    key = jax.random.fold_in(state.key, 2**31 - 1)
    objective = shape.client.objective

    def loss(params: Tree, chunk: tuple[Array, Array], key: Array, model_state: Tree) -> Array:
        return objective.call(params, chunk, key, model_state, training=False)[0]

    def mean(function: Callable[..., Array], chunks: Chunks) -> Array:
        def part(shared: Any, chunk: Chunks) -> Array:
            x, key, model_state = shared
            return weighted_sum(lambda p, c, k: function(p, c, k, model_state), x, chunk, key, objective.whole)

        layout = Layout() if objective.whole else shape.layout  # coupled rows stay together
        return over_chunks(layout, part, (x, key, state.model_state), chunks)

    train = _fold(problem.resident.rows, problem.train)
    values = {"loss": _now_and_then(shape.loss_every, state, lambda: mean(loss, train))}
    if shape.composite:
        values["objective"] = values["loss"] * problem.scale + problem.regularizer.value(x)
    if problem.test is not None:
        values["test_loss"] = mean(loss, problem.test)
    examined = train if problem.test is None else problem.test
    for name, metric in shape.metrics:
        values[name] = mean(partial(_measure, metric, takes(metric, "state")), examined)
    return values


def _measure(metric: Callable[..., Array], stateful: bool, params: Tree, chunk: Any, key: Array, state: Tree) -> Array:
    """Return a metric, which may look at the model's state."""
    return metric(params, chunk, state=state) if stateful else metric(params, chunk)


def _fold(rows: Rows, weights: Array) -> Chunks:
    """Return the resident training rows in the chunks of their weights; a reshape, not a copy."""
    used = weights.size
    x, y = (a[:used].reshape(*weights.shape, *a.shape[1:]) for a in (rows.x, rows.y))
    return x, y, weights


def _now_and_then(every: int, state: State, value: Callable[[], Array]) -> Array:
    if every == 1:
        return value()
    due = (state.round % every == 0) | (state.broken >= 0)
    return jax.lax.cond(due, value, lambda: jnp.full((), jnp.nan, jax.eval_shape(value).dtype))


def one_round(shape: Shape, problem: Problem, state: State, ids: Array, active: Array) -> State:
    """Run all phases of one round."""
    algorithm = problem.algorithm.at(state.round)
    key = jax.random.fold_in(state.key, state.round)
    steps = algorithm.draw_steps(jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32))
    for place, phase in enumerate(algorithm.phases()):
        turn = Turn(algorithm, phase, place, ids, active, jax.random.fold_in(key, place), steps)
        if phase.clients == "all":
            n = shape.client.clients
            turn = turn._replace(ids=jnp.arange(n, dtype=ids.dtype), active=jnp.ones(n, bool))
        state = perhaps(turn, partial(one_phase, shape, problem, turn), state)
    leaves = jax.tree.leaves(algorithm.model(state.server))
    finite = jnp.isfinite(sum(jnp.sum(leaf) for leaf in leaves))
    broken = jnp.where((state.broken < 0) & ~finite, state.round + 1, state.broken)
    return state._replace(round=state.round + 1, broken=broken)


class Turn(NamedTuple):
    """One phase of one round: whose it is, its place among the phases, who takes part, its random key."""

    algorithm: Algorithm
    phase: Phase
    place: int
    ids: Array
    active: Array
    key: Array
    steps: Any


class Shared(NamedTuple):
    """The arrays that every client of a phase works with."""

    algorithm: Algorithm
    regularizer: Regularizer
    resident: Resident
    message: Message
    key: Array
    steps: Any


def perhaps(turn: Turn, take_place: Callable[[State], State], state: State) -> State:
    """Let a phase take place, or not, by its chance."""
    if turn.phase.chance is None:
        return take_place(state)
    return jax.lax.cond(lot(turn.key) < turn.phase.chance, take_place, lambda state: state, state)


def _broadcast_arrays(shared: Shared) -> list[Array]:
    return jax.tree.leaves(shared.message.content)


def by_place(plan: Plan, resident: Resident) -> Plan:
    """Return a plan that is asked by a client's place instead of its name."""
    if plan is None or resident.names is None:
        return plan
    return lambda place: plan(resident.name(place))


def one_phase(shape: Shape, problem: Problem, turn: Turn, state: State) -> State:
    """Send out, let the clients work, and update the server."""
    algorithm, phase, place, ids, active, key, steps = turn
    shared = Shared(
        algorithm,
        problem.regularizer,
        problem.resident,
        Message(phase.broadcast(state.server), state.model_state),
        key,
        steps,
    )

    def one(shared: Shared, who: Who, row: Row, view: View | None) -> tuple[Message, Row, View | None]:
        algorithm, regularizer, resident, message, key, steps = shared
        mine, common = jax.random.fold_in(key, resident.name(who.client)), jax.random.fold_in(key, shape.client.clients)
        visit = Visit(algorithm, algorithm.phases()[place], place, who.client, who.slot, mine, common, steps)
        return work(shape.client, resident, regularizer, visit, message, row, view)

    weight = active.astype(problem.resident.weight.dtype)
    if averages_by_weight(phase):
        weight = weight * problem.resident.weight[ids]
    store = state.store if phase.table else state.store._replace(table=())
    plan = by_place(plan_blocks(phase.draw, key), problem.resident) if phase.table else None
    places = problem.resident.weight.shape[0]
    duty = Duty(one, _broadcast_arrays, shared, plan)
    total, store = over_clients(shape.layout, places, duty, Sample(ids, active, weight), store)
    count = weight.sum()
    here = Federation(shape.client.clients, shape.client.sampled, problem.regularizer.prox)
    content = summed(algorithm.transforms_of(phase), jax.random.fold_in(key, 2**31 - 3), total.content)
    return state._replace(
        server=phase.update(here, state.server, Received(content, count)),
        model_state=map_trees(lambda s, d: s + d / count, state.model_state, total.model_state),
        store=store if phase.table else store._replace(table=state.store.table),
    )
