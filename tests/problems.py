"""Small problems with known answers, and the random draws of the engine, for the tests."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from losac._compat import enable_x64
from losac.simulation.program.drawing import block_of
from losac.simulation.sampling import Uniform, draw_clients
from losac.testing.problems import Quadratic as Quadratic
from losac.testing.problems import quadratic as quadratic


def blocks_of(x: np.ndarray, blocks: int) -> list[np.ndarray]:
    """The fixed blocks: as equal as can be, the longer ones first."""
    return np.array_split(x, blocks)


def drawn_clients(seed: int, round_index: int, clients: int, sampled: int) -> np.ndarray:
    return draw_clients(Uniform(clients, sampled), seed, round_index, 1, clients, sampled)[0][0]


def drawn_blocks(seed: int, round_index: int, client: int, steps: int, blocks: int) -> list[int]:
    with enable_x64(True):
        return np.asarray(_drawn_blocks(seed, round_index, client, steps, blocks)).tolist()


@partial(jax.jit, static_argnums=(3, 4))
def _drawn_blocks(seed: int, round_index: int, client: int, steps: int, blocks: int) -> jax.Array:
    key = jax.random.key(seed)
    for value in (round_index, 0, client):
        key = jax.random.fold_in(key, value)
    return jax.vmap(lambda t: block_of(key, t, blocks))(jnp.arange(steps))
