"""A step size from one cheap measurement: the curvature of the objective, found by the clients themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac._settings import POSITIVE, number
from losac.algorithms.contract import Algorithm, Draw, Federation, Local, Received
from losac.algorithms.losac import Losac
from losac.history import simulate
from losac.task import Task
from losac.trees import Tree, axpy, map_trees, scale, squared_norm, sub

LENGTH = 12.0
"""γηTL of the suggested steps: how far a round moves along the mean gradient, in units of 1/L."""


class Power(NamedTuple):
    """A model, a direction of unit length, and the curvature found along it."""

    x: Tree
    direction: Tree
    curvature: Any


class PowerIteration(Algorithm):
    r"""Power iteration on ∇²f: each round's clients send how their gradient changes along the direction.

    .. math:: w = \frac1S\sum_{i\in\mathcal S}\frac{\nabla f_i(x + \varepsilon v) - \nabla f_i(x)}{\varepsilon}, \qquad
       v \leftarrow w/\|w\|, \quad L \leftarrow \|w\|

    with ε = ``reach`` · max(‖x‖, 1). A round costs one model up, two down, and two passes over the clients' data.
    """

    reach: Any = number(default=1e-3, domain=POSITIVE, kw_only=True)

    @property
    def draw(self) -> Draw:
        """No local step: the exact local gradient is used."""
        return Draw(steps=0)

    def init(self, x: Tree) -> Power:
        """Start in a random direction, always the same."""
        leaves, structure = jax.tree.flatten(x)
        keys = jax.random.split(jax.random.key(0), len(leaves))
        drawn = [jax.random.normal(key, jnp.shape(leaf), jnp.asarray(leaf).dtype) for key, leaf in zip(keys, leaves)]
        return Power(x, _unit(jax.tree.unflatten(structure, drawn)), jnp.zeros(()))

    def model(self, server: Power) -> Tree:
        """Return x, which stays as it is."""
        return server.x

    def broadcast(self, server: Power) -> tuple[Tree, Tree]:
        """Send x and v."""
        return server.x, server.direction

    def end(self, here: Local, message: tuple[Tree, Tree], client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Send the change of the local gradient, over ε."""
        x, direction = message
        epsilon = self.reach * jnp.maximum(jnp.sqrt(squared_norm(x)), 1)
        change = sub(here.gradient(axpy(epsilon, direction, x)), here.gradient(x))
        return scale(1 / epsilon, change), client

    def update(self, here: Federation, server: Power, received: Received) -> Power:
        """Renew the direction and the curvature."""
        mean = scale(1 / received.count, received.total)
        return Power(server.x, _unit(mean), jnp.sqrt(squared_norm(mean)))


def curvature(task: Task, *, clients_per_round: int | None = None, rounds: int = 10, seed: int = 0) -> float:
    """Return the largest curvature L of a task's objective at its start, measured by some clients in some rounds.

    >>> import losac
    >>> data = losac.data.quadratic(clients=8, samples=6, dim=3, seed=0)
    >>> task = losac.regression(losac.models.linear(3), data)
    >>> hessian = sum(x.T @ x for x, _ in map(data.client, range(8))) / 8
    >>> import numpy as np
    >>> bool(abs(curvature(task, rounds=50) / np.linalg.eigvalsh(hessian)[-1] - 1) < 1e-3)
    True
    """
    method = PowerIteration(step_size=1.0)
    run = simulate(
        task,
        method,
        rounds=rounds,
        clients_per_round=clients_per_round,
        seed=seed,
        eval_every=rounds,
        loss_every=rounds,
        keep_state=True,
    )
    return float(run.state.server.curvature)


def suggest(
    task: Task, *, local_steps: int, blocks: int, clients_per_round: int | None = None, seed: int = 0, **settings: Any
) -> Losac:
    """Return LoSAC in exact scaling with a step size that needs no tuning: η = 12/(γTL).

    L is measured in ten rounds by :func:`curvature`; ``losac reproduce damped`` shows how good the rule is, and where
    it is not.

    Args:
      task: the problem.
      local_steps, blocks: T and M.
      clients_per_round: S.
      seed: decides the initial weights at which L is measured, and who measures it.
      settings: further ones of :func:`losac.algorithms.losac`.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> method = losac.tuning.suggest(task, local_steps=4, blocks=5, clients_per_round=5)
    >>> history = losac.simulate(task, method, rounds=30, clients_per_round=5, eval_every=30)
    >>> bool(history.final("accuracy") > 0.9)
    True
    """
    length = LENGTH / curvature(task, clients_per_round=clients_per_round, seed=seed)
    gamma = float(settings.get("server_step", 1.0))
    return Losac(length / (gamma * local_steps), local_steps, blocks, scaling="exact", **settings)


def _unit(tree: Tree) -> Tree:
    norm = jnp.sqrt(squared_norm(tree))
    return map_trees(lambda leaf: leaf / norm, tree)
