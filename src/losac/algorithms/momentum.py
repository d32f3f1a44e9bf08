"""FedAvg-M and SCAFFOLD-M: the last global direction in every local step.

Reference: Z. Cheng, X. Huang, P. Wu, K. Yuan, *Momentum benefits non-IID federated learning simply and provably*, ICLR
2024, Algorithms 1 and 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import POSITIVE, PROBABILITY, number
from losac.algorithms.contract import Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.scaffold import Pair, Scaffold
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Heading(NamedTuple):
    """The model x, and v = (1/ηS) Σ (x − w_i), which is K times the last global direction."""

    x: Tree
    v: Tree


class ControlledHeading(NamedTuple):
    """The same with SCAFFOLD's control variate c."""

    x: Tree
    c: Tree
    v: Tree


class FedavgMomentum(LocalMethod):
    r"""FedAvg-M: FedAvg whose local steps mix in the last global direction v.

    .. math::
       w \leftarrow w - \eta\big(\beta g_i(w) + (1-\beta) v\big), \qquad
       v \leftarrow \frac{1}{\eta K S}\sum_{i\in\mathcal S}(x - w_i), \qquad x \leftarrow x - \gamma\eta K v

    v starts at zero. At rest v is zero and every client stands β times FedAvg's step: with a step of η the model
    settles where FedAvg with βη does for K = 2 local steps and close to it for more.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      beta: β, the weight of the fresh gradient; 1 is FedAvg.
      server_step: γ; the paper's server step is γηK.
    """

    tailored_steps = (
        "the global direction is read off the distance travelled in units of plain steps of length η, which momentum, "
        "Adam or clipping would falsify"
    )

    beta: Any = number(0.1, domain=PROBABILITY, kw_only=True)
    server_step: Any = number(1.0, domain=POSITIVE, kw_only=True)

    def init(self, x: Tree) -> Heading:
        """Start with v = 0."""
        return Heading(x, zeros(x))

    def model(self, server: Heading) -> Tree:
        """Return x."""
        return server.x

    def begin(self, here: Local, message: Heading, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, client

    def step(self, here: Local, message: Heading, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one step along a mixture of the gradient and v."""
        eta, beta, rest = self.step_size, self.beta, (1 - self.beta) / here.steps
        return map_trees(lambda w, g, v: w - eta * (beta * g + rest * v), w, grad(w), message.v)

    def end(self, here: Local, message: Heading, client: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, message.x), client

    def update(self, here: Federation, server: Heading, received: Received) -> Heading:
        """Move the model by the mean, and remember it."""
        return Heading(
            axpy(self.server_step / received.count, received.total, server.x),
            scale(-1 / (self.step_size * received.count), received.total),
        )


class ScaffoldMomentum(Scaffold):
    r"""SCAFFOLD-M: SCAFFOLD whose local steps mix in the last global direction v.

    .. math::
       w &\leftarrow w - \eta\big(\beta(g_i(w) - c_i + c) + (1-\beta) v\big), \\
       c_i^+ &= \frac1K\sum_k g_i(w^{(k)}), \qquad c \leftarrow c + \frac1N\sum_{i\in\mathcal S}(c_i^+ - c_i), \\
       v &\leftarrow \frac{1}{\eta K S}\sum_{i\in\mathcal S}(x - w_i), \qquad x \leftarrow x - \gamma\eta K v

    All but x start at zero, which keeps Σ c_i = N·c for ever. It converges with sampled clients and full local
    gradients.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      beta: β, the weight of the fresh gradient; 1 is SCAFFOLD.
      server_step: γ; the paper's server step is γηK.
      option: how c_i is renewed: 2, the paper's, by the mean of the local gradients, which is read off the distance
        travelled; 1 by a full gradient at the broadcast model.
    """

    composite = False

    beta: Any = number(0.1, domain=PROBABILITY, kw_only=True)

    def init(self, x: Tree) -> ControlledHeading:  # type: ignore[override]
        """Start with c = v = 0."""
        return ControlledHeading(x, zeros(x), zeros(x))

    def begin(self, here: Local, message: ControlledHeading, c_i: Tree) -> tuple[Tree, Tree]:  # type: ignore[override]
        """Start from the broadcast model."""
        return message.x, c_i

    def step(  # type: ignore[override]
        self, here: Local, message: ControlledHeading, c_i: Tree, w: Tree, grad: Gradient
    ) -> Tree:
        """Take one step along a mixture of the corrected gradient and v."""
        eta, beta, rest = self.step_size, self.beta, (1 - self.beta) / here.steps
        return map_trees(
            lambda w, g, ci, c, v: w - eta * (beta * (g - ci + c) + rest * v),
            w,
            grad(w),
            c_i,
            message.c,
            message.v,
        )

    def end(self, here: Local, message: ControlledHeading, c_i: Tree, w: Tree) -> tuple[Pair, Tree]:  # type: ignore[override]
        """Renew c_i; send both changes."""
        move = sub(w, message.x)
        if self.option == 1:
            renewed = here.gradient(message.x)
        else:
            share, rest = 1 / (here.steps * self.beta), 1 - self.beta
            renewed = map_trees(
                lambda ci, c, v, d: ci - c - share * (d / self.step_size + rest * v), c_i, message.c, message.v, move
            )
        return Pair(move, sub(renewed, c_i)), renewed

    def update(self, here: Federation, server: ControlledHeading, received: Received) -> ControlledHeading:  # type: ignore[override]
        """Move x and c like SCAFFOLD, and remember the move."""
        moved = super().update(here, Pair(server.x, server.c), received)
        return ControlledHeading(
            moved.x, moved.c, scale(-1 / (self.step_size * received.count), received.total.x)
        )
