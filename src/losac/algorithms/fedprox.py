"""FedProx: federated averaging with a proximal term in the local objectives.

Reference: T. Li et al., *Federated optimization in heterogeneous networks*, MLSys 2020.
"""

from __future__ import annotations

from losac._settings import NONNEGATIVE, Number, number
from losac.algorithms import descent
from losac.algorithms.contract import Gradient, Local
from losac.algorithms.descent import Walk
from losac.algorithms.facts import BIASED, Example, Theory, axis, curvature
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, map_trees


class Fedprox(Fedavg):
    r"""FedProx: clients are held near the broadcast model by a term μ/2‖w − x‖².

    .. math:: w \leftarrow w - \eta\big(g_i(w) + \mu(w - x)\big), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    It settles away from the optimum when the clients differ and K > 1; clients may be sampled.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      mu: μ; 0 is FedAvg. The usual 0.001 to 1 are for mean losses: multiply by n_i if f_i is a sum.
      server_step, weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedprox(step_size=1e-3, local_steps=5, blocks=5, mu=1.0)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1812.06127
    """

    title = "FedProx"
    tuned = axis(mu=(0.01, 0.1, 1.0, 10.0))
    example = Example(settings={"mu": curvature})
    theory = (Theory(BIASED, BIASED, BIASED),)

    mu: Number = number(default=0.01, domain=NONNEGATIVE, kw_only=True)

    def step(self, here: Local, x: Tree, client: Tree, local: Walk, grad: Gradient) -> Walk:
        """Take one SGD step on the proximal objective."""
        g = map_trees(lambda g, w, x: g + self.mu * (w - x), grad(local.w), local.w, x)
        return descent.descend(self, local, g)
