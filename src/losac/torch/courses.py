"""The rows of the local steps of all clients of a phase at once, drawn as the compiled simulator draws them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from losac import _random
from losac.algorithms.contract import Draw
from losac.simulation.program.drawing import block_of, order_of
from losac.trees import Array


class PhaseClients(NamedTuple):
    """The clients of a phase: their names, where their rows begin, their numbers of rows and of steps."""

    ids: Int[np.ndarray, " clients"]
    offsets: Int[np.ndarray, " clients"]
    sizes: Int[np.ndarray, " clients"]
    steps: Int[np.ndarray, " clients"]


class Drawn(NamedTuple):
    """What all clients draw in a step: rows [S, B] (the ``real`` ones count), a factor on their sum, the block."""

    rows: Int[np.ndarray, "clients batch"]
    real: Bool[np.ndarray, "clients batch"]
    factor: Float[np.ndarray, " clients"]
    block: Int[np.ndarray, " clients"]


class Courses:
    """The courses of the clients' local steps in one phase of one round.

    Args:
      draw: how the phase draws.
      at: the seed, the round and the index of the phase.
      who: the clients.
      most_rows: of any client of the federation; few different shapes are then compiled.
    """

    def __init__(self, draw: Draw, at: tuple[int, int, int], who: PhaseClients, most_rows: int) -> None:
        self.draw, self.who = draw, who
        seed, round_index, phase_index = at
        count = int(who.steps.max(initial=0))
        per_epoch = -(-who.sizes // draw.batch_size) if draw.batch_size else np.ones_like(who.sizes)
        passes = int((-(-count // per_epoch)).max(initial=0)) if draw.batch_size else 0
        drawn = _draw(
            _random.run_key(seed), round_index, phase_index, who.ids, who.sizes, draw.blocks, _roomy(count), passes,
            most_rows if passes else 0,
        )  # fmt: skip
        self.per_epoch = per_epoch
        self.blocks, self.orders = (np.asarray(a) for a in drawn)

    def step(self, t: int) -> Drawn:
        """Return what the clients draw in step t; the draws of those that take fewer steps do not count."""
        offsets, sizes, draw = self.who.offsets, self.who.sizes, self.draw
        if draw.batch_size is None:
            j = self.blocks[:, t]
            quotient, rest = sizes // draw.blocks, sizes % draw.blocks
            start, length = offsets + j * quotient + np.minimum(j, rest), quotient + (j < rest)
            rows, real = _spans(start, length)
            return Drawn(rows, real, np.full(len(sizes), float(draw.blocks)), j)
        start = (t % self.per_epoch) * draw.batch_size
        length = np.minimum(sizes - start, draw.batch_size)
        positions, real = _spans(start, length)
        epoch = np.minimum(t // self.per_epoch, self.orders.shape[1] - 1)
        rows = offsets[:, None] + self.orders[np.arange(len(sizes))[:, None], epoch[:, None], positions]
        return Drawn(rows, real, sizes / length, np.zeros(len(sizes), int))

    def whole(self) -> Drawn:
        """Return all rows of every client."""
        rows, real = _spans(self.who.offsets, self.who.sizes)
        return Drawn(rows, real, np.ones(len(rows)), np.zeros(len(rows), int))


def _spans(start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return spans of positions, the shorter ones filled up with their first position, and which of these are real."""
    positions = np.arange(int(length.max()))
    real = positions < length[:, None]
    return start[:, None] + np.where(real, positions, 0), real


def _roomy(count: int) -> int:
    """Return one of few different numbers of steps, since each is compiled separately."""
    return max(16, 1 << (count - 1).bit_length()) if count else 0


@partial(jax.jit, static_argnums=(5, 6, 7, 8))
def _draw(
    run: Array, round_index: int, phase_index: int, ids: Array, sizes: Array, blocks: int, count: int, passes: int,
    most_rows: int,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the blocks [S, steps] and the orders [S, passes, …] of some clients."""
    phase = _random.phase_key(_random.round_key(run, round_index), phase_index)

    def one(client: Array, size: Array) -> tuple[Array, Array]:
        key = _random.client_key(phase, client)
        return (
            jax.vmap(lambda t: block_of(key, t, blocks))(jnp.arange(count)),
            jax.vmap(lambda e: order_of(_random.pass_key(key, e), size, most_rows))(jnp.arange(passes)),
        )

    return jax.vmap(one)(ids, sizes)
