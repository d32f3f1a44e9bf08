"""FedLin: local steps corrected by the exact gradient of all clients.

Reference: A. Mitra, R. Jaafar, G. J. Pappas, H. Hassani, *Linear convergence in federated learning: tackling client
heterogeneity and sparse gradients*, NeurIPS 2021, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

from losac._settings import POSITIVE, Number, number
from losac.algorithms.contract import STEPS, Federation, Gradient, Local, LocalMethod, Phase, Received
from losac.algorithms.facts import EXACT, REFUSED, SERVER_STEPS, Theory
from losac.algorithms.full_gradient import FullGradientOfAll
from losac.trees import Tree, axpy, map_trees, sub, zeros


class Anchored(NamedTuple):
    """The model x with ∇f(x)."""

    x: Tree
    gradient: Tree


class Fedlin(LocalMethod):
    r"""FedLin: all clients send their gradient at x, then take steps that agree with the mean of these.

    .. math::
       w \leftarrow w - \eta\big(g_i(w) - \nabla f_i(x) + \nabla f(x)\big), \qquad
       x \leftarrow x + \frac{\gamma}{N}\sum_i (w_i - x)

    It converges to the exact optimum with full local gradients.

    Args:
      step_size: η, the local step; the paper's is η_i = η/K_i.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ; 1 in the paper.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedlin(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2102.07053
    """

    title = "FedLin"
    tuned = SERVER_STEPS
    theory = (Theory(EXACT, REFUSED, REFUSED),)

    partial = False
    tailored_steps = (
        "its local step is the whole estimate g − ∇f_i(x) + ∇f(x) of the global gradient, and clipping a part of it or "
        "passing it through momentum or Adam would leave the drift that the estimate is there to cancel"
    )

    free = STEPS | {"server_step"}

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def phases(self) -> tuple[Phase, ...]:
        """Gather the gradient at x; then train."""
        return RememberedGradient(self.model, lambda server, mean: Anchored(server.x, mean)), self

    def init(self, x: Tree) -> Anchored:
        """Start without a gradient: each round brings its own."""
        return Anchored(x, zeros(x))

    def model(self, server: Anchored) -> Tree:
        """Return x."""
        return server.x

    def init_client(self, x: Tree) -> Tree:
        """Start with nothing remembered."""
        return zeros(x)

    def begin(self, here: Local, message: Anchored, own: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, own

    def step(self, here: Local, message: Anchored, own: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one corrected step."""
        return map_trees(
            lambda w, g, own, mean: w - self.step_size * (g - own + mean), w, grad(w), own, message.gradient
        )

    def end(self, here: Local, message: Anchored, own: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, message.x), own

    def update(self, here: Federation, server: Anchored, received: Received) -> Anchored:
        """Move the model by the mean."""
        return server._replace(x=axpy(self.server_step / received.count, received.total, server.x))


class RememberedGradient(FullGradientOfAll):
    """The gradients of all clients at x, which each of them remembers for the steps that follow."""

    def end(self, here: Local, x: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Send the exact local gradient, and keep it."""
        own = here.gradient(x)
        return own, own
