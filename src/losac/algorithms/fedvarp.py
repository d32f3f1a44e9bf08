"""FedVARP: SAGA over the clients' updates, with the memory on the server.

Reference: D. Jhunjhunwala, P. Sharma, A. Nagarkatti, G. Joshi, *FedVARP: tackling the variance due to partial client
participation in federated learning*, UAI 2022, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from losac.algorithms.contract import SAMPLED, STEPS, Federation, Received
from losac.algorithms.facts import BIASED, EXACT, SERVER_STEPS, Example, Theory
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Remembered(NamedTuple):
    """The model x and the mean of the remembered updates, (1/N) Σ_j y_j."""

    x: Tree
    mean: Tree


class Fedvarp(Fedavg):
    r"""FedVARP: the server remembers each client's last update, and uses it when the client is absent.

    With :math:`u_i = (w_i - x)/\eta` after FedAvg's local steps,

    .. math::
       x \leftarrow x + \gamma\eta\Big(\frac1S\sum_{i\in\mathcal S}(u_i - y_i) + \frac1N\sum_{j=1}^N y_j\Big), \qquad
       y_i \leftarrow u_i \;\text{ for } i\in\mathcal S.

    The y_i start at zero. It removes the variance of sampling clients, not the drift: with full local gradients it
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
      >>> algorithm = losac.algorithms.fedvarp(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2207.14130
    """

    title = "FedVARP"
    tuned = SERVER_STEPS
    theory = (
        Theory(EXACT, EXACT, BIASED, Example(local_steps=1)),
        Theory(BIASED, BIASED, BIASED),
    )

    server_rows = True
    free = STEPS | {"server_step", SAMPLED}
    meanings: ClassVar[Mapping[str, str]] = {"weighting": "the mean of the rows is weighted as their average is"}

    def init(self, x: Tree) -> Remembered:
        """Start with the mean of zeros."""
        return Remembered(x, zeros(x))

    def model(self, server: Remembered) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Remembered) -> Tree:
        """Send the model only."""
        return server.x

    def init_server_row(self, x: Tree) -> Tree:
        """Start with y_i = 0."""
        return zeros(x)

    def receive(self, y: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Add u_i − y_i to the sum; remember u_i."""
        u = scale(1 / self.step_size, upload)
        return sub(u, y), u

    def drop_row(self, here: Federation, server: Remembered, y: Tree, weight: Any) -> Remembered:
        """Take y_i, with its weight, out of the mean."""
        return Remembered(server.x, axpy(-weight / here.clients, y, server.mean))

    def update(self, here: Federation, server: Remembered, received: Received) -> Remembered:
        """Take SAGA's step over clients; renew the mean of the memory."""
        step = self.server_step * self.step_size
        x = map_trees(lambda x, d, mean: x + step * (d / received.count + mean), server.x, received.total, server.mean)
        return Remembered(x, axpy(1 / here.clients, received.total, server.mean))
