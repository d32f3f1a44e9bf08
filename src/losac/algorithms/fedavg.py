"""Federated averaging.

Reference: H. B. McMahan et al., *Communication-efficient learning of deep networks from decentralized data*,
AISTATS 2017.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from losac._settings import POSITIVE, Number, choice, number
from losac.algorithms import descent
from losac.algorithms.contract import Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.descent import Walk
from losac.algorithms.facts import BIASED, SERVER_STEPS, Theory
from losac.trees import Tree, axpy, sub


class Fedavg(LocalMethod):
    r"""Federated averaging: K local SGD steps, then the mean of the models.

    .. math:: w \leftarrow w - \eta\, g_i(w), \qquad x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    It settles away from the optimum when the clients differ and K > 1.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ.
      weighting: where the task's client weights p_i act: in the ``"loss"`` (local steps on N·p_i·f_i, like all the
        other algorithms) or in the ``"average"`` of the models, as McMahan et al. write it.
      clip_norm, local_optimizer: see :class:`losac.algorithms.contract.LocalMethod`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedavg(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1602.05629
    """

    title = "FedAvg"
    tuned = SERVER_STEPS
    theory: ClassVar[tuple[Theory, ...]] = (Theory(BIASED, BIASED, BIASED),)

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)
    weighting: Literal["loss", "average"] = choice(default="loss", choices=("loss", "average"), kw_only=True)

    def begin(self, here: Local, x: Tree, client: Tree) -> tuple[Walk, Tree]:
        """Start from the broadcast model."""
        return descent.start(self, x), client

    def step(self, here: Local, x: Tree, client: Tree, local: Walk, grad: Gradient) -> Walk:
        """Take one SGD step."""
        return descent.descend(self, local, grad(local.w))

    def end(self, here: Local, x: Tree, client: Tree, local: Walk) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(local.w, x), client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Move the model by the mean."""
        return axpy(self.server_step / received.count, received.total, x)
