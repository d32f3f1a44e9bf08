"""PAdaMFed: normalised momentum with control variates, without any constant of the problem.

Reference: W. Yan, K. Zhang, X. Wang, X. Cao, *Problem-parameter-free federated learning*, ICLR 2025. Both forms are
written from memory, and agree with a public implementation of the second by others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import count
from losac.algorithms.contract import Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, Example, Theory, axis
from losac.algorithms.invariant import require_balance
from losac.algorithms.perturbed import towards
from losac.trees import Tree, add, axpy, map_trees, scale, sub, zeros


class Guided(NamedTuple):
    """The model x, the momentum m, c, the mean of the clients' c_i, and the direction βc + (1−β)m that travels."""

    x: Tree
    m: Tree
    c: Tree
    direction: Tree


class Heading(NamedTuple):
    """The model x and the direction βc + (1−β)m."""

    x: Tree
    direction: Tree


class Pair(NamedTuple):
    """How far a client's model moved, in units of its path's length, and the change of its c_i."""

    x: Tree
    c: Tree


class Walk(NamedTuple):
    """The local model w, and the sum of the gradients so far."""

    w: Tree
    total: Tree


class Padamfed(LocalMethod):
    r"""PAdaMFed: local steps of a fixed length along a momentum that is corrected for the clients' differences.

    With T rounds, K local steps and S clients a round, :math:`\eta = 1/(K\sqrt T)`,
    :math:`\beta = \min(1, \sqrt{SK/T})` and :math:`\gamma = (SK)^{1/4}/T^{3/4}`,

    .. math::
       v &= \beta\big(g_i(w) - c_i + c\big) + (1-\beta)m, \qquad w \leftarrow w - \eta\,\frac v{\|v\|}, \qquad
       c_i^+ = \frac1K\sum_k g_i(w_k), \\
       x &\leftarrow x + \gamma\,\frac1S\sum_{i\in\mathcal S}\frac{w_i - x}{\eta K}, \qquad
       m \leftarrow \beta\Big(\frac1S\sum_{i\in\mathcal S}(c_i^+ - c_i) + c\Big) + (1-\beta)m, \\
       c &\leftarrow c + \frac1N\sum_{i\in\mathcal S}(c_i^+ - c_i).

    No round moves the model further than γ, and none much less: it settles within a few γ of the optimum, never at it.
    c_i, c and m start at zero, where the paper has the gradients at x⁰; c = mean c_i in every round. All clients must
    take equally many local steps. Written from memory.

    Args:
      step_size: η, in units of the theory's :math:`1/(K\sqrt T)`; 1 as published.
      local_steps, blocks, batch_size: how local data is drawn; K is the number of steps.
      horizon: T, how many rounds are planned.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.padamfed(step_size=1.0, local_steps=5, blocks=5, horizon=20)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://openreview.net/forum?id=ZuazHmXTns
    """

    title = "PAdaMFed"
    recorded = ("c",)
    tuned = axis()
    example = Example(lambda scale: 1.0, settings={"horizon": 30})
    theory = (Theory(BIASED, BIASED, BIASED),)

    same_steps = True
    tailored_steps = "its steps are normalised already, and c_i is the mean of the gradients as they are"

    horizon: int = count(default=1000, kw_only=True)

    def validate(self) -> None:
        """The server must know K."""
        super().validate()
        if self.draw.steps is None:
            raise ValueError(f"{self.label} needs to know its number of local steps: set local_steps instead of epochs")

    @property
    def steps(self) -> int:
        """Return K."""
        assert self.draw.steps is not None
        return self.draw.steps

    def eta(self) -> Any:
        """Return η."""
        return self.step_size / (self.steps * self.horizon**0.5)

    def beta(self, here: Local | Federation) -> float:
        """Return β."""
        return min(1.0, (here.sampled * self.steps / self.horizon) ** 0.5)

    def gamma(self, here: Local | Federation) -> float:
        """Return γ."""
        return float((here.sampled * self.steps) ** 0.25 / self.horizon**0.75)

    def init(self, x: Tree) -> Guided:
        """Start with m = c = 0."""
        return Guided(x, zeros(x), zeros(x), zeros(x))

    def model(self, server: Any) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Any) -> Any:
        """Send the model and the direction."""
        return Heading(server.x, server.direction)

    def init_client(self, x: Tree) -> Tree:
        """Start with c_i = 0."""
        return zeros(x)

    def begin(self, here: Local, message: Any, c_i: Tree) -> tuple[Walk, Tree]:
        """Start from the broadcast model."""
        return Walk(message.x, zeros(message.x)), c_i

    def step(self, here: Local, message: Any, c_i: Tree, local: Walk, grad: Gradient) -> Walk:
        """Take one normalised step."""
        g = grad(local.w)
        beta = self.beta(here)
        v = map_trees(lambda g, ci, d: beta * (g - ci) + d, g, c_i, message.direction)
        return Walk(sub(local.w, towards(self.changed(here, message, v, g, grad), self.eta())), add(local.total, g))

    def changed(self, here: Local, message: Any, v: Tree, g: Tree, grad: Gradient) -> Tree:
        """Return the direction from v."""
        return v

    def end(self, here: Local, message: Any, c_i: Tree, local: Walk) -> tuple[Pair, Tree]:
        """Send the mean direction and the change of c_i."""
        renewed = scale(1 / self.steps, local.total)
        length = self.eta() * self.steps
        return Pair(scale(1 / length, sub(local.w, message.x)), sub(renewed, c_i)), renewed

    def record(self, here: Local, upload: Pair, sent: Pair, c_i: Tree) -> tuple[Tree, Tree]:
        """Keep the c_i that the server believes in."""
        return add(c_i, sub(sent.c, upload.c)), ()

    def update(self, here: Federation, server: Any, received: Received) -> Any:
        """Move x; renew m with the old c, then c."""
        beta = self.beta(here)
        m = map_trees(
            lambda m, d, c: beta * (d / received.count + c) + (1 - beta) * m, server.m, received.total.c, server.c
        )
        x = axpy(self.gamma(here) / received.count, received.total.x, server.x)
        c = axpy(1 / here.clients, received.total.c, server.c)
        direction = map_trees(lambda c, m: beta * c + (1 - beta) * m, c, m)
        return server._replace(x=x, m=m, c=c, direction=direction)

    def credit(self, upload: Pair) -> Tree:
        """Return the change of c_i."""
        return upload.c

    def holding(self, here: Federation, start: Tree, c_i: Tree, table: Tree) -> Tree:
        """Return c_i."""
        return c_i

    def shift(self, here: Federation, server: Any, credit: Tree) -> Any:
        """Move c as ``update`` does; the direction follows with the next update."""
        return server._replace(c=axpy(1 / here.clients, credit, server.c))

    def check_state(self, here: Federation, server: Any, c_i: Tree, table: Tree) -> None:
        """Refuse a start with Σ c_i ≠ N·c: its error would stay."""
        require_balance(self.label, "c", c_i, server.c)


class Remembering(NamedTuple):
    """The same with the model of the round before."""

    x: Tree
    before: Tree
    m: Tree
    c: Tree
    direction: Tree


class HeadingFrom(NamedTuple):
    """The model x, the one before it, and the direction βc + (1−β)m."""

    x: Tree
    before: Tree
    direction: Tree


class PadamfedVr(Padamfed):
    r"""PAdaMFed-VR: PAdaMFed with a momentum that follows how the gradient changed since the last round.

    With T rounds, K local steps and S clients a round, :math:`\eta = 1/(KT)` and
    :math:`\beta = \gamma = (SK)^{1/3}/T^{2/3}` (β at most 1), it is PAdaMFed with

    .. math::
       v = \beta\big(g_i(w) - c_i + c\big) + (1-\beta)\big(m + g_i(w) - g_i(x')\big),

    where x' is the model of the round before. Both gradients are taken on the same data: a step takes two. The
    server renews m as in PAdaMFed, from the c_i alone: so has a public implementation by others, while variance
    reduction as in STORM would take the mean of all v. Written from memory and that code, not checked with the paper.

    Args:
      step_size: η, in units of the theory's :math:`1/(KT)`; 1 as published.
      local_steps, blocks, batch_size: how local data is drawn; K is the number of steps.
      horizon: T, how many rounds are planned.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.padamfed_vr(step_size=1.0, local_steps=5, blocks=5, horizon=20)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://openreview.net/forum?id=ZuazHmXTns
    """

    title = "PAdaMFed-VR"
    tuned = axis()
    example = Example(lambda scale: 1.0, settings={"horizon": 30})
    theory = (Theory(BIASED, BIASED, BIASED),)

    def eta(self) -> Any:
        """Return η."""
        return self.step_size / (self.steps * self.horizon)

    def beta(self, here: Local | Federation) -> float:
        """Return β."""
        return min(1.0, self.gamma(here))

    def gamma(self, here: Local | Federation) -> float:
        """Return γ."""
        return float((here.sampled * self.steps) ** (1 / 3) / self.horizon ** (2 / 3))

    def init(self, x: Tree) -> Remembering:  # type: ignore[override]
        """Start at rest with m = c = 0."""
        return Remembering(x, x, zeros(x), zeros(x), zeros(x))

    def broadcast(self, server: Any) -> Any:
        """Send both models and the direction."""
        return HeadingFrom(server.x, server.before, server.direction)

    def changed(self, here: Local, message: Any, v: Tree, g: Tree, grad: Gradient) -> Tree:
        """Add how the gradient changed since the last round."""
        share = 1 - self.beta(here)
        return map_trees(lambda v, g, old: v + share * (g - old), v, g, grad(message.before))

    def update(self, here: Federation, server: Any, received: Received) -> Any:
        """Remember x; renew all."""
        return super().update(here, server._replace(before=server.x), received)
