"""What a round costs, measured on the program itself: bytes from its messages, gradients from its calls."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac._costs import COSTS
from losac.algorithms.aggregation import told_of
from losac.algorithms.contract import Algorithm
from losac.history.measured import Measurements, Participation
from losac.simulation.placement.store import View
from losac.simulation.program import drawing
from losac.simulation.program.client import ClientTurn, Keys, Message, Tally, encode, no_states, train
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.trees import Array, Tree, map_trees, nbytes


class Costs(NamedTuple):
    """What one client of one phase receives and sends, in bytes, and computes, in gradients."""

    down: int
    up: int
    gradients_per_step: int
    full_gradients: int


def costs(shape: ProgramShape, problem: ProgramInputs, state: RunState) -> tuple[Costs, ...]:
    """Measure the messages and gradients of every phase on the program itself, without running it."""
    leaves, structure = jax.tree.flatten((problem, state))
    return _measured(shape, structure, tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves))


@lru_cache(maxsize=256)
def _measured(shape: ProgramShape, structure: Any, kinds: tuple[Any, ...]) -> tuple[Costs, ...]:
    """Trace every phase on arrays of some shapes and dtypes; a program is traced once, however often it runs."""
    problem, state = jax.tree.unflatten(structure, kinds)
    found = []
    for phase_index in range(len(problem.algorithm.phases())):
        tally = Tally()
        one = jax.eval_shape(lambda p, s, k=phase_index, t=tally: exchange(shape, p, k, s, t), problem, state)
        down = nbytes(one.message) + nbytes(one.share)
        found.append(Costs(down, nbytes(one.payload), tally.per_step, tally.full))
    return tuple(found)


class OneClient(NamedTuple):
    """What one client of one phase receives, computes and sends, and what it is told of its upload afterwards."""

    message: Message
    upload: Message
    payload: Message
    share: Tree


def exchange(shape: ProgramShape, problem: ProgramInputs, phase_index: int, state: RunState, tally: Tally) -> OneClient:
    """Return what one client of one phase exchanges with the server."""
    algorithm = problem.algorithm.at(0)
    phase = algorithm.phases()[phase_index]
    client, key = jnp.zeros((), jnp.int32), _random.any_key()
    message = Message(phase.broadcast(state.server), state.model_state)
    row = map_trees(lambda a: a[0], state.store.rows)
    view = View(dense_table(algorithm, algorithm.model(state.server)), None) if phase.table else None
    steps = algorithm.draw_steps(jnp.zeros((), jnp.float32))
    visit = ClientTurn(algorithm, phase, phase_index, client, client, key, key, steps)
    _, _, upload, row, _ = train(
        shape.client.plain(), problem.resident, problem.regularizer, visit, message, row, view, tally
    )
    transforms = algorithm.transforms_of(phase)
    states = row.transforms if phase is algorithm else no_states(transforms)
    payload = upload._replace(content=encode(transforms, Keys(key, key), states, upload.content)[0])
    share = told_of(algorithm, upload.content, shape.client.sampled) if phase is algorithm else {}
    return OneClient(message, upload, payload, share)


def dense_table(algorithm: Algorithm, params: Tree, *lead: int) -> Tree:
    """Return the table of one client, or of several, before the first round, with all gradients formed."""
    shape = (*lead, algorithm.draw.blocks)
    return map_trees(lambda a: jnp.broadcast_to(a, (*shape, *jnp.shape(a))), algorithm.init_entry(params))


class Meter(NamedTuple):
    """Prices the rounds of one run by what was measured on its program.

    ``steps`` are the clients' numbers of local steps [phases, N]. With ``least`` they are the most that clients draw,
    in each round, for the method's own phase.
    """

    algorithm: Algorithm
    seed: int
    sizes: np.ndarray
    steps: np.ndarray
    costs: tuple[Costs, ...]
    least: int | None = None

    def price(self, measured: Measurements, first: int) -> np.ndarray:
        """Return the costs [pieces, costs] of each piece; the first piece begins after round ``first``."""
        starts = [first, *measured.rounds[:-1].tolist()]
        chance = luck(self.algorithm, self.seed, first, int(measured.rounds[-1]) - first)
        return np.array(
            [
                self._piece(visits, start, chance.between(start - first, stop - first))
                for start, stop, visits in zip(starts, measured.rounds.tolist(), measured.visits)
            ]
        )

    def _piece(self, visits: Participation, first: int, chance: Luck) -> np.ndarray:
        """Return the costs of the rounds from ``first`` on, with these visits."""
        everybody = np.arange(len(self.sizes))
        total = np.zeros(len(COSTS))
        for index, (phase, cost) in enumerate(zip(self.algorithm.phases(), self.costs)):
            took = chance.took_place[index]
            steps = chance.steps if phase is self.algorithm else None
            if self.least is not None and phase is self.algorithm:
                parties = [self._drawn(index, visits if phase.clients != "all" else _everyone(everybody, first, took))]
            elif phase.clients == "all":  # rounds with the same number of steps cost the same
                kinds, times = np.unique(took[took] if steps is None else steps[took], return_counts=True)
                parties = [
                    (everybody, self.steps[index] if steps is None else kind, n) for kind, n in zip(kinds, times)
                ]
            else:
                at = visits.rounds - first
                at, who = at[took[at]], visits.ids[took[at]]
                parties = [(who, self.steps[index][who] if steps is None else steps[at], 1)]
            for who, number, rounds in parties:
                rows = drawing.rows_drawn(phase.draw, self.sizes[who], number).sum()
                gradients = cost.gradients_per_step * rows + cost.full_gradients * self.sizes[who].sum()
                spent = {"bytes_up": cost.up * len(who), "bytes_down": cost.down * len(who), "gradients": gradients}
                total += rounds * np.array([spent[name] for name in COSTS])
        return total

    def _drawn(self, phase_index: int, visits: Participation) -> tuple[np.ndarray, np.ndarray, int]:
        """Return who works, with their random numbers of local steps."""
        drawn = drawn_steps(self.seed, phase_index, visits, self.least, self.steps[phase_index])
        return visits.ids, drawn, 1


def drawn_steps(seed: int, phase_index: int, visits: Participation, least: Any, most: np.ndarray) -> np.ndarray:
    """Return the random numbers of local steps of some visits, as the program draws them; ``most`` [N] of all."""
    count = len(visits.ids)
    roomy = max(64, 1 << max(0, count - 1).bit_length())  # few different lengths: each is compiled separately
    rounds, ids, most = (
        np.resize(np.append(values, 0), roomy).astype(np.int32)
        for values in (visits.rounds, visits.ids, most[visits.ids])
    )
    return np.asarray(_own_steps(_random.run_key(seed), phase_index, rounds, ids, least, most))[:count]


def _everyone(everybody: np.ndarray, first: int, took: np.ndarray) -> Participation:
    """Return the visits of all clients in the rounds that take place."""
    rounds = first + np.flatnonzero(took)
    return Participation(np.tile(everybody, len(rounds)), np.repeat(rounds, len(everybody)))


@jax.jit
def _own_steps(key: Array, phase_index: Any, rounds: Array, ids: Array, least: Any, most: Array) -> Array:
    def one(round_index: Array, client: Array, most: Array) -> Array:
        of_phase = _random.phase_key(_random.round_key(key, round_index), phase_index)
        return _random.own_steps(_random.client_key(of_phase, client), least, most)

    return jax.vmap(one)(rounds, ids, most)


class Luck(NamedTuple):
    """The random facts of some rounds: the numbers of local steps, if random, and which phases took place.

    ``took_place`` has an array for each phase.
    """

    steps: np.ndarray | None
    took_place: tuple[np.ndarray, ...]

    def between(self, first: int, last: int) -> Luck:
        """Return the same of some of the rounds."""
        steps = None if self.steps is None else self.steps[first:last]
        return Luck(steps, tuple(took[first:last] for took in self.took_place))


def luck(algorithm: Algorithm, seed: int, first: int, rounds: int) -> Luck:
    """Return the random facts of some rounds, drawn as the program draws them, in the current precision."""
    phases = algorithm.phases()
    always = np.ones(rounds, bool)
    if not rounds or (algorithm.at(0).draw_steps(0.5) is None and all(phase.chance is None for phase in phases)):
        return Luck(None, (always,) * len(phases))
    numbers = map_trees(lambda v: np.asarray(v, jnp.result_type(float)), algorithm)
    roomy = max(64, 1 << (rounds - 1).bit_length())  # few different lengths: each is compiled separately
    drawn = _luck(roomy, numbers, _random.run_key(seed), np.int32(first))
    steps, took = map_trees(lambda a: np.asarray(a)[:rounds], drawn)
    return Luck(steps, tuple(took.get(k, always) for k in range(len(phases))))


@partial(jax.jit, static_argnums=0)
def _luck(rounds: int, algorithm: Algorithm, key: Array, first: Array) -> tuple[Array | None, dict[int, Array]]:
    def one(round_index: Array) -> tuple[Array | None, dict[int, Array]]:
        now, mine = algorithm.at(round_index), _random.round_key(key, round_index)
        took = {
            phase_index: _random.chance_uniform(_random.phase_key(mine, phase_index)) < phase.chance
            for phase_index, phase in enumerate(now.phases())
            if phase.chance is not None
        }
        return now.draw_steps(_random.steps_uniform(mine)), took

    return jax.vmap(one)(first + jnp.arange(rounds, dtype=jnp.int32))
