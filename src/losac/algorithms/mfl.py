"""MFL: momentum federated learning.

Reference: W. Liu, L. Chen, Y. Chen, W. Zhang, *Accelerating federated learning via momentum gradient descent*, IEEE
TPDS 2020.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import BELOW_ONE, Number, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, MOMENTA, Theory
from losac.trees import Tree, axpy, sub, zeros


class Moving(NamedTuple):
    """A model x with its momentum v; or the changes of both."""

    x: Tree
    v: Tree


class Mfl(LocalMethod):
    r"""MFL: local steps with momentum, and the mean of both the models and the momenta.

    .. math::
       v &\leftarrow \beta v + g_i(w), \qquad w \leftarrow w - \eta v, \\
       x &\leftarrow \frac1S\sum_{i\in\mathcal S} w_i, \qquad v \leftarrow \frac1S\sum_{i\in\mathcal S} v_i.

    v starts at zero. It settles away from the optimum when the clients differ and K > 1.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      momentum: β.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.mfl(step_size=1e-3, local_steps=5, blocks=5, momentum=0.5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1910.03197
    """

    title = "MFL"
    tuned = MOMENTA
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = "its local step is heavy ball with the momentum that the server averages"

    free = STEPS | {"momentum", SAMPLED}

    momentum: Number = number(default=0.5, domain=BELOW_ONE, kw_only=True)

    def init(self, x: Tree) -> Moving:
        """Start at rest."""
        return Moving(x, zeros(x))

    def model(self, server: Moving) -> Tree:
        """Return x."""
        return server.x

    def step(self, here: Local, message: Moving, client: Tree, local: Moving, grad: Gradient) -> Moving:
        """Take one step with momentum."""
        v = axpy(self.momentum, local.v, grad(local.x))
        return Moving(axpy(-self.step_size, v, local.x), v)

    def end(self, here: Local, message: Moving, client: Tree, local: Moving) -> tuple[Moving, Tree]:
        """Send the changes of both."""
        return sub(local, message), client

    def update(self, here: Federation, server: Moving, received: Received) -> Moving:
        """Move both by the mean."""
        moved: Moving = axpy(1 / received.count, received.total, server)
        return moved
