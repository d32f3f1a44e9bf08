"""DIANA: compressed gradient differences, to a point that each client learns.

Reference: K. Mishchenko, E. Gorbunov, M. Takáč, P. Richtárik, *Distributed learning with compressed gradient
differences*, 2019, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import PROBABILITY, Number, count, number
from losac.algorithms.compression import Qsgd
from losac.algorithms.contract import SAMPLED, Federation, Gradient, Local, Received
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis
from losac.algorithms.invariant import require_balance
from losac.algorithms.one_gradient import OneGradient
from losac.algorithms.transform import Transform
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Learned(NamedTuple):
    """The model x, and h, the mean of the clients' h_i."""

    x: Tree
    h: Tree


class Diana(OneGradient):
    r"""DIANA: clients send their gradient's difference from h_i, quantised; h_i learns the gradient at the optimum.

    .. math::
       m_i &= Q\big(\nabla f_i(x) - h_i\big), \qquad h_i \leftarrow h_i + a\,m_i \;\text{ for } i\in\mathcal S, \\
       x &\leftarrow \mathrm{prox}_{\eta\Psi}\Big(x - \eta\Big(h + \frac1S\sum_{i\in\mathcal S}m_i\Big)\Big), \qquad
       h \leftarrow h + \frac aN\sum_{i\in\mathcal S}m_i.

    Q must be unbiased. All h start at zero, which keeps h = mean h_i. The differences vanish, and so does the error of
    Q: with full local gradients it converges to the exact optimum at a constant step. The paper has all clients take
    part; with sampled ones, h moves by a/N for each of them, which keeps it the mean, and the method exact. With a Q
    that changes nothing and all clients it is gradient descent.

    Args:
      step_size: η, the server's step; up to 1/(L(1 + 6ω/N)) by the theory (from memory), with L the largest curvature
        of a client.
      blocks, batch_size: how the one gradient is drawn; the full local gradient by default.
      shift_step: a, at most 1/(1 + ω) by the theory, where E‖Q(v) − v‖² ≤ ω‖v‖²; for QSGD with s levels ω is the
        smaller of d/s² and √d/s, with d the size of an array.
      levels: s, of QSGD.
      uploads: other unbiased transforms to use instead of QSGD.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.diana(step_size=5e-3, levels=7)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1901.09269
    """

    title = "DIANA"
    tuned = axis(shift_step=(0.03, 0.1, 0.3, 1.0))
    example = Example(0.1, local_steps=None, settings={"levels": 4})
    theory = (Theory(EXACT, EXACT, BIASED),)

    composite = True
    free = frozenset({"step_size", "blocks", "batch_size", "shift_step", "levels", SAMPLED})

    shift_step: Number = number(default=0.5, domain=PROBABILITY, kw_only=True)
    levels: int = count(default=127, kw_only=True)

    def transforms(self) -> tuple[Transform, ...]:
        """Quantise by default."""
        return self.uploads or (Qsgd(self.levels),)

    def init(self, x: Tree) -> Learned:
        """Start with h = 0."""
        return Learned(x, zeros(x))

    def model(self, server: Learned) -> Tree:
        """Return x."""
        return server.x

    def init_client(self, x: Tree) -> Tree:
        """Start with h_i = 0."""
        return zeros(x)

    def broadcast(self, server: Learned) -> Tree:
        """Send the model only."""
        return server.x

    def step(self, here: Local, x: Tree, h_i: Tree, local: Tree, grad: Gradient) -> Tree:
        """Return the gradient at the broadcast model."""
        return grad(x)

    def end(self, here: Local, x: Tree, h_i: Tree, g: Tree) -> tuple[Tree, Tree]:
        """Send the difference from h_i; move h_i along it."""
        difference = sub(g, h_i)
        return difference, axpy(self.shift_step, difference, h_i)

    def record(self, here: Local, upload: Tree, sent: Tree, h_i: Tree) -> tuple[Tree, Tree]:
        """Move h_i along what was sent instead."""
        return axpy(self.shift_step, sub(sent, upload), h_i), ()

    def update(self, here: Federation, server: Learned, received: Received) -> Learned:
        """Step along h and the mean difference; then renew h."""
        moved = map_trees(
            lambda x, h, m: x - self.step_size * (h + m / received.count), server.x, server.h, received.total
        )
        h = axpy(self.shift_step / here.clients, received.total, server.h)
        return Learned(here.prox(moved, self.step_size), h)

    def credit(self, upload: Tree) -> Tree:
        """Return the change of h_i."""
        return scale(self.shift_step, upload)

    def holding(self, here: Federation, start: Tree, h_i: Tree, table: Tree) -> Tree:
        """Return h_i."""
        return h_i

    def shift(self, here: Federation, server: Learned, credit: Tree) -> Learned:
        """Move h as ``update`` does."""
        return server._replace(h=axpy(1 / here.clients, credit, server.h))

    def check_state(self, here: Federation, server: Learned, h_i: Tree, table: Tree) -> None:
        """Refuse a start with h ≠ mean h_i: its error would stay."""
        require_balance(self.label, "h", h_i, server.h)
