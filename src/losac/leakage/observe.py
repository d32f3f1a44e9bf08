"""What the server sees of one client: the real messages of a running federation."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.history.simulate import Dtype, make_plan
from losac.simulation.client import Message, Visit, work
from losac.simulation.engine import Engine, precision
from losac.simulation.program import Turn, one_phase, perhaps
from losac.simulation.sampling import make_sampler
from losac.simulation.state import Problem, Shape, State
from losac.simulation.store import plan_blocks, read_rows, read_view
from losac.task import Task
from losac.trees import Array, Tree, map_trees


class Exchange(NamedTuple):
    """One exchange of the server with one client.

    Args:
      message: what the client received.
      upload: what it sent, as the server gets it.
      kept: its state and its table afterwards, which the server does *not* see; for checks.
    """

    message: Tree
    upload: Tree
    kept: Tree


def watch(
    task: Task, algorithm: Algorithm, client: int = 0, *, rounds: int, seed: int = 0, dtype: Dtype = "float32"
) -> list[tuple[Exchange, ...]]:
    """Run a federation in which all clients take part, and return one client's exchanges: rounds, phases.

    Args:
      task, algorithm, seed, dtype: as for :func:`losac.simulate`.
      client: whom to watch.
      rounds: how many rounds.

    >>> import losac
    >>> data = losac.data.load("digits", clients=4)
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> seen = watch(task, losac.algorithms.dsgd(step_size=1e-3), rounds=2)
    >>> len(seen), seen[1][0].upload[0]["w"].shape
    (2, (64, 10))
    """
    prepare_jax()
    n = task.data.num_clients
    if not 0 <= client < n:
        raise ValueError(f"client={client} does not exist; the clients are 0 to {n - 1}")
    plan = make_plan(task, n, dtype, None, None, rounds, gradients="formed")
    with precision(plan.dtype):
        engine = Engine(task, algorithm, plan, seed)
        sampler = make_sampler("all", n, n, algorithm.partial)
        seen: list[tuple[Exchange, ...]] = []
        for _ in engine.run(sampler, range(rounds), True, lambda: None):
            seen.append(map_trees(np.asarray, _look(engine.shape, engine.problem, engine.state, np.int32(client))))
    return seen


def _exchanges(shape: Shape, problem: Problem, state: State, client: Array) -> tuple[Exchange, ...]:
    """Return the client's exchanges in the round that follows a state, phase after phase."""
    n = shape.client.clients
    algorithm = problem.algorithm.at(state.round)
    key = jax.random.fold_in(state.key, state.round)
    steps = algorithm.draw_steps(jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32))
    found, phases = [], algorithm.phases()
    for place, phase in enumerate(phases):
        turn = Turn(
            algorithm, phase, place, jnp.arange(n, dtype=client.dtype), jnp.ones(n, bool),
            jax.random.fold_in(key, place), steps,
        )  # fmt: skip
        found.append(_exchange(shape, problem, turn, state, client))
        if place + 1 < len(phases):
            state = perhaps(turn, partial(one_phase, shape, problem, turn), state)
    return tuple(found)


def _exchange(shape: Shape, problem: Problem, turn: Turn, state: State, client: Array) -> Exchange:
    phase = turn.phase
    message = Message(phase.broadcast(state.server), state.model_state)
    visit = Visit(
        turn.algorithm, phase, turn.place, client, client,
        jax.random.fold_in(turn.key, client), jax.random.fold_in(turn.key, shape.client.clients), turn.steps,
    )  # fmt: skip
    view: Any = None
    if phase.table:
        view = read_view(state.store.table, plan_blocks(phase.draw, turn.key), client)
    row = read_rows(state.store.rows, client)
    sent, row, view = work(shape.client, problem.resident, problem.regularizer, visit, message, row, view)
    return Exchange(message.content, sent.content, (row.state, () if view is None else view.entries))


_look = jax.jit(_exchanges, static_argnums=0)
