"""EF21-PP: error feedback that sends compressed differences, with sampled clients.

Reference: I. Fatkhullin, I. Sokolov, E. Gorbunov, Z. Li, P. Richtárik, *EF21 with bells & whistles: practical
algorithmic extensions of modern error feedback*, 2021 (EF21-PP).
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import count
from losac.algorithms.compression import TopK
from losac.algorithms.contract import SAMPLED, Federation, Gradient, Local, Received
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis
from losac.algorithms.invariant import require_balance
from losac.algorithms.one_gradient import OneGradient
from losac.algorithms.transform import Transform
from losac.trees import Tree, add, axpy, sub, zeros


class Estimated(NamedTuple):
    """The model x, and the estimate G of the gradient at it."""

    x: Tree
    gradient: Tree


class Ef21Pp(OneGradient):
    r"""EF21-PP: clients send a compressed correction of what the server believes their gradient to be.

    .. math::
       c_i = C\big(\nabla f_i(x) - G_i\big), \qquad G_i \leftarrow G_i + c_i \;\text{ for } i\in\mathcal S, \qquad
       G \leftarrow G + \frac1N\sum_{i\in\mathcal S}c_i, \qquad x \leftarrow x - \eta\,G.

    C is top-k, and may be any contraction, biased ones too. All G_i start at zero, which keeps G = mean G_i. As the
    corrections vanish, so does the error of C: with full local gradients it converges to the exact optimum at a
    constant step, with sampled clients too. With all clients it is EF21; a C that leaves out nothing makes that
    gradient descent.

    Args:
      step_size: η, the server's step. Theory allows 1/(L + L̃√(1−α)/(1−√(1−α))), with α the share of entries that
        travel, L the curvature of f, and L̃ the root of the clients' mean squared curvature; times about S/N when
        clients are sampled.
      blocks, batch_size: how the one gradient is drawn; the full local gradient by default.
      ratio: of how many entries of each array one travels, the largest.
      uploads: other transforms to use instead of this top-k.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.ef21_pp(step_size=2e-3, ratio=10)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2110.03294
    """

    title = "EF21-PP"
    tuned = axis()
    example = Example(0.05, local_steps=None, settings={"ratio": 2})
    theory = (Theory(EXACT, EXACT, BIASED),)

    free = frozenset({"step_size", "blocks", "batch_size", "ratio", SAMPLED})

    ratio: int = count(default=20, kw_only=True)

    def transforms(self) -> tuple[Transform, ...]:
        """Keep the largest entries by default."""
        return self.uploads or (TopK(1 / self.ratio, error_feedback=False),)

    def init(self, x: Tree) -> Estimated:
        """Start with G = 0."""
        return Estimated(x, zeros(x))

    def model(self, server: Estimated) -> Tree:
        """Return x."""
        return server.x

    def init_client(self, x: Tree) -> Tree:
        """Start with G_i = 0."""
        return zeros(x)

    def broadcast(self, server: Estimated) -> Tree:
        """Send the model only."""
        return server.x

    def step(self, here: Local, x: Tree, own: Tree, local: Tree, grad: Gradient) -> Tree:
        """Return the gradient at the broadcast model."""
        return grad(x)

    def end(self, here: Local, x: Tree, own: Tree, g: Tree) -> tuple[Tree, Tree]:
        """Send the difference g − G_i, and set G_i to g."""
        return sub(g, own), g

    def record(self, here: Local, upload: Tree, sent: Tree, own: Tree) -> tuple[Tree, Tree]:
        """Keep the G_i that the server believes in."""
        return add(own, sub(sent, upload)), ()

    def update(self, here: Federation, server: Estimated, received: Received) -> Estimated:
        """Correct G, then step along it."""
        gradient = axpy(1 / here.clients, received.total, server.gradient)
        return Estimated(axpy(-self.step_size, gradient, server.x), gradient)

    def credit(self, upload: Tree) -> Tree:
        """Return the change of G_i."""
        return upload

    def holding(self, here: Federation, start: Tree, own: Tree, table: Tree) -> Tree:
        """Return G_i."""
        return own

    def shift(self, here: Federation, server: Estimated, credit: Tree) -> Estimated:
        """Move G as ``update`` does."""
        return server._replace(gradient=axpy(1 / here.clients, credit, server.gradient))

    def check_state(self, here: Federation, server: Estimated, own: Tree, table: Tree) -> None:
        """Refuse a start with G ≠ mean G_i: its error would stay."""
        require_balance(self.label, "G", own, server.gradient)
