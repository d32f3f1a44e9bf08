"""Distributed (federated) SGD: clients send gradients, the server takes the step.

References: J. Dean et al., *Large scale distributed deep networks*, 2012; as FedSGD in H. B. McMahan et al., 2017.
"""

from __future__ import annotations

from losac.algorithms.contract import Algorithm, Draw, Federation, Gradient, Local, Received
from losac.trees import Tree, axpy


class Dsgd(Algorithm):
    r"""Distributed SGD.

    .. math:: x \leftarrow \mathrm{prox}_{\eta\Psi}\Big(x - \frac{\eta}{S}\sum_{i\in\mathcal S} g_i(x)\Big)

    Args:
      step_size: η, the server's step.
      blocks, batch_size: how the one gradient is drawn; the full local gradient by default.
    """

    composite = True

    def validate(self) -> None:
        """A client of DSGD takes no step of its own."""
        super().validate()
        if self.local_steps not in (None, 1) or self.epochs:
            raise ValueError("dsgd sends one gradient a round: local_steps must be 1; use fedavg for local steps")

    @property
    def draw(self) -> Draw:
        """One gradient, whatever it is drawn from."""
        return Draw(1, self.blocks or 1, self.batch_size)

    def step(self, here: Local, x: Tree, client: Tree, local: Tree, grad: Gradient) -> Tree:
        """Return the gradient at the broadcast model."""
        return grad(x)

    def end(self, here: Local, x: Tree, client: Tree, g: Tree) -> tuple[Tree, Tree]:
        """Send the gradient."""
        return g, client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Take the (proximal) gradient step."""
        return here.prox(axpy(-self.step_size / received.count, received.total, x), self.step_size)
