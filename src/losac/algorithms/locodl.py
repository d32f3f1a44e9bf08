"""LoCoDL: local training with compressed uploads.

Reference: L. Condat, A. Maranjyan, P. Richtárik, *LoCoDL: communication-efficient distributed learning with local
training and compression*, ICLR 2025, Algorithm 1. Written from memory, and checked against its theorem: linear
convergence to the optimum at a constant step, for any unbiased compressor.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from losac._settings import NONNEGATIVE, POSITIVE, Number, count, number
from losac.algorithms.compression import Qsgd
from losac.algorithms.contract import Federation, Gradient, Local, Received
from losac.algorithms.facts import EXACT, PROBABILITIES, REFUSED, Example, Theory
from losac.algorithms.invariant import require_mean
from losac.algorithms.scaffnew import Scaffnew
from losac.algorithms.transform import Transform
from losac.trees import Tree, axpy, map_trees, scale, squared_norm, sub, zeros

SETTINGS = {"probability": 0.3, "mu": lambda scale: 0.05 * scale.curvature, "omega": 0.5, "levels": 4}


class Shared(NamedTuple):
    """What all know: the model y, its control variate v, and the mean D of the last round's uploads."""

    y: Tree
    v: Tree
    mean: Tree


class Own(NamedTuple):
    """What a client keeps: its last ŵ and ŷ, u and v, what it sent last, and c of that round."""

    w: Tree
    y: Tree
    u: Tree
    v: Tree
    sent: Tree
    rate: Any


class Walk(NamedTuple):
    """The local model ŵ, and the model ŷ that moves in the same way for everyone."""

    w: Tree
    y: Tree


class Report(NamedTuple):
    """The difference ŵ_i − ŷ, and the number of local steps."""

    x: Tree
    steps: Any


class Locodl(Scaffnew):
    r"""LoCoDL: Scaffnew with uploads of the difference from a model that all clients can compute.

    The clients minimise :math:`f_i(w) - \frac\mu4\|w\|^2`, and :math:`r(y) = \frac\mu4\|y\|^2` is left to y:

    .. math::
       \hat w_i &\leftarrow \hat w_i - \eta\big(g_i(\hat w_i) - \tfrac\mu2\hat w_i - u_i\big), \qquad
       \hat y \leftarrow \hat y - \eta\big(\tfrac\mu2\hat y - v\big) \;\text{ until the coin says so}, \\
       D_i &= Q(\hat w_i - \hat y), \qquad \bar D = \frac1{2N}\sum_i D_i, \\
       \hat w_i &\leftarrow (1-\rho)\hat w_i + \rho(\hat y + \bar D), \qquad u_i \leftarrow u_i + c(\bar D - D_i), \\
       \hat y &\leftarrow \hat y + \rho\bar D, \qquad v \leftarrow v + c\bar D, \qquad
       \rho = \frac1{1+\omega/N}, \quad c = \frac{p\rho}{\eta(1+2\omega)}.

    A round is the time between two communications: a geometric number of steps with mean 1/p, the same for all clients.
    They renew w_i and u_i when they receive D̄, at the start of the next round. u_i and v start at zero, which keeps
    mean u_i + v = 0. y is the model. With full local gradients it converges to the exact optimum. It needs strongly
    convex f_i(w) − (μ/4)‖w‖². Written from memory.

    Args:
      step_size: η, the local step; 2/(L + μ) by the theory.
      blocks: how local data is drawn.
      probability: p, of communicating after a step; √((1 + ω/N)(1 + ω)/κ) by the theory.
      mu: μ, the part of the curvature that is moved from f_i to r.
      omega: ω of Q, where E‖Q(v) − v‖² ≤ ω‖v‖²; for QSGD with s levels the smaller of d/s² and √d/s, with d the size
        of an array. A larger value is safe and slower.
      levels: s, of :class:`losac.algorithms.compression.Qsgd`.
      uploads: other unbiased transforms to use instead of QSGD.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.locodl(step_size=1e-3, blocks=5, probability=0.2, mu=1.0)
      >>> history = losac.simulate(task, algorithm, rounds=40, eval_every=40)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2403.04348
    """

    title = "LoCoDL"
    recorded = ("x",)
    tuned = PROBABILITIES
    example = Example(0.3, local_steps=None, settings=SETTINGS)
    theory = (Theory(EXACT, REFUSED, REFUSED),)

    free = Scaffnew.free | {"mu", "omega", "levels"}

    mu: Number = number(default=0.1, domain=POSITIVE, kw_only=True)
    omega: Number = number(default=1.0, domain=NONNEGATIVE, kw_only=True)
    levels: int = count(default=127, kw_only=True)

    def transforms(self) -> tuple[Transform, ...]:
        """Quantise by default."""
        return self.uploads or (Qsgd(self.levels),)

    def init(self, x: Tree) -> Shared:
        """Start with v = 0, as if nothing had been sent."""
        return Shared(x, zeros(x), zeros(x))

    def model(self, server: Shared) -> Tree:
        """Return y."""
        return server.y

    def init_client(self, x: Tree) -> Own:  # type: ignore[override]
        """Start with u_i = v = 0, as if nothing had been sent."""
        return Own(x, x, zeros(x), zeros(x), zeros(x), squared_norm(zeros(x)))

    def broadcast(self, server: Shared) -> Tree:
        """Send the mean only: everything else, the clients can compute."""
        return server.mean

    def begin(self, here: Local, mean: Tree, own: Own) -> tuple[Walk, Own]:  # type: ignore[override]
        """Finish the last round: move both models and both control variates."""
        rho = self.rho(here)
        w = map_trees(lambda w, y, d: (1 - rho) * w + rho * (y + d), own.w, own.y, mean)
        u = map_trees(lambda u, d, s: u + own.rate * (d - s), own.u, mean, own.sent)
        y, v = axpy(rho, mean, own.y), axpy(own.rate, mean, own.v)
        return Walk(w, y), own._replace(w=w, y=y, u=u, v=v)

    def step(self, here: Local, mean: Tree, own: Own, local: Walk, grad: Gradient) -> Walk:  # type: ignore[override]
        """Take one step of both models."""
        w = map_trees(lambda w, g, u: w - self.step_size * (g - self.mu / 2 * w - u), local.w, grad(local.w), own.u)
        y = map_trees(lambda y, v: y - self.step_size * (self.mu / 2 * y - v), local.y, own.v)
        return Walk(w, y)

    def end(self, here: Local, mean: Tree, own: Own, local: Walk) -> tuple[Report, Own]:  # type: ignore[override]
        """Send the difference of both models; remember where they are."""
        difference, nought = sub(local.w, local.y), own.rate * 0
        kept = Own(local.w, local.y, own.u, own.v, difference, nought + self.rate(here))
        return Report(difference, nought + here.steps), kept

    def record(self, here: Local, upload: Report, sent: Report, own: Own) -> tuple[Tree, Tree]:  # type: ignore[override]
        """Remember the difference that the server received."""
        return own._replace(sent=sent.x), ()

    def update(self, here: Federation, server: Shared, received: Received) -> Shared:
        """Let y walk as it did on the clients, and finish the round."""
        steps = jnp.round(received.total.steps / received.count)
        mean = scale(1 / (2 * received.count), received.total.x)
        shrink = self.step_size * self.mu / 2
        lost = -jnp.expm1(steps * jnp.log1p(-shrink))
        rho, rate = self.rho(here), self.rate(here)
        y = map_trees(lambda y, v, d: y - lost * (y - 2 / self.mu * v) + rho * d, server.y, server.v, mean)
        return Shared(y, axpy(rate, mean, server.v), mean)

    def rho(self, here: Local | Federation) -> Any:
        """Return ρ."""
        return 1 / (1 + self.omega / here.clients)

    def rate(self, here: Local | Federation) -> Any:
        """Return c."""
        return self.probability * self.rho(here) / (self.step_size * (1 + 2 * self.omega))

    def check_state(self, here: Federation, server: Shared, clients: Own, table: Tree) -> None:  # type: ignore[override]
        """Refuse a start with mean u_i + v ≠ 0: its error would stay."""
        rate = clients.rate
        u = map_trees(
            lambda u, d, s: u + rate.reshape(-1, *[1] * d.ndim) * (d - s), clients.u, server.mean, clients.sent
        )
        require_mean(
            u,
            scale(-1, server.v),
            f"{self.label}: this start has mean u_i + v ≠ 0, so the method would end at a wrong point; start at zero",
        )
