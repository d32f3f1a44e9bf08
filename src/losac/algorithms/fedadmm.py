"""FedADMM: the alternating direction method of multipliers with sampled clients.

References: H. Chen et al., *LoSAC: an efficient local stochastic average control method for federated optimization*,
appendix, equations (Xi1), (pii), (Zr), (Proxz); Y. Gong, Y. Li, N. M. Freris, *FedADMM: a robust federated deep
learning framework with adaptivity to system heterogeneity*, ICDE 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax

from losac._settings import POSITIVE, Number, choice, count, is_schedule, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis, curvature
from losac.algorithms.invariant import require_mean
from losac.trees import Tree, axpy, map_trees, sub, zeros


class Consensus(NamedTuple):
    """The server's model Z, and (1/N) Σ_i (π_i/ρ + X_i) over all clients; Gong et al. do not need it."""

    z: Tree
    mean: Tree


class Primal(NamedTuple):
    """A client's model X_i and multiplier π_i."""

    x: Tree
    pi: Tree


APPENDIX = Example(
    0.3,
    settings={
        "rho": curvature,
        "variant": "appendix",
        "server_step": lambda scale: 0.5 / (scale.clients * scale.curvature),  # Ψ is N·ρ-strongly convex at the server
    },
)
GONG = Example(
    settings={
        "rho": lambda scale: 0.3 * scale.curvature,
        "variant": "gong",
        "server_step": lambda scale: scale.sampled / scale.clients,
    }
)
"""Gong et al.'s variant with γ = S/N, the only server step that ends at the optimum."""
GONG_WITH_FULL_SERVER_STEP = Example(
    local_steps=40,
    settings={"rho": lambda scale: 0.3 * scale.curvature, "variant": "gong", "server_step": 1.0},
)
"""γ = 1, which is stable only if the local problems are nearly solved."""


class Fedadmm(LocalMethod):
    r"""FedADMM: clients solve their part of the augmented Lagrangian inexactly, and keep a model and a multiplier.

    With ``variant="appendix"``, as the paper's appendix prints it, K times at the client and 20 times at the server:

    .. math::
       X_i &\leftarrow \frac{\rho\eta Z - \eta\pi_i + X_i - \eta g_i(X_i)}{1 + \rho\eta}, \qquad
       \pi_i \leftarrow \pi_i + \rho(X_i - Z), \\
       Z &\leftarrow \mathrm{prox}_{\gamma N\Psi}\Big(Z - \gamma\Big\{N\rho Z - \sum_i(\pi_i + \rho X_i)\Big\}\Big).

    With ``"exact"``, the server's problem is solved instead, by
    :math:`Z = \mathrm{prox}_{\Psi/\rho}\big(\frac1N\sum_i (X_i + \pi_i/\rho)\big)`. The appendix hides a factor 1/N in
    f_i; here the objective is (1/N) Σ f_i + Ψ with plain f_i in the local steps, so Ψ has the factor N in the
    printed server step. The sum over all clients is updated by the differences that the sampled ones send. Both
    converge to the optimum with sampled clients and full local gradients; the printed γ = 10⁻⁴ lets Z follow slowly
    unless γNρ is large.

    With ``"gong"``, the client takes K steps, from the broadcast model, before the multiplier moves once:

    .. math::
       w &\leftarrow w - \eta\big(g_i(w) + \pi_i + \rho(w - Z)\big), \qquad \pi_i \leftarrow \pi_i + \rho(w - Z), \\
       Z &\leftarrow Z + \frac\gamma S\sum_{i\in\mathcal S}\Big(\Delta X_i + \frac{\Delta\pi_i}\rho\Big), \quad X_i = w.

    It ends where ∇f(x) = ρ(1 − S/(γN))(x − x⁰): at the optimum only with γ = S/N. With γ > S/N it diverges unless the
    local problems are nearly solved.

    Every X_i starts at x⁰, and every π_i at zero.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      rho: ρ; by default the appendix's 5 (for a sum of losses), or Gong et al.'s 0.01 (for mean losses: multiply by n_i
        if f_i is a sum).
      variant: ``"appendix"``, ``"exact"`` or ``"gong"``.
      server_step: γ; by default the appendix's 10⁻⁴, or 1 for Gong et al.; the exact step has none.
      server_iterations: how many server steps the appendix takes.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedadmm(step_size=1e-3, local_steps=5, blocks=5, rho=100.0, variant="exact")
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2204.03529
    """

    title = "FedADMM"
    tuned = axis(rho=(1.5, 5.0, 15.0, 50.0))
    example = Example(0.3, settings={"rho": curvature, "variant": "exact"})
    theory = (
        Theory(EXACT, EXACT, BIASED, APPENDIX),
        Theory(EXACT, EXACT, BIASED),
        Theory(EXACT, EXACT, BIASED, GONG),
        Theory(EXACT, BIASED, BIASED, GONG_WITH_FULL_SERVER_STEP),
    )

    tailored_steps = "its local step solves the augmented Lagrangian with its multiplier; any other would not"
    free = STEPS | {"server_step", "server_iterations", SAMPLED}
    meanings: ClassVar[Mapping[str, str]] = {
        "rho": "the server's sum has the clients' π/ρ in it",
        "server_step": "Z is x⁰ and γ/S times all that the clients sent",
        SAMPLED: "Z is x⁰ and γ/S times all that the clients sent",
        "variant": "Gong et al. keep no mean of X + π/ρ",
    }

    rho: Number = number(default=None, domain=POSITIVE, kw_only=True)
    variant: Literal["appendix", "exact", "gong"] = choice(
        default="appendix", choices=("appendix", "exact", "gong"), kw_only=True
    )
    server_step: Number = number(default=None, domain=POSITIVE, kw_only=True)
    server_iterations: int = count(default=20, kw_only=True)

    def validate(self) -> None:
        """The exact server step has no length."""
        super().validate()
        if is_schedule(self.rho):
            raise ValueError(
                "fedadmm: rho is part of what is summed over the clients, so it cannot change by the round"
            )
        if self.variant == "exact" and self.server_step is not None:
            raise ValueError(
                f"fedadmm: variant='exact' solves the server's problem, so server_step={self.server_step} has no "
                "meaning; use variant='appendix' or 'gong'"
            )

    @property
    def composite(self) -> bool:  # type: ignore[override]
        """Gong et al. have no proximal step."""
        return self.variant != "gong"

    @property
    def penalty(self) -> Any:
        """ρ, or its default."""
        if self.rho is not None:
            return self.rho
        return 0.01 if self.variant == "gong" else 5.0

    @property
    def length(self) -> Any:
        """The server's step γ; without one given, the variant's default."""
        if self.server_step is not None:
            return self.server_step
        return 1.0 if self.variant == "gong" else 1e-4

    def bound(self, sampled: int) -> dict[str, Any]:
        """Bind γ and S in the variant of Gong et al., where Z sums all uploads so far in units of γ/S."""
        bound = super().bound(sampled) | {"rho": self.penalty}
        return bound | ({"server_step": self.length, SAMPLED: sampled} if self.variant == "gong" else {})

    def init(self, x: Tree) -> Consensus:
        """Start with X_i = Z and π_i = 0."""
        return Consensus(x, () if self.variant == "gong" else x)

    def model(self, server: Consensus) -> Tree:
        """Return Z."""
        return server.z

    def broadcast(self, server: Consensus) -> Tree:
        """Send Z only."""
        return server.z

    def init_client(self, x: Tree) -> Primal:
        """Start with X_i = x⁰ and π_i = 0."""
        return Primal(x, zeros(x))

    def begin(self, here: Local, z: Tree, client: Primal) -> tuple[Primal, Primal]:
        """Continue from X_i, or with Gong et al. from the broadcast model."""
        return (client._replace(x=z) if self.variant == "gong" else client), client

    def step(self, here: Local, z: Tree, client: Primal, local: Primal, grad: Gradient) -> Primal:
        """Take one step of X_i; in the appendix π_i follows at once: equations (Xi1) and (pii)."""
        eta, rho = self.step_size, self.penalty
        g = grad(local.x)
        if self.variant == "gong":
            x = map_trees(lambda x, g, pi, z: x - eta * (g + pi + rho * (x - z)), local.x, g, local.pi, z)
            return Primal(x, local.pi)
        x = map_trees(
            lambda x, g, pi, z: (rho * eta * z - eta * pi + x - eta * g) / (1 + rho * eta), local.x, g, local.pi, z
        )
        return Primal(x, self._multiplier(local.pi, x, z))

    def end(self, here: Local, z: Tree, client: Primal, local: Primal) -> tuple[Tree, Primal]:
        """Send by how much X_i + π_i/ρ changed."""
        if self.variant == "gong":
            local = Primal(local.x, self._multiplier(local.pi, local.x, z))
        return axpy(1 / self.penalty, sub(local.pi, client.pi), sub(local.x, client.x)), local

    def record(self, here: Local, upload: Tree, sent: Tree, client: Primal) -> tuple[Tree, Tree]:
        """Keep the π_i that the server believes in."""
        return client._replace(pi=axpy(self.penalty, sub(sent, upload), client.pi)), ()

    def update(self, here: Federation, server: Consensus, received: Received) -> Consensus:
        """Solve for Z, exactly or by the printed steps; Gong et al. move it by the mean."""
        rho, gamma, n = self.penalty, self.length, here.clients
        if self.variant == "gong":
            return server._replace(z=axpy(gamma / received.count, received.total, server.z))
        mean = axpy(1 / n, received.total, server.mean)
        if self.variant == "exact":
            return Consensus(here.prox(mean, 1 / rho), mean)

        def improve(_: Any, z: Tree) -> Tree:
            return here.prox(map_trees(lambda z, m: z - gamma * n * rho * (z - m), z, mean), gamma * n)

        return Consensus(jax.lax.fori_loop(0, self.server_iterations, improve, server.z), mean)

    @property
    def restarts_alone(self) -> bool:  # type: ignore[override]
        """Gong et al. keep no sum at the server, so no client could be taken out of it."""
        return self.variant != "gong"

    def credit(self, upload: Tree) -> Tree:
        """Return the change of X_i + π_i/ρ."""
        return () if self.variant == "gong" else upload

    def holding(self, here: Federation, start: Tree, client: Primal, table: Tree) -> Tree:
        """Return by how much X_i + π_i/ρ differs from x⁰."""
        return () if self.variant == "gong" else axpy(1 / self.penalty, client.pi, sub(client.x, start))

    def shift(self, here: Federation, server: Consensus, credit: Tree) -> Consensus:
        """Move the mean as ``update`` does; Z follows at the next update."""
        return server if self.variant == "gong" else server._replace(mean=axpy(1 / here.clients, credit, server.mean))

    def check_state(self, here: Federation, server: Consensus, clients: Primal, table: Tree) -> None:
        """Refuse a start with a mean other than that of X_i + π_i/ρ: its error would never vanish."""
        sums = axpy(1 / self.penalty, clients.pi, clients.x) if self.variant != "gong" else ()
        require_mean(
            sums,
            server.mean,
            "fedadmm: this start keeps another mean than that of the clients' X_i + π_i/ρ, so the method would end "
            "at a wrong point; start with X_i = x⁰ and π_i = 0",
        )

    def _multiplier(self, pi: Tree, x: Tree, z: Tree) -> Tree:
        return axpy(self.penalty, sub(x, z), pi)
