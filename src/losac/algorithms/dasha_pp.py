"""DASHA-PP: compressed corrections of the clients' gradient estimates, with sampled clients and no full gradients.

Reference: A. Tyurin, P. Richtárik, *A computation and communication efficient method for distributed nonconvex
problems in the partial participation setting*, NeurIPS 2023, Algorithm 1 (DASHA-PP, with exact local gradients).
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import NONNEGATIVE, Number, count, number
from losac.algorithms.compression import Qsgd
from losac.algorithms.contract import SAMPLED, Federation, Gradient, Local, Received
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis
from losac.algorithms.invariant import require_balance
from losac.algorithms.one_gradient import OneGradient
from losac.algorithms.transform import Transform
from losac.trees import Tree, add, axpy, map_trees, sub, zeros


class Tracked(NamedTuple):
    """The model x, the one before it, and G, the mean of the clients' G_i."""

    x: Tree
    before: Tree
    gradient: Tree


class Ends(NamedTuple):
    """The two models between which a client's gradient has changed."""

    x: Tree
    before: Tree


class Own(NamedTuple):
    """What a client keeps: G_i, which the server's G is the mean of, and h_i, which follows the local gradient."""

    gradient: Tree
    h: Tree


class DashaPp(OneGradient):
    r"""DASHA-PP: sampled clients send a quantised part of what G_i lacks and of how their gradient changed.

    With q = S/N, :math:`a = q/(2\omega + 1)` and :math:`b = q/(2 - q)`, for the clients of a round

    .. math::
       k_i &= \nabla f_i(x) - \nabla f_i(x') - b\big(h_i - \nabla f_i(x')\big), \qquad
       m_i = Q\Big(\frac{k_i}q - \frac aq(G_i - h_i)\Big), \\
       h_i &\leftarrow h_i + \frac{k_i}q, \qquad G_i \leftarrow G_i + m_i, \qquad
       G \leftarrow G + \frac1N\sum_{i\in\mathcal S}m_i, \qquad x' \leftarrow x, \qquad x \leftarrow x - \eta\,G.

    x' is the model before x; m_i takes the h_i before its change. Q must be unbiased. All of G_i and h_i start at zero,
    where the paper has ∇f_i(x⁰), and G = mean G_i in every round. It needs no rounds with all clients, and converges to
    the exact optimum with full local gradients. With all clients it is DASHA; with a Q that changes nothing besides,
    gradient descent.

    Args:
      step_size: η, the server's step.
      blocks, batch_size: how the one draw of data is made, on which both gradients are taken; all local data by
        default.
      omega: ω of Q, where E‖Q(v) − v‖² ≤ ω‖v‖²; for QSGD with s levels the smaller of d/s² and √d/s, with d the size
        of an array. A larger value is safe and slower.
      levels: s, of :class:`losac.algorithms.compression.Qsgd`.
      uploads: other unbiased transforms to use instead of QSGD.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.dasha_pp(step_size=2e-3)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2205.15580
    """

    title = "DASHA-PP"
    tuned = axis(omega=(0.03, 0.3, 3.0, 30.0))
    example = Example(0.05, local_steps=None, settings={"omega": 0.5, "levels": 4})
    theory = (Theory(EXACT, EXACT, BIASED),)

    free = frozenset({"step_size", "blocks", "batch_size", "omega", "levels", SAMPLED})

    omega: Number = number(default=1.0, domain=NONNEGATIVE, kw_only=True)
    levels: int = count(default=127, kw_only=True)

    def transforms(self) -> tuple[Transform, ...]:
        """Quantise by default."""
        return self.uploads or (Qsgd(self.levels),)

    def init(self, x: Tree) -> Tracked:
        """Start at rest."""
        return Tracked(x, x, zeros(x))

    def model(self, server: Tracked) -> Tree:
        """Return x."""
        return server.x

    def init_client(self, x: Tree) -> Own:
        """Start with G_i = h_i = 0."""
        return Own(zeros(x), zeros(x))

    def broadcast(self, server: Tracked) -> Ends:
        """Send both models."""
        return Ends(server.x, server.before)

    def begin(self, here: Local, message: Ends, own: Own) -> tuple[Tree, Own]:
        """Begin with no change."""
        return zeros(message.x), own

    def step(self, here: Local, message: Ends, own: Own, local: Tree, grad: Gradient) -> Tree:
        """Return k_i/q."""
        q = here.sampled / here.clients
        b = q / (2 - q)
        return map_trees(
            lambda now, then, h: (now - then - b * (h - then)) / q, grad(message.x), grad(message.before), own.h
        )

    def end(self, here: Local, message: Ends, own: Own, change: Tree) -> tuple[Tree, Own]:
        """Send the change and a share of what G_i lacks; renew both."""
        share = 1 / (2 * self.omega + 1)
        upload = map_trees(lambda k, g, h: k - share * (g - h), change, own.gradient, own.h)
        return upload, Own(add(own.gradient, upload), add(own.h, change))

    def record(self, here: Local, upload: Tree, sent: Tree, own: Own) -> tuple[Tree, Tree]:
        """Keep the G_i that the server believes in."""
        return own._replace(gradient=add(own.gradient, sub(sent, upload))), ()

    def update(self, here: Federation, server: Tracked, received: Received) -> Tracked:
        """Renew G; step along it."""
        gradient = axpy(1 / here.clients, received.total, server.gradient)
        return Tracked(axpy(-self.step_size, gradient, server.x), server.x, gradient)

    def credit(self, upload: Tree) -> Tree:
        """Return the change of G_i."""
        return upload

    def holding(self, here: Federation, start: Tree, own: Own, table: Tree) -> Tree:
        """Return G_i."""
        return own.gradient

    def shift(self, here: Federation, server: Tracked, credit: Tree) -> Tracked:
        """Move G as ``update`` does."""
        return server._replace(gradient=axpy(1 / here.clients, credit, server.gradient))

    def check_state(self, here: Federation, server: Tracked, own: Own, table: Tree) -> None:
        """Refuse a start with G ≠ mean G_i: its error would stay."""
        require_balance(self.label, "G", own.gradient, server.gradient)
