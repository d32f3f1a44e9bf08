"""Mime, MimeLite, and MimeSVRG, which is Mime with plain SGD.

Reference: S. P. Karimireddy et al., *Breaking the centralized barrier for cross-device federated learning*, NeurIPS
2021, Algorithm 1 and its table of base optimisers (preprint: *Mime: mimicking centralized stochastic algorithms in
federated learning*, 2020).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from losac._settings import BELOW_ONE, POSITIVE, Number, choice, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Phase, Received
from losac.algorithms.facts import BIASED, EXACT, MOMENTA, SERVER_STEPS, Example, Theory
from losac.algorithms.full_gradient import FullGradient
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Anchored(NamedTuple):
    """The model x with the mean gradient c at it."""

    x: Tree
    c: Tree


class Moments(NamedTuple):
    """The base optimiser's state s: the mean gradient m and, for Adam, the mean square v."""

    m: Tree
    v: Tree


class Guided(NamedTuple):
    """The model x with the mean gradient c at it and the base optimiser's state s."""

    x: Tree
    c: Tree
    s: Moments


class Steered(NamedTuple):
    """The model x with the base optimiser's state s."""

    x: Tree
    s: Moments


class Report(NamedTuple):
    """How far a client's model moved, and its exact gradient at the broadcast model."""

    x: Tree
    gradient: Tree


class MimeSvrg(LocalMethod):
    r"""MimeSVRG: every local step is corrected by the round's mean gradient, as in SVRG.

    .. math::
       c &= \frac1S\sum_{i\in\mathcal S}\nabla f_i(x), \\
       w &\leftarrow w - \eta\big(g_i(w) - g_i(x) + c\big), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x).

    Both gradients of a step are taken on the same data. It needs two trips a round: c is the mean over the clients of
    *this* round, so it converges to the optimum with all clients and to a neighbourhood with sampled ones.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.mime_svrg(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2008.03606
    """

    title = "MimeSVRG"
    tuned = SERVER_STEPS
    theory = (Theory(EXACT, BIASED, BIASED),)

    clients = "same"
    tailored_steps = (
        "its local step is SVRG's, g(w) − g(x) + c, and clipping a part of it or passing it through momentum or Adam "
        "would leave the drift that it is there to cancel; mime takes optimisers with their state at the server"
    )

    free = STEPS | {"server_step", SAMPLED}

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def phases(self) -> tuple[Phase, ...]:
        """Ask for the full gradients first."""
        return FullGradient(self.model, lambda server, c: server._replace(c=c)), self

    def init(self, x: Tree) -> Any:
        """Start with c = 0, which the first phase replaces."""
        return Anchored(x, zeros(x))

    def model(self, server: Any) -> Tree:
        """Return x."""
        return server.x

    def begin(self, here: Local, message: Any, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, client

    def direction(self, message: Any, g: Tree) -> Tree:
        """Return the step's direction from the corrected gradient."""
        return g

    def step(self, here: Local, message: Any, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one corrected step."""
        g = map_trees(lambda g, anchor, c: g - anchor + c, grad(w), grad(message.x), message.c)
        return axpy(-self.step_size, self.direction(message, g), w)

    def end(self, here: Local, message: Any, client: Tree, w: Tree) -> tuple[Tree, Tree]:
        """Send how far the model moved."""
        return sub(w, message.x), client

    def update(self, here: Federation, server: Any, received: Received) -> Any:
        """Move the model by the mean."""
        return server._replace(x=axpy(self.server_step / received.count, received.total, server.x))


class BaseOptimizer(LocalMethod):
    r"""A centralised optimiser in two halves: U(g, s) gives a direction, V(g, s) the next state.

    .. math::
       \text{momentum:}\quad & U = (1-\beta)g + \beta m, \qquad m^+ = (1-\beta)g + \beta m, \\
       \text{adam:}\quad & U = \frac{(1-\beta)g + \beta m}{\sqrt v + \epsilon}, \qquad
       v^+ = (1-\beta_2)g^2 + \beta_2 v.
    """

    optimizer: Literal["momentum", "adam"] = choice(default="momentum", choices=("momentum", "adam"), kw_only=True)
    momentum: Number = number(default=0.9, domain=BELOW_ONE, kw_only=True)
    decay: Number = number(default=0.99, domain=BELOW_ONE, kw_only=True)
    epsilon: Number = number(default=1e-3, domain=POSITIVE, kw_only=True)

    def start(self, x: Tree) -> Moments:
        """Return s at the start: zeros."""
        return Moments(zeros(x), zeros(x) if self.optimizer == "adam" else ())

    def apply(self, g: Tree, s: Moments) -> Tree:
        """Return U(g, s)."""
        m = axpy(self.momentum, s.m, scale(1 - self.momentum, g))
        if self.optimizer == "momentum":
            return m
        return map_trees(lambda m, v: m / (v**0.5 + self.epsilon), m, s.v)

    def renew(self, g: Tree, s: Moments) -> Moments:
        """Return V(g, s)."""
        m = axpy(self.momentum, s.m, scale(1 - self.momentum, g))
        if self.optimizer == "momentum":
            return Moments(m, ())
        return Moments(m, map_trees(lambda v, g: self.decay * v + (1 - self.decay) * g * g, s.v, g))


class Mime(MimeSvrg, BaseOptimizer):
    r"""Mime: MimeSVRG's corrected gradient, used by an optimiser with a state that is fixed during the local steps.

    .. math::
       w &\leftarrow w - \eta\, U\big(g_i(w) - g_i(x) + c,\; s\big), \\
       x &\leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x), \qquad s \leftarrow V(c, s).

    U and V are those of :class:`BaseOptimizer`; c is MimeSVRG's, and s starts at zero.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ.
      optimizer: ``"momentum"`` or ``"adam"``, without bias correction.
      momentum: β.
      decay: β₂, for Adam.
      epsilon: ε, for Adam. As printed, the first round has v = 0 and so takes steps (1−β)g/ε.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.mime(step_size=1e-3, local_steps=5, blocks=5, momentum=0.5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2008.03606
    """

    title = "Mime"
    tuned = MOMENTA
    example = Example(0.05)
    theory = (Theory(EXACT, BIASED, BIASED),)

    free = MimeSvrg.free | {"momentum", "decay", "epsilon"}

    def init(self, x: Tree) -> Guided:
        """Start with c = 0, which the first phase replaces, and s = 0."""
        return Guided(x, zeros(x), self.start(x))

    def direction(self, message: Guided, g: Tree) -> Tree:
        """Return U(g, s)."""
        return self.apply(g, message.s)

    def update(self, here: Federation, server: Guided, received: Received) -> Guided:
        """Move the model by the mean, and only then renew s."""
        moved: Guided = super().update(here, server, received)
        return moved._replace(s=self.renew(server.c, server.s))


class MimeLite(BaseOptimizer):
    r"""MimeLite: local steps by an optimiser with its state at the server, without Mime's correction.

    .. math::
       w &\leftarrow w - \eta\, U\big(g_i(w), s\big), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x), \\
       s &\leftarrow V\Big(\frac1S\sum_{i\in\mathcal S}\nabla f_i(x),\; s\Big).

    U and V are those of :class:`BaseOptimizer`. The full gradients are sent with the updates, in one trip. It settles
    away from the optimum when the clients differ and K > 1.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ.
      optimizer, momentum, decay, epsilon: as for :class:`Mime`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.mime_lite(step_size=1e-3, local_steps=5, blocks=5, momentum=0.5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2008.03606
    """

    title = "MimeLite"
    tuned = MOMENTA
    example = Example(0.2, settings={"momentum": 0.5})
    theory = (Theory(BIASED, BIASED, BIASED),)

    tailored_steps = (
        "its local step is the base optimiser's, with the state that the server keeps; choose it by optimizer=…"
    )
    free = Mime.free

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)

    def init(self, x: Tree) -> Steered:
        """Start with s = 0."""
        return Steered(x, self.start(x))

    def model(self, server: Steered) -> Tree:
        """Return x."""
        return server.x

    def begin(self, here: Local, message: Steered, client: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, client

    def step(self, here: Local, message: Steered, client: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one step of the base optimiser."""
        return axpy(-self.step_size, self.apply(grad(w), message.s), w)

    def end(self, here: Local, message: Steered, client: Tree, w: Tree) -> tuple[Report, Tree]:
        """Send how far the model moved and the full gradient at the broadcast model."""
        return Report(sub(w, message.x), here.gradient(message.x)), client

    def update(self, here: Federation, server: Steered, received: Received) -> Steered:
        """Move the model by the mean and renew s."""
        gradient = scale(1 / received.count, received.total.gradient)
        moved = axpy(self.server_step / received.count, received.total.x, server.x)
        return Steered(moved, self.renew(gradient, server.s))
