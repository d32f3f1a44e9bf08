"""Distributed (federated) SGD: clients send gradients, the server takes the step.

References: J. Dean et al., *Large scale distributed deep networks*, 2012; as FedSGD in H. B. McMahan et al., 2017.
"""

from __future__ import annotations

from losac.algorithms.contract import Federation, Gradient, Local, Received
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis
from losac.algorithms.one_gradient import OneGradient
from losac.trees import Tree, axpy


class Dsgd(OneGradient):
    r"""Distributed SGD.

    .. math:: x \leftarrow \mathrm{prox}_{\eta\Psi}\Big(x - \frac{\eta}{S}\sum_{i\in\mathcal S} g_i(x)\Big)

    Args:
      step_size: η, the server's step.
      blocks, batch_size: how the one gradient is drawn; the full local gradient by default.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.dsgd(step_size=1e-2)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1602.05629
    """

    title = "DSGD"
    tuned = axis()
    example = Example(0.3, local_steps=None)
    theory = (Theory(EXACT, BIASED, BIASED),)

    composite = True

    def step(self, here: Local, x: Tree, client: Tree, local: Tree, grad: Gradient) -> Tree:
        """Return the gradient at the broadcast model."""
        return grad(x)

    def end(self, here: Local, x: Tree, client: Tree, g: Tree) -> tuple[Tree, Tree]:
        """Send the gradient."""
        return g, client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Take the (proximal) gradient step."""
        return here.prox(axpy(-self.step_size / received.count, received.total, x), self.step_size)
