"""FedADMM: the alternating direction method of multipliers with sampled clients.

References: H. Chen et al., *LoSAC: an efficient local stochastic average control method for federated optimization*,
appendix, equations (Xi1), (pii), (Zr), (Proxz); Y. Gong, Y. Li, N. M. Freris, *FedADMM: a robust federated deep learning
framework with adaptivity to system heterogeneity*, ICDE 2022.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from losac._settings import POSITIVE, choice, count, number
from losac.algorithms.contract import Federation, Gradient, Local, LocalMethod, Received
from losac.trees import Tree, add, axpy, map_trees, sub


class Consensus(NamedTuple):
    """The server's model Z, and (1/N) Σ_i (π_i/ρ + X_i) over all clients, of which Gong et al. need none."""

    z: Tree
    mean: Tree


class Primal(NamedTuple):
    """A client's model X_i and multiplier π_i."""

    x: Tree
    pi: Tree


class Fedadmm(LocalMethod):
    r"""FedADMM: clients solve their part of the augmented Lagrangian inexactly, and keep a model and a multiplier.

    With ``variant="appendix"``, as the paper's appendix prints it, K times at the client and 20 times at the server:

    .. math::
       X_i &\leftarrow \frac{\rho\eta Z - \eta\pi_i + X_i - \eta g_i(X_i)}{1 + \rho\eta}, \qquad
       \pi_i \leftarrow \pi_i + \rho(X_i - Z), \\
       Z &\leftarrow \mathrm{prox}_{\gamma N\Psi}\Big(Z - \gamma\Big\{N\rho Z - \sum_{i=1}^N(\pi_i + \rho X_i)\Big\}\Big).

    With ``"exact"``, the server's problem is solved instead, by
    :math:`Z = \mathrm{prox}_{\Psi/\rho}\big(\frac1N\sum_i (X_i + \pi_i/\rho)\big)`. The appendix hides a factor 1/N in
    f_i; here the objective is (1/N) Σ f_i + Ψ with plain f_i in the local steps, so that Ψ stands with N in the
    printed server step. The sum over all clients is kept up from the differences that the sampled ones send. Both
    converge to the optimum with sampled clients and full local gradients; the printed γ = 10⁻⁴ lets Z follow slowly
    unless γNρ is large.

    With ``"gong"``, the client takes K steps, from the broadcast model, before the multiplier moves once:

    .. math::
       w &\leftarrow w - \eta\big(g_i(w) + \pi_i + \rho(w - Z)\big), \qquad \pi_i \leftarrow \pi_i + \rho(w - Z), \\
       Z &\leftarrow Z + \frac\gamma S\sum_{i\in\mathcal S}\Big(\Delta X_i + \frac{\Delta\pi_i}{\rho}\Big), \qquad X_i = w.

    It ends where ∇f(x) = ρ(1 − S/(γN))(x − x⁰): at the optimum only with γ = S/N.

    Every X_i starts at x⁰, and every π_i at zero.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      rho: ρ; by default the appendix's 5 (for a sum of losses), or Gong et al.'s 0.01 (for mean losses: multiply by n_i
        where f_i is a sum).
      variant: ``"appendix"``, ``"exact"`` or ``"gong"``.
      server_step: γ; by default the appendix's 10⁻⁴, or 1 for Gong et al.; the exact step has none.
      server_iterations: how many server steps the appendix takes.
    """

    tailored_steps = "its local step solves the augmented Lagrangian with its multiplier; any other would not"

    rho: Any = number(None, domain=POSITIVE, kw_only=True)
    variant: Literal["appendix", "exact", "gong"] = choice(
        "appendix", choices=("appendix", "exact", "gong"), kw_only=True
    )
    server_step: Any = number(None, domain=POSITIVE, kw_only=True)
    server_iterations: int = count(20, kw_only=True)

    def validate(self) -> None:
        """The exact server step has no length."""
        super().validate()
        if self.variant == "exact" and self.server_step is not None:
            raise ValueError(
                f"fedadmm: variant='exact' solves the server's problem, so server_step={self.server_step} has no "
                "meaning; use variant='appendix' or 'gong'"
            )
