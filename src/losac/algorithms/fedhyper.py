"""FedHyper-G: a server step that follows the hypergradient.

Reference: Z. Wang, J. Wang, A. Li, *FedHyper: a universal and robust learning rate scheduler for federated learning
with hypergradient descent*, ICLR 2024 (the global scheduler, FedHyper-G).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac._settings import POSITIVE, Number, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Received
from losac.algorithms.facts import BIASED, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, axpy, map_trees, scale, squared_norm, zeros


class Scheduled(NamedTuple):
    """The model x, the last mean update, and the server's step α."""

    x: Tree
    last: Tree
    rate: Any


class Fedhyper(Fedavg):
    r"""FedHyper-G: the server's step grows while updates agree with the one before, and shrinks while they turn back.

    .. math::
       \alpha \leftarrow \mathrm{clip}\big(\alpha + \langle\bar\Delta, \bar\Delta^{\mathrm{last}}\rangle,\;
       1/b,\; b\big), \qquad x \leftarrow x + \alpha\bar\Delta, \qquad
       \bar\Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x)

    α starts at γ. It rests where FedAvg does. The inner product has units: another unit of the parameters changes the
    method. The bounds are the paper's, from memory; the authors' code has 0.2 and 5.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ, the first α.
      limit: b, of at least 1: α stays between 1/b and b.
      weighting, clip_norm, local_optimizer: see :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedhyper(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2310.03156
    """

    title = "FedHyper-G"
    tuned = axis(limit=(1.5, 3.0, 5.0, 10.0))
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = STEPS | {"limit", "server_step", "weighting", SAMPLED}

    limit: Number = number(default=3.0, domain=POSITIVE, kw_only=True)

    def validate(self) -> None:
        """The bounds must be in order."""
        super().validate()
        if isinstance(self.limit, int | float) and self.limit < 1:
            raise ValueError(
                f"fedhyper: limit={self.limit} must be at least 1: the step stays between 1/limit and limit"
            )

    def init(self, x: Tree) -> Scheduled:
        """Start with α = γ."""
        return Scheduled(x, zeros(x), squared_norm(zeros(x)) + self.server_step)

    def model(self, server: Scheduled) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Scheduled) -> Tree:
        """Send the model only."""
        return server.x

    def update(self, here: Federation, server: Scheduled, received: Received) -> Scheduled:
        """Renew α; move the model by the mean."""
        mean = scale(1 / received.count, received.total)
        agreement = sum(jax.tree.leaves(map_trees(lambda a, b: (a * b).sum(), mean, server.last)))
        rate = jnp.clip(server.rate + agreement, 1 / self.limit, self.limit)
        return Scheduled(axpy(rate, mean, server.x), mean, rate)
