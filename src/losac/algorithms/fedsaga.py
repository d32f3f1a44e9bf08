"""FedSaga: SAGA as the local solver of federated averaging; the paper's cautionary example.

Reference: H. Chen et al., *LoSAC: an efficient local stochastic average control method for federated
optimization*, section 3.1, equation (fedsaga) and Algorithm 1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from losac._settings import POSITIVE, Number, choice, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, SERVER_STEPS, Theory
from losac.trees import Tree, axpy, map_trees, sub, zeros


class Walk(NamedTuple):
    """The local model w and the mean of the client's table, (1/M) Σ_j y_j."""

    w: Tree
    mean: Tree


class Fedsaga(LocalMethod):
    r"""FedSaga, equation (fedsaga), in units of the unbiased block gradients g_ij.

    .. math:: w \leftarrow w - \eta\Big(g_{ij}(w) - y_{ij} + \frac1M\sum_k y_{ik}\Big), \; y_{ij} \leftarrow g_{ij}(w^-)

    It reduces the variance of the *local* gradient, and so keeps FedAvg's bias.

    Args:
      step_size: η, the local step.
      local_steps, blocks: T and M.
      server_step: γ.
      average: ``"sampled"`` divides the sum of the updates by S, ``"all"`` by N as the paper's Algorithm prints.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedsaga(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2112.07839
    """

    title = "FedSaga"
    tuned = SERVER_STEPS
    theory = (Theory(BIASED, BIASED, BIASED),)

    table = True
    free = STEPS - {"blocks"} | {"server_step", "average", SAMPLED}
    tailored_steps = "its step is SAGA's, and any change of the direction would make it wrong"

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)
    average: Literal["sampled", "all"] = choice(default="sampled", choices=("sampled", "all"), kw_only=True)

    def init_client(self, x: Tree) -> Tree:
        """Start with the mean of a table of zeros."""
        return zeros(x)

    def begin(self, here: Local, x: Tree, mean: Tree) -> tuple[Walk, Tree]:
        """Start from the broadcast model."""
        return Walk(x, mean), mean

    def step(self, here: Local, x: Tree, client: Tree, local: Walk, grad: Gradient, *y: Tree) -> tuple[Walk, Tree]:
        """Take one SAGA step on block j."""
        g = grad(local.w)
        w = map_trees(lambda w, g, y, m: w - self.step_size * (g - y + m), local.w, g, y[0], local.mean)
        mean = map_trees(lambda m, g, y: m + (g - y) / here.blocks, local.mean, g, y[0])
        return Walk(w, mean), g

    def end(self, here: Local, x: Tree, client: Tree, local: Walk) -> tuple[Tree, Tree]:
        """Send how far the model moved; keep the table's mean."""
        return sub(local.w, x), local.mean

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Move the model by the mean over the sampled clients, or over all."""
        divisor = received.count if self.average == "sampled" else here.clients
        return axpy(self.server_step / divisor, received.total, x)
