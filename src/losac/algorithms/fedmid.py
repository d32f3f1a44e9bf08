"""FedMiD: federated mirror descent for composite problems, here with the Euclidean mirror map.

Reference: H. Yuan, M. Zaheer, S. Reddi, *Federated composite optimization*, ICML 2021, Algorithm 2.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from losac._settings import POSITIVE, Number, choice, number
from losac.algorithms.contract import Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, SERVER_STEPS, Theory
from losac.trees import Tree, axpy, squared_norm, sub, zeros


class Move(NamedTuple):
    """How far a client's model moved, and the total length of its steps, ηK."""

    x: Tree
    length: Any


class Fedmid(LocalMethod):
    r"""FedMiD: proximal steps at the clients and again at the server.

    .. math::
       w \leftarrow \mathrm{prox}_{\eta\Psi}\big(w - \eta\, g_i(w)\big), \qquad
       x \leftarrow \mathrm{prox}_{\gamma\eta K\Psi}\Big(x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)\Big).

    As printed, the regulariser acts twice: a single client with K = 1 minimises f + 2λ‖·‖₁ for Ψ = λ‖·‖₁. The paper's
    variant FedMiD-OSP (``prox="server"``) leaves out the clients' proximal steps, and reaches the optimum for K = 1.
    Without a regulariser both are FedAvg.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      server_step: γ.
      prox: where the proximal steps are taken: ``"both"`` or ``"server"`` only.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedmid(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2011.08474
    """

    title = "FedMiD"
    tuned = SERVER_STEPS
    theory = (Theory(BIASED, BIASED, BIASED),)

    composite = True
    tailored_steps = (
        "its proximal steps fit plain gradient steps of length η; after momentum, Adam or clipping they would weigh "
        "the regulariser wrongly"
    )

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)
    prox: Literal["both", "server"] = choice(default="both", choices=("both", "server"), kw_only=True)

    def step(self, here: Local, x: Tree, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one (proximal) gradient step."""
        moved = axpy(-self.step_size, grad(w), w)
        return here.prox(moved, self.step_size) if self.prox == "both" else moved

    def end(self, here: Local, x: Tree, client: Tree, w: Tree) -> tuple[Move, Tree]:
        """Send how far the model moved, and the total length of the steps."""
        length = squared_norm(zeros(x)) + self.step_size * here.steps  # an array, also where the step is a number
        return Move(sub(w, x), length), client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Move the model by the mean; take the proximal step that is due for the mean length."""
        share = self.server_step / received.count
        return here.prox(axpy(share, received.total.x, x), share * received.total.length)
