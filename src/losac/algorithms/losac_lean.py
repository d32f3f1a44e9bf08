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
from losac._settings import FRACTION, NONNEGATIVE, POSITIVE, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Phase, Received
from losac.algorithms.curvature import Curvature, first_direction
from losac.algorithms.facts import EXACT, SERVER_STEPS, Example, Theory
from losac.algorithms.invariant import require_mean
from losac.algorithms.losac import Pair, damping
from losac.algorithms.steering import START, alignment, next_step
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros

MEASURING = 10
"""The first rounds, which measure the curvature."""


class Steered(NamedTuple):
    """A model x with the delayed global gradient phi, the present step size, and the direction of a power iteration."""

    x: Tree
    phi: Tree
    eta: Any
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
    by the sum of the uploads (:mod:`losac.algorithms.steering`). In the first ten rounds the clients measure the
    curvature L at x⁰ in an exchange before the usual one, in which η = 0 and their tables fill. Then η = 3/(γTL).

    Args:
      step_size: η, or ``"auto"``.
      local_steps, blocks: T and M.
      correction: δ; √(S/N)/5 by default.
      server_step: γ.
      server_correction: δ_s; δ by default.
      measuring: for ``step_size="auto"``, a function of the round: 1 where the curvature is measured, else 0. By
        default it is 1 in the first ten rounds.

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
    meanings: ClassVar[Mapping[str, str]] = {"blocks": "the table has an entry for each block"}

    step_size: Any = number(domain=POSITIVE, words=("auto",))
    correction: Any = number(default=None, domain=NONNEGATIVE, kw_only=True)
    server_step: Any = number(default=1.0, domain=POSITIVE, kw_only=True)
    server_correction: Any = number(default=None, domain=NONNEGATIVE, kw_only=True)
    measuring: Any = number(default=None, domain=FRACTION, kw_only=True)

    def validate(self) -> None:
        """The curvature is measured for a step that sets itself."""
        super().validate()
        if self.measuring is not None and not self.steered:
            raise ValueError(f'losac_lean: measuring={shown(self.measuring)} belongs to step_size="auto"')

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
        return Steered(x, zeros(x), nought, first_direction(x))

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
        steps, m = self.draw.steps, self.draw.blocks
        assert steps is not None  # no method with a table draws by epochs
        delta = self._damping(here) if self.server_correction is None else self.server_correction
        length, share = self.server_step * self._step(self.broadcast(server)), delta * m / received.count
        x = map_trees(lambda x, phi, d: x - length * (steps * phi + share * d), server.x, server.phi, received.total)
        after = server._replace(x=here.prox(x, length * steps), phi=axpy(1 / here.clients, received.total, server.phi))
        if not self.steered:
            return after
        rho = alignment(server.phi, scale(1 / received.count, received.total), m, steps)
        return after._replace(eta=jnp.where(self._measures > 0, server.eta, next_step(server.eta, rho)))

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

    def _begin_at(self, server: Steered, direction: Tree, curvature: Any) -> Steered:
        """Choose the first step by the curvature measured so far."""
        eta = START / (self.server_step * self.draw.steps * curvature)
        return server._replace(direction=direction, eta=eta)

    def _damping(self, here: Local | Federation) -> Any:
        """Return δ."""
        return damping(here.clients, here.sampled) if self.correction is None else self.correction
