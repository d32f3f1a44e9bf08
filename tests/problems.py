"""Small problems with known answers, and the random draws of the engine, for the tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import losac
from losac._compat import enable_x64
from losac.simulation.drawing import block_of
from losac.simulation.sampling import Uniform, draw_clients


@dataclass(frozen=True)
class Quadratic:
    """Heterogeneous least squares f_i(w) = Σ_r ½ (a_r·w − b_r)², each client with an optimum of its own."""

    data: losac.FederatedData
    task: losac.Task
    optimum: np.ndarray
    curvature: float
    """The largest curvature of any block gradient."""

    @property
    def hessians(self) -> list[np.ndarray]:
        return [x.T @ x for x, _ in map(self.data.client, range(self.data.num_clients))]

    @property
    def optima(self) -> list[np.ndarray]:
        clients = map(self.data.client, range(self.data.num_clients))
        return [np.linalg.solve(x.T @ x, x.T @ y) for x, y in clients]


def quadratic(clients: int = 10, samples: int | list[int] = 16, dim: int = 4, seed: int = 1, **options) -> Quadratic:
    data = losac.data.quadratic(clients=clients, samples=samples, dim=dim, seed=seed)
    task = losac.regression(losac.models.linear(dim), data, **options)
    curvature = max(np.linalg.norm(x, 2) ** 2 for x, _ in map(data.client, range(clients)))
    return Quadratic(data, task, np.asarray(data.info["optimum"]), float(curvature))


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
