"""FedAvg-M and SCAFFOLD-M: the last global direction in every local step.

Reference: Z. Cheng, X. Huang, P. Wu, K. Yuan, *Momentum benefits non-IID federated learning simply and provably*, ICLR
2024.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import PROBABILITY, Number, number
from losac.algorithms.contract import Federation, Gradient, Local, Received
from losac.algorithms.facts import BIASED, EXACT, OWN_SHARES, Example, Theory
from losac.algorithms.fedcm import Fedcm
from losac.algorithms.scaffold import Pair, Scaffold
from losac.trees import Tree, map_trees, scale, sub, zeros


class Guided(NamedTuple):
    """The model x, the control variate c, and KΔ: the mean distance that the last round's clients travelled, over η."""

    x: Tree
    c: Tree
    travelled: Tree


class FedavgMomentum(Fedcm):
    r"""FedAvg-M: FedAvg with the last global direction Δ in every local step.

    .. math::
       w \leftarrow w - \eta\big(\alpha g_i(w) + (1-\alpha)\Delta\big), \qquad
       \Delta \leftarrow \frac{1}{SK\eta}\sum_{i\in\mathcal S}(x - w_i), \qquad x \leftarrow x - \gamma K\eta\Delta.

    These are FedCM's steps, for which the paper shows more. Δ starts at zero. At rest Δ = 0, and the model is where
    FedAvg with the local step αη rests.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      alpha: α, the share of the client's own gradient, the paper's β; 1 is FedAvg.
      server_step: γ; the paper's is γKη.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedavg_momentum(step_size=3e-3, local_steps=5, blocks=5, alpha=0.3)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2306.16504
    """

    title = "FedAvg-M"
    tuned = OWN_SHARES
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = Fedcm.free


class ScaffoldMomentum(Scaffold):
    r"""SCAFFOLD-M: SCAFFOLD with the last global direction Δ in every local step.

    .. math::
       w &\leftarrow w - \eta\big(\alpha(g_i(w) - c_i + c) + (1-\alpha)\Delta\big), \\
       c_i^+ &= \frac1K\sum_{k<K} g_i(w^{(k)}), \qquad c \leftarrow c + \frac1N\sum_{i\in\mathcal S}(c_i^+ - c_i), \\
       \Delta &\leftarrow \frac{1}{SK\eta}\sum_{i\in\mathcal S}(x - w_i), \qquad x \leftarrow x - \gamma K\eta\Delta.

    All but x start at zero, so Σ c_i = N·c always holds. It converges with sampled clients and full local
    gradients.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      alpha: α, the share of the corrected gradient, the paper's β; 1 is SCAFFOLD.
      server_step: γ; the paper's is γKη.
      option: how c_i is renewed: 2 as above, with the mean gradient from the distance travelled; 1 by a full
        gradient at the broadcast model.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.scaffold_momentum(step_size=3e-3, local_steps=5, blocks=5, alpha=0.3)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2306.16504
    """

    title = "SCAFFOLD-M"
    tuned = OWN_SHARES
    example = Example(0.3)
    theory = (Theory(EXACT, EXACT, BIASED),)

    composite = False
    free = Scaffold.free | {"alpha"}

    alpha: Number = number(default=0.1, domain=PROBABILITY, kw_only=True)

    def init(self, x: Tree) -> Guided:  # type: ignore[override]
        """Start with c = Δ = 0."""
        return Guided(x, zeros(x), zeros(x))

    def step(self, here: Local, message: Guided, c_i: Tree, w: Tree, grad: Gradient) -> Tree:  # type: ignore[override]
        """Take one step along the mixed direction."""
        own, common = self.step_size * self.alpha, self.step_size * (1 - self.alpha) / here.steps
        return map_trees(
            lambda w, g, ci, c, d: w - own * (g - ci + c) - common * d,
            w,
            grad(w),
            c_i,
            message.c,
            message.travelled,
        )

    def end(self, here: Local, message: Guided, c_i: Tree, w: Tree) -> tuple[Pair, Tree]:  # type: ignore[override]
        """Renew c_i; send both changes."""
        move = sub(w, message.x)
        if self.option == 1:
            renewed = here.gradient(message.x)
        else:
            eta, share = self.step_size, 1 / (here.steps * self.alpha)
            renewed = map_trees(
                lambda ci, c, d, move: ci - c - share * (move / eta + (1 - self.alpha) * d),
                c_i,
                message.c,
                message.travelled,
                move,
            )
        return Pair(move, sub(renewed, c_i)), renewed

    def update(self, here: Federation, server: Guided, received: Received) -> Guided:  # type: ignore[override]
        """Move x and c as SCAFFOLD does, and keep the mean move as the next direction."""
        moved = super().update(here, Pair(server.x, server.c), received)
        return Guided(*moved, scale(-1 / (self.step_size * received.count), received.total.x))
