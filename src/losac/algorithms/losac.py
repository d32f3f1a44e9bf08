"""LoSAC and LoSAC-Prox: local stochastic average control.

Reference: H. Chen, H. Wang, Q. Yao, Y. Li, D. Jin, Q. Yang, *LoSAC: an efficient local stochastic average control
method for federated optimization*; equations (losac_local), (globalupdate), (losac-prox), Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np

from losac._settings import NONNEGATIVE, POSITIVE, Number, choice, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import EXACT, SERVER_STEPS, Example, Scale, Theory
from losac.algorithms.invariant import require_mean
from losac.trees import Tree, axpy, map_trees, scale, sub, zeros


class Pair(NamedTuple):
    """A model x with the delayed global gradient phi; or the changes of both."""

    x: Tree
    phi: Tree


def damping(clients: Any, sampled: Any) -> Any:
    """Return the exact scaling's default δ = √(S/N)/5.

    >>> round(damping(100, 10), 4)
    0.0632
    """
    return (sampled / clients) ** 0.5 / 5


def paper_step(scale: Scale) -> float:
    """Return a step size for the paper's scaling, which moves M·N/S times as far along the global gradient."""
    return 0.1 / scale.curvature * scale.sampled / (scale.clients * scale.blocks)


class Losac(LocalMethod):
    r"""LoSAC: every client refreshes its estimate of the global gradient after each local step.

    With ``scaling="paper"``, exactly as printed:

    .. math::
       x_i &\leftarrow \mathrm{prox}_{\beta\Psi}\big(x_i - \eta\{\phi_i/N - y_{ij} + g_{ij}(x_i)\}\big), \\
       \phi_i &\leftarrow \phi_i - y_{ij} + g_{ij}(x_i^-), \qquad y_{ij} \leftarrow g_{ij}(x_i^-), \\
       x &\leftarrow x + \frac{\gamma}{N}\sum_{i\in\mathcal S}\Delta x_i, \qquad
       \phi \leftarrow \phi + \frac{N}{S}\sum_{i\in\mathcal S}\Delta\phi_i.

    φ/N is then M·N/S times the delayed mean gradient, so the printed prox step β = η minimises f + S/(NM)·Ψ. By
    default β = η·NM/S, which minimises f + Ψ (``prox_step="matched"``); ``"printed"`` keeps the paper's.

    With ``scaling="exact"``, φ *is* the delayed mean gradient (1/NM) Σ_i Σ_j y_ij:

    .. math::
       x_i &\leftarrow \mathrm{prox}_{\eta\Psi}\big(x_i - \eta\{\phi_i + \delta(g_{ij}(x_i) - y_{ij})\}\big), \\
       \phi_i &\leftarrow \phi_i + \frac{g_{ij}(x_i^-) - y_{ij}}{NM}, \qquad y_{ij} \leftarrow g_{ij}(x_i^-), \\
       x &\leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}\Delta x_i, \qquad
       \phi \leftarrow \phi + \sum_{i\in\mathcal S}\Delta\phi_i.

    Both converge linearly to the exact optimum of strongly convex problems, with sampled clients and sampled blocks,
    for any δ. The table makes φ follow the gradient with a delay, as momentum does; δ feeds the present gradient in and
    damps the swings that the delay causes, and too much of it lets the clients drift. By default δ = √(S/N)/5, found by
    ``losac reproduce damped``; :func:`losac.tuning.suggest` measures a step size for it.

    y and φ start at zero. N/S is N over the *planned* clients per round, no matter how many answer.

    Args:
      step_size: η.
      local_steps, blocks: T and M.
      scaling: ``"paper"`` or ``"exact"``.
      correction: δ of the exact scaling; √(S/N)/5 by default (1 is the unbiased one, smaller values damp it).
      server_step: γ.
      prox_step: see above; only for the paper's scaling.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.losac(step_size=3e-3, local_steps=5, blocks=5, scaling="exact")
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2112.07839
    """

    title = "LoSAC"
    tuned = SERVER_STEPS
    theory = (
        Theory(EXACT, EXACT, EXACT, Example(paper_step)),
        Theory(EXACT, EXACT, EXACT, Example(settings={"scaling": "exact"})),
        Theory(EXACT, EXACT, EXACT, Example(settings={"scaling": "exact", "correction": 1.0})),
        Theory(EXACT, EXACT, EXACT, Example(settings={"scaling": "exact", "correction": 0.0})),
    )

    table = True
    composite = True
    recorded = ("phi",)
    tailored_steps = (
        "its local step is the whole estimate φ − y + g of the global gradient, and clipping a part of it or passing "
        "it through momentum or Adam would leave the drift that the estimate is there to cancel"
    )
    free = STEPS - {"blocks"} | {"correction", "server_step", "prox_step"}
    meanings: ClassVar[Mapping[str, str]] = {
        SAMPLED: "φ is (N/S) Σ y in the paper's scaling",
        "scaling": "φ is (N/S) Σ y in the paper's scaling, and Σ y/(NM) in the exact one",
        "blocks": "the table has an entry for each block",
    }

    scaling: Literal["paper", "exact"] = choice(default="paper", choices=("paper", "exact"), kw_only=True)
    correction: Number = number(default=None, domain=NONNEGATIVE, kw_only=True)
    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)
    prox_step: Literal["matched", "printed"] = choice(default="matched", choices=("matched", "printed"), kw_only=True)

    def validate(self) -> None:
        """The correction's size is a setting of the exact scaling only."""
        super().validate()
        if self.scaling == "paper" and self.correction is not None:
            raise ValueError(
                f"losac: correction={self.correction} belongs to scaling='exact'; the paper's scaling fixes it "
                "(at S/(NM) of its step along the mean gradient)"
            )
        if self.scaling == "exact" and self.prox_step == "printed":
            raise ValueError("losac: prox_step='printed' belongs to scaling='paper'; the exact scaling needs no repair")

    def bound(self, sampled: int) -> dict[str, Any]:
        """In the exact scaling φ does not depend on S."""
        bound = super().bound(sampled)
        return bound if self.scaling == "paper" else {k: v for k, v in bound.items() if k != SAMPLED}

    def init(self, x: Tree) -> Pair:
        """Start with φ = 0."""
        return Pair(x, zeros(x))

    def model(self, server: Pair) -> Tree:
        """Return x."""
        return server.x

    def begin(self, here: Local, message: Pair, client: Tree) -> tuple[Pair, Tree]:
        """Set x_i ← x and φ_i ← φ."""
        return message, client

    def step(
        self, here: Local, message: Pair, client: Tree, local: Pair, grad: Gradient, *y: Tree
    ) -> tuple[Pair, Tree]:
        """Take one step on block j: equation (losac_local), or its exactly scaled form."""
        eta, n, m = self.step_size, here.clients, here.blocks
        g = grad(local.x)
        if self.scaling == "paper":
            x = map_trees(lambda x, phi, y, g: x - eta * (phi / n - y + g), local.x, local.phi, y[0], g)
            phi = map_trees(lambda phi, y, g: phi - y + g, local.phi, y[0], g)
            beta = eta if self.prox_step == "printed" else eta * (n * m / here.sampled)
        else:
            delta = damping(n, here.sampled) if self.correction is None else self.correction
            x = map_trees(lambda x, phi, y, g: x - eta * (phi + delta * (g - y)), local.x, local.phi, y[0], g)
            phi = map_trees(lambda phi, y, g: phi + (g - y) / (n * m), local.phi, y[0], g)
            beta = eta
        return Pair(here.prox(x, beta), phi), g

    def end(self, here: Local, message: Pair, client: Tree, local: Pair) -> tuple[Pair, Tree]:
        """Send Δx_i and Δφ_i."""
        return Pair(sub(local.x, message.x), sub(local.phi, message.phi)), client

    def record(self, here: Local, upload: Pair, sent: Pair, client: Tree) -> tuple[Tree, Tree]:
        """Put what was lost or added on the way into the table: φ stays the sum of its entries."""
        share = 1 if self.scaling == "paper" else here.clients * here.blocks
        return client, scale(share, sub(sent.phi, upload.phi))

    def update(self, here: Federation, server: Pair, received: Received) -> Pair:
        """Equation (globalupdate), or its exactly scaled form."""
        if self.scaling == "paper":
            move, kappa = self.server_step / here.clients, here.clients / here.sampled
        else:
            move, kappa = self.server_step / received.count, 1
        return Pair(axpy(move, received.total.x, server.x), axpy(kappa, received.total.phi, server.phi))

    def credit(self, upload: Pair) -> Tree:
        """Return Δφ_i."""
        return upload.phi

    def holding(self, here: Federation, start: Tree, client: Tree, table: Tree) -> Tree:
        """Return Σ_j y_ij, in the units of Δφ_i."""
        number = jax.tree.leaves(table)[0].shape[0]
        share = 1 if self.scaling == "paper" else here.clients * number
        return map_trees(lambda y: y.sum(0) / share, table)

    def shift(self, here: Federation, server: Pair, credit: Tree) -> Pair:
        """Move φ as ``update`` does."""
        kappa = here.clients / here.sampled if self.scaling == "paper" else 1
        return Pair(server.x, axpy(kappa, credit, server.phi))

    def check_state(self, here: Federation, server: Pair, clients: Tree, table: Tree) -> None:
        """Refuse a warm start with φ ≠ κ Σ_i Σ_j y_ij: it would converge to a wrong point."""
        number = np.prod(jax.tree.leaves(table)[0].shape[:2])
        kappa = number * here.clients / here.sampled if self.scaling == "paper" else 1
        require_mean(
            map_trees(lambda y: kappa * np.reshape(y, (-1, *np.shape(y)[2:])), table),
            server.phi,
            "losac: this start has φ ≠ κ Σ_i Σ_j y_ij (κ = N/S in the paper's scaling, else 1/(NM)), and so it would "
            "converge to a wrong point; start at zero, or set φ to that sum",
        )
