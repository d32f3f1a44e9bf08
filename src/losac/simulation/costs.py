"""What a round costs, measured on the program itself: bytes from its messages, gradients from its calls."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from losac.algorithms.contract import Algorithm
from losac.simulation.client import Message, Tally, Visit, encode, no_states, train
from losac.simulation.state import Problem, Shape, State
from losac.simulation.store import View
from losac.trees import Array, Tree, map_trees, nbytes


class Costs(NamedTuple):
    """What one client of one phase receives and sends, in bytes, and computes, in gradients."""

    down: int
    up: int
    gradients_per_step: int
    full_gradients: int


def costs(shape: Shape, problem: Problem, state: State) -> tuple[Costs, ...]:
    """Measure the messages and gradients of every phase on the program itself, without running it."""
    found = []
    for place in range(len(problem.algorithm.phases())):
        tally = Tally()
        message, payload = jax.eval_shape(lambda s, p=place, t=tally: exchange(shape, problem, p, s, t), state)
        found.append(Costs(nbytes(message), nbytes(payload), tally.per_step, tally.full))
    return tuple(found)


def exchange(shape: Shape, problem: Problem, place: int, state: State, tally: Tally) -> tuple[Tree, Tree]:
    """Return one client's message and payload in one phase."""
    algorithm = problem.algorithm.at(0)
    phase = algorithm.phases()[place]
    client, key = jnp.zeros((), jnp.int32), jax.random.key(0)
    message = Message(phase.broadcast(state.server), state.model_state)
    row = map_trees(lambda a: a[0], state.store.rows)
    view = View(dense_table(algorithm, algorithm.model(state.server)), None) if phase.table else None
    steps = algorithm.draw_steps(jnp.zeros((), jnp.float32))
    visit = Visit(algorithm, phase, place, client, client, key, key, steps)
    _, _, upload, row, _ = train(
        shape.client.plain(), problem.resident, problem.regularizer, visit, message, row, view, tally
    )
    transforms = algorithm.transforms_of(phase)
    states = row.transforms if phase is algorithm else no_states(transforms)
    return message, upload._replace(content=encode(transforms, (key, None), states, upload.content)[0])


def dense_table(algorithm: Algorithm, params: Tree, *lead: int) -> Tree:
    """Return the table of one client, or of several, before the first round, with all gradients formed."""
    shape = (*lead, algorithm.draw.blocks)
    return map_trees(lambda a: jnp.broadcast_to(a, (*shape, *jnp.shape(a))), algorithm.init_entry(params))


def lot(phase_key: Array) -> Array:
    """Return the number in [0, 1) that decides whether a phase by chance takes place."""
    return jax.random.uniform(jax.random.fold_in(phase_key, 2**31 - 2), (), jnp.float32)


def random_steps(algorithm: Algorithm, seed: int, first: int, rounds: int) -> list[int] | None:
    """Return the numbers of local steps in some rounds, where they are random; else None."""
    if algorithm.at(0).draw_steps(0.5) is None:
        return None
    keys = [jax.random.fold_in(jax.random.key(seed), first + r) for r in range(rounds)]
    drawn = (jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32) for key in keys)
    return [int(algorithm.at(first + r).draw_steps(number)) for r, number in enumerate(drawn)]


def took_place(algorithm: Algorithm, place: int, seed: int, first: int, rounds: int) -> int:
    """Return in how many of some rounds a phase took place."""
    if algorithm.phases()[place].chance is None:
        return rounds
    key = jax.random.key(seed)
    phase_keys = (jax.random.fold_in(jax.random.fold_in(key, first + r), place) for r in range(rounds))
    chances = (algorithm.at(first + r).phases()[place].chance for r in range(rounds))
    return sum(bool(lot(key) < chance) for key, chance in zip(phase_keys, chances))
