"""FedSPS: local steps by the stochastic Polyak rule.

Reference: S. Mukherjee, N. Loizou, S. U. Stich, *Locally adaptive federated learning*, TMLR 2024, Algorithm 1.
"""

from __future__ import annotations

from losac._settings import POSITIVE, Number, number
from losac.algorithms.contract import Gradient, Local, value_and_gradient
from losac.algorithms.facts import BIASED, Example, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.algorithms.scalars import bounded_ratio
from losac.trees import Tree, axpy, squared_norm, sub


class Fedsps(Fedavg):
    r"""FedSPS: each client's step is its loss divided by its gradient's squared length, up to a bound.

    .. math::
       \eta = \min\Big(\frac{F_i(w) - \ell}{c\,\|g_i(w)\|^2},\;\gamma_b\Big), \qquad
       w \leftarrow w - \eta\,g_i(w), \qquad x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    F_i and g_i are the loss and its gradient on the step's data, and ℓ is a lower bound of F_i. Only where all
    clients share an optimum with F_i = ℓ does it end there; else it settles away from the optimum. With γ_b below
    1/(2cL), and ℓ the least value of f_i, it is FedAvg with the step γ_b. The bound γ_b and the algorithm around the
    local rule are from memory.

    It needs the value of the loss: clients in NumPy must be made with ``loss``.

    Args:
      step_size: η's upper bound γ_b.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      lowest: ℓ; 0 suits losses that are not negative.
      scaling: c; 0.5 in the paper.
      server_step, weighting: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedsps(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2307.06306
    """

    title = "FedSPS"
    tuned = axis(scaling=(0.1, 0.5, 2.0, 10.0))
    example = Example(1.0)
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = "its steps follow from the loss and the gradient as they are"

    lowest: Number = number(default=0.0, kw_only=True)
    scaling: Number = number(default=0.5, domain=POSITIVE, kw_only=True)

    def begin(self, here: Local, x: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return x, client

    def step(self, here: Local, x: Tree, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Find the step; take it."""
        value, g = value_and_gradient(grad, w)
        rate = bounded_ratio(value - self.lowest, self.scaling * squared_norm(g), self.step_size)
        return axpy(-rate, g, w)

    def end(self, here: Local, x: Tree, client: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, x), client
