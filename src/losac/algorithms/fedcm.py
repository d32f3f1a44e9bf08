"""FedCM: federated learning with client-level momentum.

Reference: J. Xu, S. Wang, L. Wang, A. C.-C. Yao, *FedCM: federated learning with client-level momentum*, 2021.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import POSITIVE, PROBABILITY, Number, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, OWN_SHARES, Theory
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Guided(NamedTuple):
    """The model x, and KΔ: the mean distance that the last round's clients travelled, over η."""

    x: Tree
    travelled: Tree


class Fedcm(LocalMethod):
    r"""FedCM: every local step mixes the client's gradient with the last round's global direction Δ.

    .. math::
       w &\leftarrow w - \eta\big(\alpha g_i(w) + (1-\alpha)\Delta\big), \\
       \Delta &\leftarrow \frac{1}{SK\eta}\sum_{i\in\mathcal S}(x - w_i), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x).

    Δ starts at zero. It settles away from the optimum when the clients differ and K > 1. If clients differ in K,
    each divides the mean distance by its own K.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      alpha: α, the share of the client's own gradient; 1 is FedAvg.
      server_step: γ.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedcm(step_size=3e-3, local_steps=5, blocks=5, alpha=0.3)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2106.10874
    """

    title = "FedCM"
    tuned = OWN_SHARES
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = (
        "Δ is read off the distance travelled, (x − w)/(Kη), which is the mean direction only for plain "
        "steps of length η"
    )

    free = STEPS | {"alpha", "server_step", SAMPLED}

    alpha: Number = number(default=0.1, domain=PROBABILITY, kw_only=True)
    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def init(self, x: Tree) -> Guided:
        """Start with Δ = 0."""
        return Guided(x, zeros(x))

    def model(self, server: Guided) -> Tree:
        """Return x."""
        return server.x

    def begin(self, here: Local, message: Guided, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, client

    def step(self, here: Local, message: Guided, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one step along the mixed direction."""
        own, common = self.step_size * self.alpha, self.step_size * (1 - self.alpha) / here.steps
        return map_trees(lambda w, g, d: w - own * g - common * d, w, grad(w), message.travelled)

    def end(self, here: Local, message: Guided, client: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, message.x), client

    def update(self, here: Federation, server: Guided, received: Received) -> Guided:
        """Move the model by the mean, and keep the mean as the next direction."""
        return Guided(
            axpy(self.server_step / received.count, received.total, server.x),
            scale(-1 / (self.step_size * received.count), received.total),
        )
