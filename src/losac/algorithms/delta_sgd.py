"""Δ-SGD: local steps that adapt to the curvature between consecutive local models.

Reference: J. L. Kim, M. T. Toghani, C. A. Uribe, A. Kyrillidis, *Adaptive federated learning with auto-tuned clients*,
ICLR 2024, Algorithm 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import NONNEGATIVE, POSITIVE, Number, number
from losac.algorithms.contract import Gradient, Local
from losac.algorithms.facts import BIASED, Example, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.algorithms.scalars import bounded_ratio
from losac.trees import Tree, axpy, squared_norm, sub, zeros


class Paced(NamedTuple):
    """The local model w and the one before it, the last step η, its growth θ, and 1 before the first step, else 0."""

    w: Tree
    before: Tree
    rate: Any
    growth: Any
    fresh: Any


class DeltaSgd(Fedavg):
    r"""Δ-SGD: each client finds its own step from how its gradient changed with its last one.

    .. math::
       \eta_k = \min\Big(\frac{\gamma_c}2\,\frac{\|w_k - w_{k-1}\|}{\|g_i(w_k) - g_i(w_{k-1})\|},\;
       \sqrt{1 + \delta\theta_{k-1}}\,\eta_{k-1}\Big), \qquad \theta_k = \frac{\eta_k}{\eta_{k-1}}, \qquad
       w_{k+1} = w_k - \eta_k\,g_i(w_k)

    Each round begins with a step of η₀ and θ₀ = 1. Both gradients of a step are taken on the same data: a step takes
    two. With K = 1 nothing adapts, and it is FedAvg with the step η₀. Where the clients differ it settles away
    from the optimum, as FedAvg does. The constants are the paper's, from memory.

    Args:
      step_size: η₀, the first step of every round; 0.2 in the authors' code, for any problem.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      safety: γ_c; 2 in the paper.
      growth: δ, how fast steps may grow; 0.1 in the paper.
      server_step, weighting: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.delta_sgd(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2306.11201
    """

    title = "Δ-SGD"
    tuned = axis(growth=(0.01, 0.1, 1.0, 10.0))
    example = Example(0.1)
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = "its steps follow from the change of the gradient along the last one, which these would rescale"

    safety: Number = number(default=2.0, domain=POSITIVE, kw_only=True)
    growth: Number = number(default=0.1, domain=NONNEGATIVE, kw_only=True)

    def begin(self, here: Local, x: Tree, client: Tree) -> tuple[Paced, Tree]:  # type: ignore[override]
        """Start from the broadcast model with the step η₀."""
        nought = squared_norm(zeros(x))
        return Paced(x, x, nought + self.step_size, nought + 1, nought + 1), client

    def step(self, here: Local, x: Tree, client: Tree, local: Paced, grad: Gradient) -> Paced:  # type: ignore[override]
        """Find the step; take it."""
        g = grad(local.w)
        moved = squared_norm(sub(local.w, local.before)) ** 0.5
        changed = squared_norm(sub(g, grad(local.before))) ** 0.5
        longest = local.rate * (1 + (1 - local.fresh) * self.growth * local.growth) ** 0.5
        found = bounded_ratio(self.safety / 2 * moved, changed, longest)
        rate = local.fresh * local.rate + (1 - local.fresh) * found  # at first the change is rounding, or nothing
        return Paced(axpy(-rate, g, local.w), local.w, rate, rate / local.rate, local.fresh * 0)

    def end(self, here: Local, x: Tree, client: Tree, local: Paced) -> tuple[Tree, Tree]:  # type: ignore[override]
        """Send how far the model moved."""
        return sub(local.w, x), client
