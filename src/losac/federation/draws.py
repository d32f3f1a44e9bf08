"""The random draws of a client's work, for workers that are not compiled: the same as the simulator's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key, UInt

from losac import _random
from losac.algorithms.contract import Algorithm, Draw, Gradient, Local, Phase
from losac.federation.work import Assignment
from losac.simulation.program.client import averages_by_weight
from losac.simulation.program.drawing import block_of, order_of, step_counts
from losac.task import Reduction
from losac.trees import Array, Tree, map_trees


class Course(NamedTuple):
    """The course of one client's local steps in one phase.

    ``block`` is the block of each step, ``batch`` returns the rows of one; ``seeds`` holds a number for each step, and
    ``seed`` one for the full gradient, for models with randomness (dropout). ``key`` is the client's random
    key and ``common`` the one that all clients of the phase share.
    """

    key: Key[Array, ""]
    common: Key[Array, ""]
    block: Int[np.ndarray, " steps"]
    batch: Callable[[int], Int[np.ndarray, " rows"]]
    seeds: UInt[np.ndarray, " steps"]
    seed: int


class LocalWork(NamedTuple):
    """The work of one client in one phase, without its data: the method with the round's settings, and the draws."""

    algorithm: Algorithm
    phase: Phase
    task: Assignment
    course: Course
    steps: int

    @property
    def own(self) -> bool:
        """Whether it is the algorithm's own phase."""
        return self.phase is self.algorithm

    def loss_factor(self, rows: int, reduction: Reduction) -> float:
        """Return the factor on the sum of the losses of the client's rows: N·p_i, over n_i where f_i is their mean."""
        weight = 1.0 if averages_by_weight(self.phase) else float(self.task.weight)
        return weight / rows if reduction == "mean" else weight

    def here(self, prox: Callable[[Tree, Any], Tree], gradient: Gradient) -> Local:
        """Return what the client knows."""
        task, blocks = self.task, self.phase.draw.blocks
        return Local(task.clients, task.sampled, prox, blocks, self.steps, gradient, task.slot, self.course.common)


def local_work(algorithm: Algorithm, task: Assignment, rows: int, local_steps: int | None = None) -> LocalWork:
    """Return the work of a client with this many rows; ``local_steps`` is its own number of steps, if it has one."""
    now = plain(algorithm, task.round)
    phase = now.phases()[task.phase_index]
    own = None if phase is not now else local_steps if task.steps is None else int(task.steps)
    steps = int(step_counts(phase.draw, np.array([rows]))[0]) if own is None else own
    return LocalWork(now, phase, task, course_of(task, phase.draw, rows, steps), steps)


def plain(algorithm: Algorithm, round_index: int) -> Algorithm:
    """Return the algorithm of a round with Python numbers, which work with arrays of every kind."""
    now: Algorithm = map_trees(float, algorithm.at(jnp.asarray(round_index, jnp.int32)))
    return now


def course_of(task: Assignment, draw: Draw, rows: int, steps: int) -> Course:
    """Return the course of a client with this many rows, in a single call of a compiled function."""
    per_epoch = -(-rows // draw.batch_size) if draw.batch_size else 1
    passes = -(-steps // per_epoch) if draw.batch_size else 0
    at = (task.round, task.phase_index, task.client, task.clients)
    sizes = (_padded(steps, 16), passes, _padded(rows, 64) if passes else 0)
    drawn = _draw(_random.run_key(task.seed), at, rows, draw.blocks, *sizes)
    key, common = drawn[:2]
    block, orders, seeds, seed = (np.asarray(a) for a in drawn[2:])

    def batch(t: int) -> np.ndarray:
        if draw.batch_size is None:
            return block_rows(int(block[t]), draw.blocks, rows)
        start = (t % per_epoch) * draw.batch_size
        return orders[t // per_epoch, start : min(start + draw.batch_size, rows)]

    return Course(key, common, block, batch, seeds, int(seed))


def block_rows(j: int, blocks: int, rows: int) -> Int[np.ndarray, " block"]:
    """Return the rows of a fixed block; sizes differ by at most one, longer blocks first.

    >>> [block_rows(j, 3, 7).tolist() for j in range(3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    quotient, rest = divmod(rows, blocks)
    start = j * quotient + min(j, rest)
    return np.arange(start, start + quotient + (j < rest))


def _padded(length: int, least: int) -> int:
    """Return one of few different lengths, since each is compiled separately: the next power of two."""
    return max(least, 1 << (length - 1).bit_length()) if length else 0


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _draw(
    run: Array, at: tuple[Any, ...], rows: Any, blocks: int, count: int, passes: int, most_rows: int
) -> tuple[Array, ...]:
    """Return the client's key, the common one, the steps' blocks, the orders of the passes, and the seeds.

    An order is the same for every ``most_rows``, which the simulator takes from the largest client: the entries of a
    random vector are functions of the key and their index.
    """
    round_index, phase_index, client, clients = at
    phase = _random.phase_key(_random.round_key(run, round_index), phase_index)
    key = _random.client_key(phase, client)
    steps = jnp.arange(count)

    return (
        key,
        _random.common_key(phase, clients),
        jax.vmap(lambda t: block_of(key, t, blocks))(steps),
        jax.vmap(lambda e: order_of(_random.pass_key(key, e), rows, most_rows))(jnp.arange(passes)),
        jax.vmap(lambda t: _random.seed_of(_random.model_key(key, t)))(steps),
        _random.seed_of(key),
    )
