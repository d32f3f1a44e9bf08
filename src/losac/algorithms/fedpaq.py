"""FedPAQ: federated averaging with quantised updates.

Reference: A. Reisizadeh et al., *FedPAQ: a communication-efficient federated learning method with periodic averaging
and quantization*, AISTATS 2020.
"""

from __future__ import annotations

from losac._settings import count
from losac.algorithms.compression import Qsgd
from losac.algorithms.facts import BIASED, SERVER_STEPS, Theory
from losac.algorithms.fedavg import Fedavg
from losac.algorithms.transform import Transform


class Fedpaq(Fedavg):
    r"""FedPAQ: K local SGD steps, then the mean of the updates, each quantised without bias.

    .. math:: w \leftarrow w - \eta\, g_i(w), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S} Q_s(w_i - x)

    Q_s is :class:`losac.algorithms.compression.Qsgd`. Its noise is in proportion to the clients' updates: when the
    clients differ, it stays, and so does FedAvg's bias.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      levels: s; 127 is as many as a byte holds.
      server_step, weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedpaq(step_size=1e-3, local_steps=5, blocks=5, levels=7)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1909.13014
    """

    title = "FedPAQ"
    tuned = SERVER_STEPS
    theory = (Theory(BIASED, BIASED, BIASED),)

    levels: int = count(default=127, kw_only=True)

    def transforms(self) -> tuple[Transform, ...]:
        """Quantise first."""
        return (Qsgd(self.levels), *self.uploads)
