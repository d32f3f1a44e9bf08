"""PP-MARINA: compressed differences of consecutive gradients, with a full gradient now and then.

Reference: E. Gorbunov, K. Burlachenko, Z. Li, P. Richtárik, *MARINA: faster non-convex distributed learning with
compression*, ICML 2021, Algorithm 4 (PP-MARINA).
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import PROBABILITY, Number, count, number
from losac.algorithms.compression import Qsgd
from losac.algorithms.contract import SAMPLED, Federation, Gradient, Local, Phase, Received
from losac.algorithms.facts import EXACT, Example, Theory, axis
from losac.algorithms.full_gradient import FullGradientOfAll
from losac.algorithms.one_gradient import OneGradient
from losac.algorithms.transform import Transform
from losac.trees import Tree, axpy, sub, zeros


class Tracked(NamedTuple):
    """The model x, the one before it, and the estimate G of the gradient at the latter."""

    x: Tree
    before: Tree
    gradient: Tree


class Ends(NamedTuple):
    """The two models between which a client's gradient has changed."""

    x: Tree
    before: Tree


class PpMarina(OneGradient):
    r"""PP-MARINA: sampled clients send how their gradient changed with the last step, quantised.

    .. math::
       G \leftarrow \begin{cases}
       \nabla f(x) & \text{from all } N \text{ clients, with probability } p, \\
       G + \frac1S\sum_{i\in\mathcal S}Q\big(g_i(x) - g_i(x')\big) & \text{else,}\end{cases} \qquad
       x' \leftarrow x, \qquad x \leftarrow x - \eta\,G.

    x' is the model before x. Both gradients of a difference are taken on the same data; Q must be unbiased. Until the
    first full gradient the model waits at x⁰. It converges to the exact optimum with sampled clients and random blocks.

    A round here is a step of the second kind, and with probability p one of the first kind comes before it. The paper
    decides the kind of each step by one coin: only there can steps of the first kind follow each other.

    Args:
      step_size: η, the server's step.
      blocks, batch_size: how the data of the differences is drawn; all local data by default.
      probability: p; about (S/N)/(1 + ω) by the theory, where E‖Q(v) − v‖² ≤ ω‖v‖².
      levels: s, of :class:`losac.algorithms.compression.Qsgd`.
      uploads: other unbiased transforms to use instead of QSGD. Full gradients travel uncompressed.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.pp_marina(step_size=5e-3, probability=0.3)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2102.07845
    """

    title = "PP-MARINA"
    tuned = axis(probability=(0.03, 0.1, 0.3, 1.0))
    example = Example(0.1, local_steps=None, settings={"probability": 0.5, "levels": 4})
    theory = (Theory(EXACT, EXACT, EXACT),)

    free = frozenset({"step_size", "blocks", "batch_size", "probability", "levels", SAMPLED})

    probability: Number = number(default=0.1, domain=PROBABILITY, kw_only=True)
    levels: int = count(default=127, kw_only=True)

    def validate(self) -> None:
        """Refuse error feedback: what it sends again would be added to G twice."""
        super().validate()
        if any(transform.feeds_back for transform in self.uploads):
            raise ValueError(
                f"{self.label} adds up what it receives, and error feedback would send the change between two models "
                "at a third: use an unbiased transform without it, such as losac.algorithms.qsgd(levels=4)"
            )

    def transforms(self) -> tuple[Transform, ...]:
        """Quantise by default."""
        return self.uploads or (Qsgd(self.levels),)

    def phases(self) -> tuple[Phase, ...]:
        """Perhaps a step along the full gradient; then one along the estimate."""
        return FullGradientOfAll(self.model, self.along, self.probability), self

    def init(self, x: Tree) -> Tracked:
        """Start at rest."""
        return Tracked(x, x, zeros(x))

    def model(self, server: Tracked) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Tracked) -> Ends:
        """Send both models."""
        return Ends(server.x, server.before)

    def begin(self, here: Local, message: Ends, client: Tree) -> tuple[Tree, Tree]:
        """Begin with no difference."""
        return zeros(message.x), client

    def step(self, here: Local, message: Ends, client: Tree, local: Tree, grad: Gradient) -> Tree:
        """Return how the gradient changed."""
        return sub(grad(message.x), grad(message.before))

    def end(self, here: Local, message: Ends, client: Tree, change: Tree) -> tuple[Tree, Tree]:
        """Send the change."""
        return change, client

    def update(self, here: Federation, server: Tracked, received: Received) -> Tracked:
        """Add the mean change to G; step along it."""
        return self.along(server, axpy(1 / received.count, received.total, server.gradient))

    def along(self, server: Tracked, gradient: Tree) -> Tracked:
        """Step along a gradient, which becomes G."""
        return Tracked(axpy(-self.step_size, gradient, server.x), server.x, gradient)
