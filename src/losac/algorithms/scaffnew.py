"""Scaffnew: ProxSkip for federated learning.

Reference: K. Mishchenko, G. Malinovsky, S. Stich, P. Richtárik, *ProxSkip: yes! Local gradient steps provably lead to
communication acceleration! Finally!*, ICML 2022, Algorithm 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from losac._settings import PROBABILITY, Number, number
from losac.algorithms.contract import Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import EXACT, PROBABILITIES, REFUSED, Example, Theory
from losac.algorithms.invariant import require_balance
from losac.trees import Tree, add, axpy, map_trees, squared_norm, sub, zeros


class Control(NamedTuple):
    """A client's control variate h, and what renews it: the model w that it sent last, and p/η of that round."""

    h: Tree
    w: Tree
    rate: Any


class Scaffnew(LocalMethod):
    r"""Scaffnew: after every local step a coin of probability p decides whether to communicate.

    .. math::
       \hat w_i \leftarrow \hat w_i - \eta\big(g_i(\hat w_i) - h_i\big) \;\text{ until the coin says so}, \qquad
       x = \frac1N\sum_i \hat w_i, \qquad h_i \leftarrow h_i + \frac p\eta(x - \hat w_i).

    A round is the time between two communications, so its number of steps is geometric with mean 1/p, the same for
    all clients. A client renews h_i when it receives the average x, at the start of the next round. The h_i start at
    zero, which keeps Σ h_i = 0. With full local gradients it converges to the exact optimum.

    Args:
      step_size: η, the local step; 1/L by the theory.
      blocks: how local data is drawn.
      probability: p, of communicating after a step; 1/√κ by the theory.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.scaffnew(step_size=1e-3, blocks=5, probability=0.2)
      >>> history = losac.simulate(task, algorithm, rounds=20, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2202.09357
    """

    title = "Scaffnew"
    tuned = PROBABILITIES
    example = Example(0.3, local_steps=None, settings={"probability": 0.3})
    theory = (Theory(EXACT, REFUSED, REFUSED),)

    partial = False
    free = frozenset({"step_size", "blocks", "probability"})
    restarts_alone = False
    tailored_steps = (
        "h_i is read off the distance to the average in units of the step η, which fits plain steps only; with "
        "momentum, Adam or clipping the control variates would no longer cancel the drift"
    )

    probability: Number = number(default=0.1, domain=PROBABILITY, kw_only=True)

    def validate(self) -> None:
        """The number of local steps is random, so it cannot be set."""
        super().validate()
        for name in ("local_steps", "epochs", "batch_size"):
            if (value := getattr(self, name)) is not None:
                raise ValueError(
                    f"{self.label} takes a random number of local steps, 1/probability on average, on blocks drawn "
                    f"with replacement: {name}={value} cannot be used, set probability and blocks"
                )

    def draw_steps(self, uniform: Any) -> Any:
        """Return a geometric number, P(K = k) = p(1−p)^(k−1), by inversion."""
        return 1 + jnp.floor(jnp.log1p(-uniform) / jnp.log1p(-self.probability)).astype(jnp.int32)

    def init_client(self, x: Tree) -> Control:
        """Start with h_i = 0, as if the average x⁰ had been sent."""
        return Control(zeros(x), x, squared_norm(zeros(x)))

    def begin(self, here: Local, x: Tree, client: Control) -> tuple[Tree, Control]:
        """Renew h_i by the average of the last round; start from it."""
        return x, client._replace(h=map_trees(lambda h, x, w: h + client.rate * (x - w), client.h, x, client.w))

    def step(self, here: Local, x: Tree, client: Control, w: Tree, grad: Gradient) -> Tree:
        """Take one corrected step."""
        return map_trees(lambda w, g, h: w - self.step_size * (g - h), w, grad(w), client.h)

    def end(self, here: Local, x: Tree, client: Control, w: Tree) -> tuple[Tree, Control]:
        """Send how far the model moved; remember where it is."""
        return sub(w, x), Control(client.h, w, client.rate * 0 + self.probability / self.step_size)

    def record(self, here: Local, upload: Tree, sent: Tree, client: Control) -> tuple[Tree, Tree]:
        """Remember the model that the server received."""
        return client._replace(w=add(client.w, sub(sent, upload))), ()

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Average."""
        return axpy(1 / received.count, received.total, x)

    def check_state(self, here: Federation, server: Tree, clients: Control, table: Tree) -> None:
        """Refuse a start with Σ h_i ≠ 0: its error would never vanish."""
        require_balance(self.label, "h", clients.h)
