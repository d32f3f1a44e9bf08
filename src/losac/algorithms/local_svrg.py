"""S-Local-SVRG: local SGD with SVRG's gradients of the global loss.

Reference: E. Gorbunov, F. Hanzely, P. Richtárik, *Local SGD: unified theory and new efficient methods*, AISTATS 2021.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import POSITIVE, PROBABILITY, Number, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Phase, Received
from losac.algorithms.facts import EXACT, Example, Theory, axis
from losac.algorithms.full_gradient import FullGradientOfAll
from losac.trees import Tree, axpy, map_trees, sub, zeros


class Anchored(NamedTuple):
    """The model x; the anchor y with ∇f(y)."""

    x: Tree
    y: Tree
    gradient: Tree


class LocalSvrg(LocalMethod):
    r"""S-Local-SVRG: every local step is corrected by the exact global gradient at an anchor y.

    .. math::
       w \leftarrow w - \eta\big(g_i(w) - g_i(y) + \nabla f(y)\big), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x), \qquad
       y \leftarrow x \;\text{ with probability } q \text{ before a round}.

    Both gradients of a step are taken on the same data. A renewal asks all N clients for their gradient; until the
    first one, the model waits at x⁰. It converges to the exact optimum with sampled clients and random blocks.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      refresh: q.
      server_step: γ; 1 in the paper.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.local_svrg(step_size=1e-3, local_steps=5, blocks=5, refresh=0.3)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2011.02828
    """

    title = "S-Local-SVRG"
    tuned = axis(refresh=(0.03, 0.1, 0.3, 1.0))
    example = Example(settings={"refresh": 0.5})
    theory = (Theory(EXACT, EXACT, EXACT),)

    tailored_steps = (
        "its local step is SVRG's, g(w) − g(y) + ∇f(y), and clipping a part of it or passing it through momentum or "
        "Adam would leave the drift that it is there to cancel"
    )

    free = STEPS | {"refresh", "server_step", SAMPLED}

    refresh: Number = number(default=0.1, domain=PROBABILITY, kw_only=True)
    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def phases(self) -> tuple[Phase, ...]:
        """Perhaps renew the anchor; then train."""
        renew = FullGradientOfAll(self.model, lambda server, mean: Anchored(server.x, server.x, mean), self.refresh)
        return renew, self

    def init(self, x: Tree) -> Anchored:
        """Start with the anchor at x⁰, without its gradient: g(x) − g(y) is zero there."""
        return Anchored(x, x, zeros(x))

    def model(self, server: Anchored) -> Tree:
        """Return x."""
        return server.x

    def begin(self, here: Local, message: Anchored, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, client

    def step(self, here: Local, message: Anchored, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one SVRG step."""
        return map_trees(
            lambda w, g, old, mean: w - self.step_size * (g - old + mean),
            w,
            grad(w),
            grad(message.y),
            message.gradient,
        )

    def end(self, here: Local, message: Anchored, client: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, message.x), client

    def update(self, here: Federation, server: Anchored, received: Received) -> Anchored:
        """Move the model by the mean."""
        return server._replace(x=axpy(self.server_step / received.count, received.total, server.x))
