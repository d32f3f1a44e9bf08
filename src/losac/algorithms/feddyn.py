"""FedDyn: dynamic regularisation.

Reference: D. A. E. Acar et al., *Federated learning based on dynamic regularization*, ICLR 2021, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import POSITIVE, Number, number
from losac.algorithms import descent
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.descent import Walk
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis, curvature
from losac.algorithms.invariant import require_balance
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Pair(NamedTuple):
    """The model x, and h, the mean of the clients' h_i."""

    x: Tree
    h: Tree


class Feddyn(LocalMethod):
    r"""FedDyn: a linear and a quadratic term make the local optima agree with the global one.

    Client i approximately minimises :math:`f_i(w) - \langle h_i, w\rangle + \frac\alpha2\|w - x\|^2` by K steps:

    .. math::
       w &\leftarrow w - \eta\big(g_i(w) - h_i + \alpha(w - x)\big), \qquad h_i \leftarrow h_i - \alpha(w_i - x), \\
       h &\leftarrow h - \frac{\alpha}{N}\sum_{i\in\mathcal S}(w_i - x), \qquad
       x \leftarrow \frac1S\sum_{i\in\mathcal S}w_i - \frac1\alpha h.

    All h start at zero, so Σ h_i = N·h always holds. It converges with sampled clients and full local gradients.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      alpha: α, in the units of a loss that is a mean over the client's samples; of the order of its curvature. For a
        sum over samples it grows with their number.
      clip_norm, local_optimizer: see :class:`losac.algorithms.contract.LocalMethod`; both act on the gradient of the
        whole local objective, and so keep its minimiser.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.feddyn(step_size=1e-3, local_steps=5, blocks=5, alpha=100.0)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2111.04263
    """

    title = "FedDyn"
    tuned = axis(alpha=(0.1, 1.0, 10.0, 100.0))
    example = Example(settings={"alpha": curvature})
    theory = (Theory(EXACT, EXACT, BIASED),)

    free = STEPS | {"alpha", SAMPLED}

    alpha: Number = number(default=0.01, domain=POSITIVE, kw_only=True)

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
        """Take one step on the regularised local objective."""
        g = map_trees(lambda g, h, w, x: g - h + self.alpha * (w - x), grad(local.w), h_i, local.w, x)
        return descent.descend(self, local, g)

    def end(self, here: Local, x: Tree, h_i: Tree, local: Walk) -> tuple[Tree, Tree]:
        """Send how far the model moved; renew h_i."""
        move = sub(local.w, x)
        return move, axpy(-self.alpha, move, h_i)

    def record(self, here: Local, upload: Tree, sent: Tree, h_i: Tree) -> tuple[Tree, Tree]:
        """Renew h_i by the move that the server believes in."""
        return axpy(-self.alpha, sub(sent, upload), h_i), ()

    def update(self, here: Federation, server: Pair, received: Received) -> Pair:
        """Renew h, then the model with the new h."""
        h = axpy(-self.alpha / here.clients, received.total, server.h)
        return Pair(map_trees(lambda x, d, h: x + d / received.count - h / self.alpha, server.x, received.total, h), h)

    def credit(self, upload: Tree) -> Tree:
        """Return the change of h_i."""
        return scale(-self.alpha, upload)

    def holding(self, here: Federation, start: Tree, h_i: Tree, table: Tree) -> Tree:
        """Return h_i."""
        return h_i

    def shift(self, here: Federation, server: Pair, credit: Tree) -> Pair:
        """Move h as ``update`` does."""
        return Pair(server.x, axpy(1 / here.clients, credit, server.h))

    def check_state(self, here: Federation, server: Pair, h_i: Tree, table: Tree) -> None:
        """Refuse a start with Σ h_i ≠ N·h: its error would never vanish."""
        require_balance(self.label, "h", h_i, server.h)
