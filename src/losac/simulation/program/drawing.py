"""How a client draws its local data: M fixed blocks with replacement, or shuffled mini-batches.

Everything random is a function of the client's key for the round, so a draw is the same on any layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Key, Shaped

from losac import _random
from losac.algorithms.contract import Draw
from losac.simulation.program.objective import Batch, Cut
from losac.trees import Array


class Rows(NamedTuple):
    """The clients' data on the device: flat, client i in rows offset[i] … offset[i] + size[i]."""

    x: Shaped[Array, "rows ..."]
    y: Shaped[Array, "rows ..."]
    offset: Int[Array, " clients"]
    size: Int[Array, " clients"]


class LocalData(NamedTuple):
    """The data of a client's local steps: the block a step uses, its rows, and the factor on their sum, a fraction."""

    block: Callable[[Any], Any]
    batch: Callable[[Any], Batch]
    factor: Callable[[Batch], tuple[Any, Any]]


def cut(draw: Draw, sizes: np.ndarray) -> Cut:
    """Return the padded length and the sizes of a draw's batches; refuse clients with fewer rows than blocks."""
    if draw.batch_size is None:
        small = int(np.argmin(sizes))
        if sizes[small] < draw.blocks:
            raise ValueError(
                f"blocks={draw.blocks}, but client {small} has only {sizes[small]} samples: use at most "
                f"blocks={sizes[small]}, or leave out clients that small"
            )
        found = np.unique(np.concatenate([sizes // draw.blocks, -(-sizes // draw.blocks)]))
    else:
        rest = sizes % draw.batch_size
        found = np.unique(np.concatenate([rest[rest > 0], sizes[sizes >= draw.batch_size] * 0 + draw.batch_size]))
    return Cut(int(found.max()), tuple(int(s) for s in found))


MOST_STEPS = 2**31 - 1
"""The most local steps that a program can count."""


def step_counts(draw: Draw, sizes: np.ndarray) -> np.ndarray:
    """Return every client's number of local steps."""
    if draw.epochs is None:
        return check_steps(np.full(len(sizes), draw.steps))
    assert draw.batch_size is not None
    return check_steps(draw.epochs * -(-sizes // draw.batch_size))


def check_steps(counts: np.ndarray) -> np.ndarray:
    """Return numbers of local steps; refuse those that a program cannot count."""
    if counts.max() > MOST_STEPS:
        raise ValueError(f"{counts.max()} local steps in a round are more than a run can count, {MOST_STEPS}")
    return counts


def pass_count(draw: Draw, sizes: np.ndarray, counts: np.ndarray) -> int:
    """Return how often, at most, a client with this many steps goes through its data in shuffled batches."""
    return 1 if draw.batch_size is None else int((-(-counts // -(-sizes // draw.batch_size))).max())


def rows_drawn(draw: Draw, sizes: np.ndarray, steps: Any) -> np.ndarray:
    """Return how many rows clients go through in their local steps; a block counts by the mean size of its client's.

    >>> rows_drawn(Draw(batch_size=2, epochs=1), np.array([5, 4]), np.array([3, 3]))
    array([5., 6.])
    """
    if draw.batch_size is None:
        return np.asarray(steps * (sizes / draw.blocks), float)
    passes, rest = np.divmod(steps, -(-sizes // draw.batch_size))
    return np.asarray(passes * sizes + rest * np.minimum(draw.batch_size, sizes), float)


def prepare(
    draw: Draw, shape: Cut, rows: Rows, client: Int[Array, ""], key: Key[Array, ""], passes: int, most_rows: int
) -> LocalData:
    """Return the stage of one client for one round.

    ``passes`` bounds the passes over the data and ``most_rows`` the clients' sizes; both are static.
    """
    offset, size = rows.offset[client], rows.size[client]
    if draw.batch_size is None:
        return _blocks(draw.blocks, shape, rows, offset, size, key)
    return _batches(draw.batch_size, shape, rows, offset, size, key, passes, most_rows)


def whole(shape: Cut, rows: Rows, client: Int[Array, ""]) -> Batch:
    """Return all rows of a client as one batch."""
    offset = rows.offset[client]
    return _real_rows(shape, lambda a: jax.lax.dynamic_slice_in_dim(a, offset, shape.rows), rows, rows.size[client])


def block_of(key: Key[Array, ""], step: Any, blocks: int) -> Int[Array, ""]:
    """Return the block that a step uses."""
    if blocks == 1:
        return jnp.zeros((), jnp.int32)
    return jax.random.randint(_random.block_key(key, step), (), 0, blocks, jnp.int32)


def _blocks(blocks: int, shape: Cut, rows: Rows, offset: Array, size: Array, key: Array) -> LocalData:
    quotient, rest = size // blocks, size % blocks

    def batch(j: Any) -> Batch:
        start = offset + j * quotient + jnp.minimum(j, rest)
        return _real_rows(
            shape, lambda a: jax.lax.dynamic_slice_in_dim(a, start, shape.rows), rows, quotient + (j < rest)
        )

    return LocalData(lambda t: block_of(key, t, blocks), batch, lambda b: (blocks, 1))


def _batches(
    batch_size: int,
    shape: Cut,
    rows: Rows,
    offset: Array,
    size: Array,
    key: Array,
    passes: int,
    most_rows: int,
) -> LocalData:
    batch_size = min(batch_size, most_rows)
    per_epoch = -(-size // batch_size)
    orders = jax.vmap(lambda e: order_of(_random.pass_key(key, e), size, most_rows))(jnp.arange(passes))

    def batch(t: Any) -> Batch:
        start = (t % per_epoch) * batch_size
        order = jax.lax.dynamic_slice(orders, (t // per_epoch, start), (1, shape.rows))[0]
        real = jnp.minimum(size - start, batch_size)
        return _real_rows(shape, lambda a: a[offset + order], rows, real)

    return LocalData(lambda t: t, batch, lambda b: (size, b.size))


def order_of(key: Key[Array, ""], size: Any, most_rows: int) -> Int[Array, " {2*most_rows}"]:
    """Return a random order of a client's rows, its first ``size`` entries; padded by zeros to twice the length."""
    positions = jnp.arange(most_rows)
    noise = jnp.where(positions < size, jax.random.uniform(key, (most_rows,), jnp.float32), jnp.inf)
    order = jnp.where(positions < size, jnp.argsort(noise), 0)
    return jnp.concatenate([order, jnp.zeros_like(order)])


def _real_rows(shape: Cut, take: Callable[[Array], Array], rows: Rows, size: Any) -> Batch:
    """Take a batch; rows that are not the client's own are replaced by its first."""
    x, y = take(rows.x), take(rows.y)
    if shape.even:
        return Batch(x, y, shape.rows)
    real = jnp.arange(shape.rows) < size

    def repeat_first(a: Array) -> Array:
        return jnp.where(real.reshape((-1,) + (1,) * (a.ndim - 1)), a, a[:1])

    return Batch(repeat_first(x), repeat_first(y), size)
