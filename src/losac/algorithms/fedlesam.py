"""FedLESAM: sharpness-aware local steps with a perturbation estimated from the model's last move.

Reference: Z. Fan, S. Hu, J. Yao, G. Niu, Y. Zhang, M. Sugiyama, Y. Wang, *Locally estimated global perturbations are
better than local perturbations for federated sharpness-aware minimization*, ICML 2024, Algorithm 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import NONNEGATIVE, Number, number
from losac.algorithms import descent
from losac.algorithms.contract import SAMPLED, STEPS, Gradient, Local
from losac.algorithms.descent import Walk
from losac.algorithms.facts import BIASED, Example, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.algorithms.perturbed import towards
from losac.trees import Tree, add, scale, squared_norm, sub, zeros


class Last(NamedTuple):
    """The model that the client received when it last took part, and 1 if it ever did, else 0."""

    x: Tree
    been: Any


class Shifted(NamedTuple):
    """A local walk, and the perturbation e of the round."""

    walk: Walk
    e: Tree


class Fedlesam(Fedavg):
    r"""FedLESAM: gradients are taken a little behind, where the model was when the client last took part.

    .. math::
       e_i = \rho\,\frac{x_i^{\mathrm{old}} - x}{\|x_i^{\mathrm{old}} - x\|}, \qquad
       w \leftarrow w - \eta\,g_i(w + e_i), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    The model's move since then, x − x_i^old, stands in for −∇f: a step takes one gradient where other
    sharpness-aware methods take two. e_i is zero when a client takes part for the first time. ρ = 0 is FedAvg. The
    direction does not fade as the model comes to rest, so the model swings around where FedAvg settles.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      rho: ρ, how far behind the gradients are taken.
      server_step, weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedlesam(step_size=1e-3, local_steps=5, blocks=5, rho=0.01)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2405.18890
    """

    title = "FedLESAM"
    tuned = axis(rho=(0.001, 0.01, 0.1, 1.0))
    example = Example(settings={"rho": 0.05})
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = STEPS | {"rho", "server_step", "weighting", SAMPLED}

    rho: Number = number(default=0.1, domain=NONNEGATIVE, kw_only=True)

    def init_client(self, x: Tree) -> Last:
        """Start as a client that never took part."""
        return Last(x, squared_norm(zeros(x)))

    def begin(self, here: Local, x: Tree, client: Last) -> tuple[Shifted, Last]:  # type: ignore[override]
        """Start from the broadcast model; look back."""
        walk, kept = super().begin(here, x, client)
        return Shifted(walk, scale(client.been, towards(sub(client.x, x), self.rho))), kept

    def step(self, here: Local, x: Tree, client: Last, local: Shifted, grad: Gradient) -> Shifted:  # type: ignore[override]
        """Take one SGD step with the gradient from behind."""
        g = grad(add(local.walk.w, local.e))
        return local._replace(walk=descent.descend(self, local.walk, g))

    def end(self, here: Local, x: Tree, client: Last, local: Shifted) -> tuple[Tree, Last]:  # type: ignore[override]
        """Send how far the model moved; remember where it was."""
        upload, _ = super().end(here, x, client, local.walk)
        return upload, Last(x, client.been * 0 + 1)
