"""FedNova: federated averaging of normalised updates.

Reference: J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor, *Tackling the objective inconsistency problem in
heterogeneous federated optimization*, NeurIPS 2020, Algorithm 1 and Section 4 (the lengths of local solvers).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import BELOW_ONE, NONNEGATIVE, Number, number
from losac.algorithms.contract import Federation, Gradient, Local, Received
from losac.algorithms.facts import BIASED, SERVER_STEPS, Theory
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, map_trees, scale, squared_norm, sub, zeros


class Measured(NamedTuple):
    """The local model w and momentum v; and what w would be with gradients of 1: how far, and its momentum."""

    w: Tree
    v: Tree
    length: Any
    pace: Any


class Normalized(NamedTuple):
    """How far a client's model moved for each unit of its length, (w_i − x)/A_i, and the length A_i."""

    x: Tree
    length: Any


class Fednova(Fedavg):
    r"""FedNova: clients may take different numbers of local steps without pulling the model towards the busy ones.

    .. math::
       v &\leftarrow \rho v + g_i(w), \qquad w \leftarrow w - \eta\big(v + \mu(w - x)\big)
       \;\text{ for } K_i \text{ steps}, \\
       x &\leftarrow x + \gamma\,\bar A\,\frac1S\sum_{i\in\mathcal S}\frac{w_i - x}{A_i}, \qquad
       \bar A = \frac1S\sum_{i\in\mathcal S}A_i.

    The length A_i is what the coefficients of the gradients in (x − w_i)/η add up to: K_i for plain steps. v starts at
    zero in each round. Where FedAvg minimises Σ A_i f_i, FedNova settles near the minimum of Σ f_i, the nearer the
    smaller η is. With the same number of steps for all clients it is FedAvg.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      momentum: ρ, of the local steps.
      mu: μ, FedProx's term; it is outside of the momentum.
      server_step, weighting: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fednova(step_size=1e-3, batch_size=32)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2007.07481
    """

    title = "FedNova"
    tuned = SERVER_STEPS
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = (
        "A_i adds up the coefficients of the gradients in plain steps of length η, and would be wrong with clipping or "
        "another optimiser; momentum=… and mu=… are counted"
    )

    momentum: Number = number(default=0.0, domain=BELOW_ONE, kw_only=True)
    mu: Number = number(default=0.0, domain=NONNEGATIVE, kw_only=True)

    def begin(self, here: Local, x: Tree, client: Tree) -> tuple[Measured, Tree]:  # type: ignore[override]
        """Start from the broadcast model, at rest."""
        nought = squared_norm(zeros(x))
        return Measured(x, zeros(x), nought, nought), client

    def step(self, here: Local, x: Tree, client: Tree, local: Measured, grad: Gradient) -> Measured:  # type: ignore[override]
        """Take one step, and the same step with a gradient of 1."""
        v = map_trees(lambda v, g: self.momentum * v + g, local.v, grad(local.w))
        w = map_trees(lambda w, v, x: w - self.step_size * (v + self.mu * (w - x)), local.w, v, x)
        pace = self.momentum * local.pace + 1
        return Measured(w, v, (1 - self.step_size * self.mu) * local.length + pace, pace)

    def end(self, here: Local, x: Tree, client: Tree, local: Measured) -> tuple[Normalized, Tree]:  # type: ignore[override]
        """Send how far the model moved for each unit of length."""
        return Normalized(scale(1 / local.length, sub(local.w, x)), local.length), client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Move the model by the mean direction, as far as the clients moved on average."""
        step = self.server_step * received.total.length / received.count
        return map_trees(lambda x, d: x + step * d / received.count, x, received.total.x)
