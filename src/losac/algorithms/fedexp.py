"""FedExP: FedAvg with a server step found by extrapolation.

Reference: D. Jhunjhunwala, S. Wang, G. Joshi, *FedExP: speeding up federated averaging via extrapolation*, ICLR 2023,
Algorithm 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from losac._settings import POSITIVE, Number, number
from losac.algorithms.contract import Federation, Local, Received
from losac.algorithms.descent import Walk
from losac.algorithms.facts import BIASED, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, axpy, scale, squared_norm


class Move(NamedTuple):
    """How far a client's model moved, Δ_i, and ‖Δ_i‖²."""

    x: Tree
    square: Any


class Fedexp(Fedavg):
    r"""FedExP: the more the clients' updates disagree, the longer the server's step along their mean.

    .. math::
       x \leftarrow x + \gamma\bar\Delta, \qquad \bar\Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x), \qquad
       \gamma = \max\Big(\gamma_0,\; \frac{\sum_{i\in\mathcal S}\|\Delta_i\|^2}{2S(\|\bar\Delta\|^2 + \epsilon)}\Big)

    Its only point of rest is FedAvg's. As Δ̄ vanishes, γ grows up to mean‖Δ_i‖²/(2ε), and if ε is small compared with
    ‖Δ_i‖² the method swings around that point instead of settling.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ₀, the least γ; 1 in the paper.
      epsilon: ε, in the units of ‖Δ̄‖².
      weighting, clip_norm, local_optimizer: see :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedexp(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2301.09604
    """

    title = "FedExP"
    tuned = axis(epsilon=(1e-4, 1e-3, 1e-2, 1e-1))
    theory = (Theory(BIASED, BIASED, BIASED),)

    epsilon: Number = number(default=1e-3, domain=POSITIVE, kw_only=True)

    def end(self, here: Local, x: Tree, client: Tree, local: Walk) -> tuple[Move, Tree]:
        """Send how far the model moved, and the square of its length."""
        move, client = super().end(here, x, client, local)
        return Move(move, squared_norm(move)), client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Move the model by the extrapolated mean."""
        mean = scale(1 / received.count, received.total.x)
        ratio = received.total.square / (2 * received.count * (squared_norm(mean) + self.epsilon))
        return axpy(jnp.maximum(self.server_step, ratio), mean, x)
