"""What is random in a client's work, for workers that are not compiled: drawn exactly as the simulator draws it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Draw
from losac.federation.work import Assignment
from losac.simulation.drawing import block_of, order_of
from losac.trees import Array


class Course(NamedTuple):
    """The course of one client's local steps in one phase.

    ``block`` is the block of each step, ``batch`` returns the rows of one; ``seeds`` holds a number for each step, and
    ``seed`` one for the full gradient, for models that are random themselves (dropout). ``key`` is the client's random
    key and ``common`` that which all clients of the phase share.
    """

    key: Array
    common: Array
    block: np.ndarray
    batch: Callable[[int], np.ndarray]
    seeds: np.ndarray
    seed: int


def course_of(task: Assignment, draw: Draw, rows: int, steps: int) -> Course:
    """Return the course of a client with so many rows, in a single call of a compiled function."""
    per_epoch = -(-rows // draw.batch_size) if draw.batch_size else 1
    passes = -(-steps // per_epoch) if draw.batch_size else 0
    at = (task.round, task.place, task.client, task.clients)
    sizes = (_padded(steps, 16), passes, _padded(rows, 64) if passes else 0)
    drawn = _draw(jax.random.key(task.seed), at, rows, draw.blocks, *sizes)
    key, common = drawn[:2]
    block, orders, seeds, seed = (np.asarray(a) for a in drawn[2:])

    def batch(t: int) -> np.ndarray:
        if draw.batch_size is None:
            return block_rows(int(block[t]), draw.blocks, rows)
        start = (t % per_epoch) * draw.batch_size
        return orders[t // per_epoch, start : min(start + draw.batch_size, rows)]

    return Course(key, common, block, batch, seeds, int(seed))


def block_rows(j: int, blocks: int, rows: int) -> np.ndarray:
    """Return the rows of a fixed block: as equal as can be, the longer ones first.

    >>> [block_rows(j, 3, 7).tolist() for j in range(3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """
    quotient, rest = divmod(rows, blocks)
    start = j * quotient + min(j, rest)
    return np.arange(start, start + quotient + (j < rest))


def _padded(length: int, least: int) -> int:
    """Return a length with few different values, each of which is compiled by itself: the next power of two."""
    return max(least, 1 << (length - 1).bit_length()) if length else 0


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _draw(
    seed: Array, at: tuple[Any, ...], rows: Any, blocks: int, count: int, passes: int, most_rows: int
) -> tuple[Array, ...]:
    """Return the client's key, the common one, the steps' blocks, the orders of the passes, and the seeds.

    An order is the same for every ``most_rows``, which the simulator takes from the largest client: the entries of a
    random vector are functions of the key and their place.
    """
    round_index, place, client, clients = at
    phase = jax.random.fold_in(jax.random.fold_in(seed, round_index), place)
    key = jax.random.fold_in(phase, client)
    steps = jnp.arange(count)

    def number(key: Array) -> Array:
        return jax.random.key_data(key).reshape(-1)[-1]

    return (
        key,
        jax.random.fold_in(phase, clients),
        jax.vmap(lambda t: block_of(key, t, blocks))(steps),
        jax.vmap(lambda e: order_of(jax.random.fold_in(key, e), rows, most_rows))(jnp.arange(passes)),
        jax.vmap(lambda t: number(jax.random.fold_in(jax.random.fold_in(key, t), 1)))(steps),
        number(key),
    )
