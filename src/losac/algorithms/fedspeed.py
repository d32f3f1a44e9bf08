"""FedSpeed: dynamic regularisation with gradients from a step uphill.

Reference: Y. Sun, L. Shen, T. Huang, L. Ding, D. Tao, *FedSpeed: larger local interval, less communication round, and
higher generalization accuracy*, ICLR 2023, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import NONNEGATIVE, POSITIVE, PROBABILITY, Number, number
from losac.algorithms import descent
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.descent import Walk
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis, curvature
from losac.algorithms.invariant import require_balance
from losac.algorithms.perturbed import towards
from losac.trees import Tree, add, axpy, map_trees, sub, zeros


class Pair(NamedTuple):
    """The model x, and h, the mean of the clients' h_i."""

    x: Tree
    h: Tree


class Fedspeed(LocalMethod):
    r"""FedSpeed: FedDyn's local objective with gradients taken after a step of length ρ uphill.

    .. math::
       g &= (1-\alpha)\,g_i(w) + \alpha\,g_i\Big(w + \rho\,\frac{g_i(w)}{\|g_i(w)\|}\Big), \\
       w &\leftarrow w - \eta\big(g + \lambda(w - x + h_i)\big), \qquad h_i \leftarrow h_i + w_i - x, \\
       x &\leftarrow \frac1S\sum_{i\in\mathcal S}w_i + h, \qquad h = \frac1N\sum_{i=1}^N h_i.

    All h start at zero. Both gradients of a step are taken on the same data. With ρ = 0 it ends at the optimum, with
    sampled clients too; with ρ > 0 it ends where Σ ∇f_i(x + ρ∇f_i(x)/‖∇f_i(x)‖) = 0. This is the form of the authors'
    code. The paper (from memory) writes 1/λ for λ and takes the mean of h_i over the clients of the round, with which
    the method ends away from the optimum when clients are sampled, even with ρ = 0.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      rho: ρ, the length of the step uphill.
      strength: λ, in the units of a loss that is a mean over the client's samples; of the order of its curvature.
      alpha: α, the share of the gradient from uphill.
      clip_norm, local_optimizer: see :class:`losac.algorithms.contract.LocalMethod`; both act on the gradient of the
        whole local objective.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedspeed(step_size=1e-3, local_steps=5, blocks=5, rho=0.01, strength=100.0)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2302.10429
    """

    title = "FedSpeed"
    tuned = axis(strength=(0.1, 1.0, 10.0, 100.0))
    example = Example(settings={"strength": curvature, "rho": 0.05})
    theory = (
        Theory(BIASED, BIASED, BIASED),
        Theory(EXACT, EXACT, BIASED, Example(settings={"strength": curvature, "rho": 0.0})),
    )

    free = STEPS | {"strength", "rho", "alpha", SAMPLED}

    rho: Number = number(default=0.1, domain=NONNEGATIVE, kw_only=True)
    strength: Number = number(default=0.1, domain=POSITIVE, kw_only=True)
    alpha: Number = number(default=1.0, domain=PROBABILITY, kw_only=True)

    def init(self, x: Tree) -> Pair:
        """Start with h = 0."""
        return Pair(x, zeros(x))

    def model(self, server: Pair) -> Tree:
        """Return x."""
        return server.x

    def init_client(self, x: Tree) -> Tree:
        """Start with h_i = 0."""
        return zeros(x)

    def broadcast(self, server: Pair) -> Tree:
        """Send the model only."""
        return server.x

    def begin(self, here: Local, x: Tree, h_i: Tree) -> tuple[Walk, Tree]:
        """Start from the broadcast model."""
        return descent.start(self, x), h_i

    def step(self, here: Local, x: Tree, h_i: Tree, local: Walk, grad: Gradient) -> Walk:
        """Look uphill; take one step on the regularised local objective."""
        g = grad(local.w)
        ahead = grad(add(local.w, towards(g, self.rho)))
        whole = map_trees(
            lambda g, a, w, x, h: (1 - self.alpha) * g + self.alpha * a + self.strength * (w - x + h),
            g, ahead, local.w, x, h_i,
        )  # fmt: skip
        return descent.descend(self, local, whole)

    def end(self, here: Local, x: Tree, h_i: Tree, local: Walk) -> tuple[Tree, Tree]:
        """Send how far the model moved; renew h_i."""
        move = sub(local.w, x)
        return move, add(h_i, move)

    def record(self, here: Local, upload: Tree, sent: Tree, h_i: Tree) -> tuple[Tree, Tree]:
        """Renew h_i by the move that the server believes in."""
        return add(h_i, sub(sent, upload)), ()

    def update(self, here: Federation, server: Pair, received: Received) -> Pair:
        """Renew h, then the model with the new h."""
        h = axpy(1 / here.clients, received.total, server.h)
        return Pair(map_trees(lambda x, d, h: x + d / received.count + h, server.x, received.total, h), h)

    def credit(self, upload: Tree) -> Tree:
        """Return the change of h_i."""
        return upload

    def holding(self, here: Federation, start: Tree, h_i: Tree, table: Tree) -> Tree:
        """Return h_i."""
        return h_i

    def shift(self, here: Federation, server: Pair, credit: Tree) -> Pair:
        """Move h as ``update`` does."""
        return Pair(server.x, axpy(1 / here.clients, credit, server.h))

    def check_state(self, here: Federation, server: Pair, h_i: Tree, table: Tree) -> None:
        """Refuse a start with Σ h_i ≠ N·h: its error would stay."""
        require_balance(self.label, "h", h_i, server.h)
