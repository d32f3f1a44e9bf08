"""A step size from one cheap measurement: the curvature of the objective, measured by the clients."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from losac._checks import check_count
from losac.algorithms.contract import Algorithm, Draw, Phase
from losac.algorithms.curvature import Curvature, first_direction
from losac.algorithms.losac import Losac
from losac.simulation import simulate
from losac.simulation.program import drawing
from losac.task import Task, check_task
from losac.trees import Tree

LENGTH = 12.0
"""γηTL of the suggested steps: how far a round moves along the mean gradient, in units of 1/L."""


class Power(NamedTuple):
    """A model, a direction of unit length, and the curvature found along it."""

    x: Tree
    direction: Tree
    curvature: Any


class PowerIteration(Algorithm):
    """Measures the curvature in every round, and nothing else: one model up, two down, two passes over the data."""

    @property
    def draw(self) -> Draw:
        """No local step: the exact local gradient is used."""
        return Draw(steps=0)

    def phases(self) -> tuple[Phase, ...]:
        """Measure in every round."""
        return (Curvature(lambda server: server[:2], lambda here, server, v, found: Power(server.x, v, found)),)

    def init(self, x: Tree) -> Power:
        """Start in a random direction, always the same."""
        return Power(x, first_direction(x), jnp.zeros(()))

    def model(self, server: Power) -> Tree:
        """Return x, which never changes."""
        return server.x


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
    check_count("rounds", rounds)
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

    L is measured in ten rounds by :func:`curvature`. ``losac reproduce damped`` shows where the rule works well and
    where it does not.

    Args:
      task: the problem.
      local_steps, blocks: T and M.
      clients_per_round: S.
      seed: decides the initial weights at which L is measured, and the clients that measure it.
      settings: further settings of :func:`losac.algorithms.losac`.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> method = losac.tuning.suggest(task, local_steps=4, blocks=5, clients_per_round=5)
    >>> history = losac.simulate(task, method, rounds=30, clients_per_round=5, eval_every=30)
    >>> bool(history.final("accuracy") > 0.9)
    True
    """
    method = Losac(1.0, local_steps, blocks, scaling="exact", **settings)  # refuses wrong settings before it measures
    for phase in method.phases():
        drawing.cut(phase.draw, np.asarray(check_task(task).data.sizes))
    length = LENGTH / curvature(task, clients_per_round=clients_per_round, seed=seed)
    gamma = float(settings.get("server_step", 1.0))
    return method.replace(step_size=length / (gamma * local_steps))
