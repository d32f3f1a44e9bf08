"""GHBM: generalised heavy-ball momentum.

Reference: R. Zaccone, S. P. Karimireddy, C. Masone, M. Ciccone, *Communication-efficient heterogeneous federated
learning with generalized heavy-ball momentum*, TMLR 2025.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac._settings import BELOW_ONE, POSITIVE, Number, count, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, MOMENTA, Example, Theory
from losac.trees import Tree, axpy, map_trees, sub


class Window(NamedTuple):
    """The model x, the τ models before it in a ring, and the place of the oldest."""

    x: Tree
    past: Tree
    oldest: Any


class Pull(NamedTuple):
    """The model x and the momentum m = (present x − x of τ rounds ago)/τ."""

    x: Tree
    m: Tree


class Ghbm(LocalMethod):
    r"""GHBM: heavy-ball momentum over the last τ rounds, enough for about every client to take part once.

    .. math::
       m = \frac{x^{(t)} - x^{(t-\tau)}}{\tau}, \qquad
       w \leftarrow w - \eta\, g_i(w) + \frac{\beta}{K} m, \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    The server keeps τ old models, all of them x⁰ at the start. τ = 1 is the classical heavy ball. It rests where FedAvg
    does.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      window: τ, best near N/S.
      momentum: β.
      server_step: γ; 1 in the paper.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.ghbm(step_size=1e-3, local_steps=5, blocks=5, momentum=0.5, window=2)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2311.18578
    """

    title = "GHBM"
    tuned = MOMENTA
    example = Example(0.05, settings={"window": 3})
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = "its momentum is a part of plain steps of length η, which clipping or an optimiser would rescale"

    free = STEPS | {"momentum", "server_step", SAMPLED}

    window: int = count(default=10, kw_only=True)
    momentum: Number = number(default=0.9, domain=BELOW_ONE, kw_only=True)
    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def init(self, x: Tree) -> Window:
        """Start as if x⁰ had stood for τ rounds."""
        past = map_trees(lambda x: jnp.broadcast_to(x, (self.window, *x.shape)), x)
        return Window(x, past, jnp.zeros((), jnp.int32))

    def model(self, server: Window) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Window) -> Pull:
        """Send the model and its mean move over the window."""
        old = map_trees(lambda p: jax.lax.dynamic_index_in_dim(p, server.oldest, keepdims=False), server.past)
        return Pull(server.x, map_trees(lambda x, old: (x - old) / self.window, server.x, old))

    def begin(self, here: Local, message: Pull, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, client

    def step(self, here: Local, message: Pull, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one step, pushed on by a share of the momentum."""
        push = self.momentum / here.steps
        return map_trees(lambda w, g, m: w - self.step_size * g + push * m, w, grad(w), message.m)

    def end(self, here: Local, message: Pull, client: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, message.x), client

    def update(self, here: Federation, server: Window, received: Received) -> Window:
        """Move the model by the mean; the present model replaces the oldest."""
        past = map_trees(
            lambda p, x: jax.lax.dynamic_update_index_in_dim(p, x, server.oldest, 0), server.past, server.x
        )
        x = axpy(self.server_step / received.count, received.total, server.x)
        return Window(x, past, (server.oldest + 1) % self.window)
