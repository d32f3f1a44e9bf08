r"""LoSAC-lean: LoSAC with one message up, from which the server rebuilds the other.

Not published elsewhere. Take the exact scaling of :class:`losac.algorithms.losac` and keep φ_i at φ during the local
steps: the refresh that is left out is 1/(NM) of the change g − y, where δ of it enters the step. T steps then give

.. math:: \Delta x_i = -\eta\Big(T\phi + \delta\sum_t (g_t - y_t)\Big), \qquad
   \Delta\phi_i = \frac{1}{NM}\sum_t (g_t - y_t).

Both follow from :math:`d_i = \frac1M\sum_t (g_t - y_t)`, the change of the mean of the client's table, by numbers that
the server knows. So the client sends d_i alone.

Reference: a form, not published elsewhere, of H. Chen, H. Wang, Q. Yao, Y. Li, D. Jin, Q. Yang, *LoSAC: an efficient
local stochastic average control method for federated optimization*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from losac._checks import shown
from losac._settings import FRACTION, LOOKED_AT, NONNEGATIVE, POSITIVE, is_schedule, number
from losac.algorithms.compression import TopK
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Phase, Received
from losac.algorithms.curvature import Curvature, first_direction, unit
from losac.algorithms.facts import EXACT, SERVER_STEPS, Example, Theory
from losac.algorithms.invariant import require_mean
from losac.algorithms.losac import Pair, damping
from losac.algorithms.power_sgd import PowerSgd
from losac.algorithms.steering import Signal, first_length, freshness, steer, visited
from losac.algorithms.transform import Transform
from losac.trees import Tree, axpy, map_trees, scale, squared_norm, sub, zeros

MEASURING = 3
"""The first rounds, which measure the curvature."""


class Steered(NamedTuple):
    """A model x with the delayed global gradient phi, the step size and what it follows from, and the direction of a
    power iteration."""

    x: Tree
    phi: Tree
    eta: Any
    signal: Signal
    direction: Tree


class Order(NamedTuple):
    """A model x with the delayed global gradient phi, and the step size to take."""

    x: Tree
    phi: Tree
    eta: Any


class Walker(NamedTuple):
    """A local model x_i, with d_i, the change of the mean of the table so far."""

    x: Tree
    d: Tree


class LosacLean(LocalMethod):
    r"""LoSAC in the exact scaling with one model up instead of two.

    .. math::
       x_i &\leftarrow \mathrm{prox}_{\eta\Psi}\big(x_i - \eta\{\phi + \delta(g_{ij}(x_i) - y_{ij})\}\big), \\
       d_i &\leftarrow d_i + (g_{ij}(x_i^-) - y_{ij})/M, \qquad y_{ij} \leftarrow g_{ij}(x_i^-), \\
       x &\leftarrow \mathrm{prox}_{\gamma\eta T\Psi}\Big(x - \gamma\eta\Big\{T\phi
         + \delta_s M\frac1S\sum_{i\in\mathcal S} d_i\Big\}\Big), \qquad
       \phi \leftarrow \phi + \frac1N\sum_{i\in\mathcal S} d_i.

    φ is the mean of all table entries, as in the exact scaling of :class:`losac.algorithms.losac`. Without a
    regulariser and with δ_s = δ, x is the mean of the models at which the clients' steps end. The method converges
    linearly to the exact optimum of strongly convex problems, with sampled clients and sampled blocks, for any δ, δ_s.

    - With a regulariser, clients take proximal steps (so a client at the optimum stays there), and the server takes one
      proximal step of length γηT instead of averaging the clients' models. The optimum is the same, and the server's
      model has exact zeros or low rank.
    - The server moves along φ by T steps, also when some clients take other numbers of steps.
    - A transform of the upload (``uploads``) slows the method down but does not move its limit: the table records what
      was *sent*, and φ and x follow from the same message. What was left out goes in equal parts to the entries that
      the client visited, and so comes again with their next gradients; it needs no error feedback.

    y and φ start at zero.

    ``step_size="auto"`` needs no tuning: the server sends η with x and φ, one number, and adjusts it after every round
    by the sum of the uploads (:mod:`losac.algorithms.steering`). In the first three rounds η = 0 while the tables begin
    to fill, and the clients measure the curvature L at x⁰ along the gradient, in an exchange before the usual one.
    Then η starts at half of the length that is stable, and at most at S/(γTL). With ``top_k`` and ``power_sgd``
    what is measured is compressed too, and ``gaussian`` clips it and adds its noise.

    Args:
      step_size: η, or ``"auto"``.
      local_steps, blocks: T and M.
      correction: δ; √(S/N)/5 by default.
      server_step: γ.
      server_correction: δ_s; δ by default. With an automatic step by default δ_s·uM/T = max(p, √p/2), where a client
        visits a share u of its blocks, and a round the share p = uS/N of all.
      measuring: for ``step_size="auto"``, a function of the round: 1 where the curvature is measured, 0 from then on.
        By default it is 1 in the first three rounds.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.losac_lean(step_size=3e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2112.07839
    """

    title = "LoSAC-lean"
    tuned = SERVER_STEPS
    theory = (
        Theory(EXACT, EXACT, EXACT),
        Theory(EXACT, EXACT, EXACT, Example(settings={"correction": 1.0})),
        Theory(EXACT, EXACT, EXACT, Example(settings={"correction": 0.0})),
        Theory(EXACT, EXACT, EXACT, Example(settings={"server_correction": 1.0})),
    )

    table = True
    composite = True
    tailored_steps = (
        "the server rebuilds the local steps from the sum of g − y, and clipped or preconditioned steps do not follow "
        "from that sum"
    )
    free = STEPS - {"blocks"} | {"correction", "server_step", "server_correction", "measuring", SAMPLED}
    meanings: ClassVar[Mapping[str, str]] = {
        "blocks": "the table has an entry for each block",
        "step_size": "the server keeps a step that sets itself, and what it follows from",
    }

    step_size: Any = number(domain=POSITIVE, words=("auto",))
    correction: Any = number(default=None, domain=NONNEGATIVE, kw_only=True)
    server_step: Any = number(default=1.0, domain=POSITIVE, kw_only=True)
    server_correction: Any = number(default=None, domain=NONNEGATIVE, kw_only=True)
    measuring: Any = number(default=None, domain=FRACTION, kw_only=True)

    def validate(self) -> None:
        """The curvature is measured for a step that sets itself: first, and then no more."""
        super().validate()
        if self.measuring is None:
            return
        if not self.steered:
            raise ValueError(f'losac_lean: measuring={shown(self.measuring)} belongs to step_size="auto"')
        seen = [float(self.measuring(r)) for r in LOOKED_AT] if is_schedule(self.measuring) else []
        if seen not in [[1.0] * k + [0.0] * (len(LOOKED_AT) - k) for k in range(1, len(LOOKED_AT))]:
            raise ValueError(
                f"losac_lean: measuring={shown(self.measuring)} must be a function of the round that is 1 first and 0 "
                "later, such as lambda r: (r < 5) * 1.0: the step starts at what was measured"
            )

    def transforms_of(self, phase: Phase) -> tuple[Transform, ...]:
        """Return the transforms of a phase's uploads; power iteration needs no more than what these keep."""
        if not isinstance(phase, Curvature):
            return super().transforms_of(phase)
        found = (each if isinstance(each, PowerSgd | TopK) else each.elsewhere() for each in self.uploads)
        return tuple(transform for transform in found if transform is not None)

    @property
    def steered(self) -> bool:
        """Whether the step sets itself."""
        return isinstance(self.step_size, str)

    def at(self, round_index: Any) -> Self:
        """Return the settings of one round, which may measure the curvature."""
        now = super().at(round_index)
        if not self.steered or self.measuring is not None:
            return now
        return now.with_numbers(measuring=(round_index < MEASURING) * 1.0)

    def phases(self) -> tuple[Phase, ...]:
        """Measure the curvature, in the first rounds of a step that sets itself; then train."""
        if not self.steered:
            return (self,)
        return Curvature(lambda server: (server.x, server.direction), self._begin_at, self._measures), self

    def init(self, x: Tree) -> Pair | Steered:
        """Start with φ = 0."""
        if not self.steered:
            return Pair(x, zeros(x))
        nought = sum(leaf.sum() * 0 for leaf in jax.tree.leaves(x))
        return Steered(x, zeros(x), nought, Signal(nought + 1, nought, nought), first_direction(x))

    def restart(self, server: Pair | Steered) -> Pair | Steered:
        """Start again with φ = 0, but with the step size that was reached."""
        begun = self.init(server.x)
        if isinstance(begun, Steered) and isinstance(server, Steered):
            return begun._replace(eta=server.eta)
        return begun

    def model(self, server: Pair | Steered) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Any) -> Pair | Order:
        """Send x and φ, and the step if it sets itself; while the curvature is measured, it is 0."""
        if not self.steered:
            return Pair(server.x, server.phi)
        return Order(server.x, server.phi, server.eta * (1 - self._measures))

    def begin(self, here: Local, message: Pair | Order, client: Tree) -> tuple[Walker, Tree]:
        """Set x_i ← x and d_i ← 0."""
        return Walker(message.x, zeros(message.phi)), client

    def step(
        self, here: Local, message: Pair | Order, client: Tree, local: Walker, grad: Gradient, *y: Tree
    ) -> tuple[Walker, Tree]:
        """Take one step on block j."""
        eta, delta, m = self._step(message), self._damping(here), here.blocks
        g = grad(local.x)
        x = map_trees(lambda x, phi, y, g: x - eta * (phi + delta * (g - y)), local.x, message.phi, y[0], g)
        d = map_trees(lambda d, y, g: d + (g - y) / m, local.d, y[0], g)
        return Walker(here.prox(x, eta), d), g

    def end(self, here: Local, message: Pair | Order, client: Tree, local: Walker) -> tuple[Tree, Tree]:
        """Send d_i."""
        return local.d, client

    def record(self, here: Local, upload: Tree, sent: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Put what was lost or added on the way into the table: φ stays the mean of its entries."""
        return client, scale(here.blocks, sub(sent, upload))

    def update(self, here: Federation, server: Any, received: Received) -> Pair | Steered:
        """Rebuild the mean of the clients' steps, and add to φ what they add to the table."""
        steps = self._steps
        length, weight = self.server_step * self._step(self.broadcast(server)), self._weight(here) / received.count
        x = map_trees(lambda x, phi, d: x - length * (steps * phi + weight * d), server.x, server.phi, received.total)
        after = server._replace(x=here.prox(x, length * steps), phi=axpy(1 / here.clients, received.total, server.phi))
        return self._steer(here, server, after, received) if self.steered else after

    def _steer(self, here: Federation, server: Steered, after: Steered, received: Received) -> Steered:
        """Return the next state with its step size; while the curvature is measured, with the next direction."""
        lag = scale(1 / (received.count * self._visited), received.total)
        eta, signal = steer(server.eta, server.signal, server.phi, after.phi, lag, self._renewed(here))
        steered = after._replace(eta=eta, signal=signal)
        first = (server.signal.unfilled == 1) & (squared_norm(after.phi) > 0)
        direction = map_trees(lambda new, old: jnp.where(first, new, old), unit(after.phi), server.direction)
        measured = server._replace(
            phi=after.phi, direction=direction, signal=server.signal._replace(unfilled=signal.unfilled)
        )
        return map_trees(lambda yes, no: jnp.where(self._measures > 0, yes, no), measured, steered)

    def credit(self, upload: Tree) -> Tree:
        """Return d_i."""
        return upload

    def holding(self, here: Federation, start: Tree, client: Tree, table: Tree) -> Tree:
        """Return the mean of the table, which is the sum of all d_i so far."""
        return map_trees(lambda y: y.mean(0), table)

    def shift(self, here: Federation, server: Any, credit: Tree) -> Pair | Steered:
        """Move φ as ``update`` does."""
        return server._replace(phi=axpy(1 / here.clients, credit, server.phi))

    def check_state(self, here: Federation, server: Pair | Steered, clients: Tree, table: Tree) -> None:
        """Refuse a warm start with φ ≠ the mean of all y: it would converge to a wrong point."""
        require_mean(
            map_trees(lambda y: np.reshape(y, (-1, *np.shape(y)[2:])), table),
            server.phi,
            "losac_lean: this start has φ ≠ the mean of all y_ij, so that it would converge to a wrong point; start at "
            "zero, or set φ to that mean",
        )

    @property
    def _measures(self) -> Any:
        """1 where the curvature is measured."""
        return 1.0 if self.measuring is None else self.measuring

    def _step(self, message: Any) -> Any:
        """Return η."""
        return message.eta if self.steered else self.step_size

    def _begin_at(self, here: Federation, server: Steered, direction: Tree, curvature: Any) -> Steered:
        """Choose the first step by the curvature measured so far."""
        length = first_length(self._renewed(here), here.sampled)
        return server._replace(direction=direction, eta=length / (self.server_step * self._steps * curvature))

    @property
    def _steps(self) -> int:
        """T."""
        assert self.draw.steps is not None  # no method with a table draws by epochs
        return self.draw.steps

    @property
    def _visited(self) -> float:
        """u, the share of its blocks that a client is expected to visit in a round."""
        return visited(self.draw.blocks, self._steps)

    def _renewed(self, here: Federation) -> float:
        """p, the share of all table entries that a round renews."""
        return self._visited * min(1.0, here.sampled / here.clients)

    def _weight(self, here: Federation) -> Any:
        """Return δ_s·M, the weight of the mean upload in the server's step, where φ has weight T."""
        if self.server_correction is not None:
            return self.server_correction * self.draw.blocks
        if self.steered:
            return self._steps * freshness(self._renewed(here)) / self._visited
        return self._damping(here) * self.draw.blocks

    def _damping(self, here: Local | Federation) -> Any:
        """Return δ."""
        return damping(here.clients, here.sampled) if self.correction is None else self.correction
