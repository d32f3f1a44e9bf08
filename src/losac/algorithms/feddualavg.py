"""FedDualAvg: federated dual averaging for composite problems.

Reference: H. Yuan, M. Zaheer, S. Reddi, *Federated composite optimization*, ICML 2021, Algorithm 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import POSITIVE, Number, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, SERVER_STEPS, Theory
from losac.trees import Tree, axpy, squared_norm, sub, zeros


class Dual(NamedTuple):
    """A dual variable z, which is x⁰ less all gradient steps, and their length so far."""

    z: Tree
    elapsed: Any


class Server(NamedTuple):
    """The dual variable, and the model x = prox(z) of it."""

    dual: Dual
    x: Tree


class Feddualavg(LocalMethod):
    r"""FedDualAvg: clients and server sum gradients in the dual, and map them to the primal when they need it.

    With the step length ``t`` elapsed since the start, locally and at the server,

    .. math::
       z_i &\leftarrow z_i - \eta\, g_i\big(\mathrm{prox}_{t\Psi}(z_i)\big), \qquad t \leftarrow t + \eta, \\
       z &\leftarrow z + \frac{\gamma}{S}\sum_{i\in\mathcal S}(z_i - z), \qquad t \leftarrow t_0 + \gamma\eta K, \qquad
       x = \mathrm{prox}_{t\Psi}(z).

    Averaging in the dual keeps the sparsity or the rank that averages of models lose. Without a regulariser it is
    FedAvg and drifts like it: it settles away from the optimum when the clients differ and K > 1.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      server_step: γ.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.feddualavg(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2011.08474
    """

    title = "FedDualAvg"
    tuned = SERVER_STEPS
    theory = (Theory(BIASED, BIASED, BIASED),)

    composite = True
    tailored_steps = (
        "z is the sum of plain gradient steps, and its length decides how much of the regulariser is due; momentum, "
        "Adam or clipping would falsify it"
    )

    free = STEPS | {"server_step", SAMPLED}

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def init(self, x: Tree) -> Server:
        """Start with z = x⁰ and no step taken."""
        return Server(Dual(x, squared_norm(zeros(x))), x)

    def model(self, server: Server) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Server) -> Dual:
        """Send the dual variable."""
        return server.dual

    def step(self, here: Local, message: Dual, client: Tree, local: Dual, grad: Gradient) -> Dual:
        """Take one step of dual averaging."""
        g = grad(here.prox(local.z, local.elapsed))
        return Dual(axpy(-self.step_size, g, local.z), local.elapsed + self.step_size)

    def end(self, here: Local, message: Dual, client: Tree, local: Dual) -> tuple[Dual, Tree]:
        """Send how far z moved, and the total length of the steps."""
        length = squared_norm(zeros(local.z)) + self.step_size * here.steps  # an array, also where the step is a number
        return Dual(sub(local.z, message.z), length), client

    def update(self, here: Federation, server: Server, received: Received) -> Server:
        """Move z and the elapsed length by their means; map to the primal."""
        share = self.server_step / received.count
        dual = Dual(*(axpy(share, moved, old) for moved, old in zip(received.total, server.dual)))
        return Server(dual, here.prox(dual.z, dual.elapsed))
