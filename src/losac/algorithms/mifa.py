"""MIFA: memory-augmented impatient federated averaging.

Reference: X. Gu, K. Huang, J. Zhang, L. Huang, *Fast federated learning in the presence of arbitrary device
unavailability*, NeurIPS 2021, Algorithm 1.
"""

from __future__ import annotations

from losac.algorithms.contract import Federation, Received
from losac.algorithms.facts import BIASED, EXACT, SERVER_STEPS, Example, Theory
from losac.algorithms.fedvarp import Fedvarp, Remembered
from losac.trees import axpy


class Mifa(Fedvarp):
    r"""MIFA: the mean of all clients' last updates, however old they are; SAG over the clients.

    With :math:`u_i = (w_i - x)/\eta` after FedAvg's local steps,

    .. math::
       y_i \leftarrow u_i \;\text{ for } i\in\mathcal S, \qquad x \leftarrow x + \frac{\gamma\eta}{N}\sum_{j=1}^N y_j.

    The y_i start at zero, where the paper asks every client to answer in the first round. With full local gradients it
    converges to where FedAvg with all clients does, which is the optimum for K = 1.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ.
      weighting, clip_norm, local_optimizer: see :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.mifa(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2106.04159
    """

    title = "MIFA"
    tuned = SERVER_STEPS
    theory = (
        Theory(EXACT, EXACT, BIASED, Example(local_steps=1)),
        Theory(BIASED, BIASED, BIASED),
    )

    free = Fedvarp.free

    def update(self, here: Federation, server: Remembered, received: Received) -> Remembered:
        """Renew the mean of the memory; move along it."""
        mean = axpy(1 / here.clients, received.total, server.mean)
        return Remembered(axpy(self.server_step * self.step_size, mean, server.x), mean)
