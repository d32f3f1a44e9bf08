"""What theory says of every public algorithm, as the laws test it.

An entry says how to make the algorithm for a problem of curvature L, and for each regime whether it must reach the
optimum (``EXACT``), must stay away from it (``BIASED``), or must be refused there (``REFUSED``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import losac.algorithms as A
from losac.testing.regimes import (  # noqa: F401
    BIASED,
    BLOCKS,
    CLIENTS,
    EXACT,
    FULL,
    RANDOM_BLOCKS,
    REFUSED,
    REGIMES,
    SAMPLED,
    SAMPLING,
    STEPS,
    Regime,
)


class Entry(NamedTuple):
    """One algorithm (in one variant) and what must become of it in the three regimes."""

    name: str
    make: Callable[[float, Regime], Any]
    full: str
    sampling: str
    random_blocks: str

    def expected(self, regime: Regime) -> str:
        return dict(zip(REGIMES, (self.full, self.sampling, self.random_blocks)))[regime]


def local(make: Callable[..., Any], share: float = 0.1, **settings: Any) -> Callable[[float, Regime], Any]:
    """Make an algorithm with the local step share/L."""
    return lambda curvature, regime: make(share / curvature, STEPS, regime.blocks, **settings)


def paper_losac(curvature: float, regime: Regime) -> Any:
    """The paper's scaling moves M·N/S times as far along the global gradient, and averages by 1/N."""
    return A.losac(0.1 / curvature * regime.sampled / (CLIENTS * regime.blocks), STEPS, regime.blocks)


def scaled(make: Callable[..., Any], name: str, share: float = 0.1, **settings: Any) -> Callable[[float, Regime], Any]:
    """Make an algorithm one of whose settings (ρ, α, μ) is the curvature, as f_i is a sum."""
    return lambda c, r: make(share / c, STEPS, r.blocks, **{name: c}, **settings)


def random_steps(make: Callable[..., Any]) -> Callable[[float, Regime], Any]:
    """Make a method whose number of local steps is random."""
    return lambda c, r: make(0.3 / c, blocks=r.blocks, probability=0.3)


def one_step(make: Callable[..., Any]) -> Callable[[float, Regime], Any]:
    """Make a method whose clients take one step."""
    return lambda c, r: make(0.1 / c, 1, r.blocks)


def gong(planned: bool) -> Callable[[float, Regime], Any]:
    """FedADMM of Gong et al. with the server step S/N, which alone is right, or 1 (stable with many local steps)."""
    return lambda c, r: A.fedadmm(
        0.1 / c, STEPS if planned else 40, r.blocks, rho=0.3 * c, variant="gong",
        server_step=r.sampled / CLIENTS if planned else 1.0,
    )  # fmt: skip


def appendix(c: float, r: Regime) -> Any:
    """The paper's FedADMM, whose server takes 20 gradient steps on N·ρ-strongly convex terms."""
    return A.fedadmm(0.3 / c, STEPS, r.blocks, rho=c, variant="appendix", server_step=0.5 / (CLIENTS * c))


CATALOGUE = (
    Entry("dsgd", lambda c, r: A.dsgd(0.3 / c, blocks=r.blocks), EXACT, BIASED, BIASED),
    Entry("fedavg", local(A.fedavg), BIASED, BIASED, BIASED),
    Entry("fedsaga", local(A.fedsaga), BIASED, BIASED, BIASED),
    Entry("losac", paper_losac, EXACT, EXACT, EXACT),
    Entry("losac", local(A.losac, scaling="exact"), EXACT, EXACT, EXACT),
    Entry("losac", local(A.losac, scaling="exact", correction=1.0), EXACT, EXACT, EXACT),
    Entry("losac", local(A.losac, scaling="exact", correction=0.0), EXACT, EXACT, EXACT),
    Entry("scaffold", local(A.scaffold), EXACT, EXACT, BIASED),
    Entry("scaffold", local(A.scaffold, option=1), EXACT, EXACT, BIASED),
    Entry("mime_svrg", local(A.mime_svrg), EXACT, BIASED, BIASED),
    Entry("mime", local(A.mime, 0.05), EXACT, BIASED, BIASED),
    Entry("mime_lite", local(A.mime_lite, 0.2, momentum=0.5), BIASED, BIASED, BIASED),
    Entry("fedcm", local(A.fedcm), BIASED, BIASED, BIASED),
    Entry("fedadmm", appendix, EXACT, EXACT, BIASED),
    Entry("fedadmm", scaled(A.fedadmm, "rho", 0.3, variant="exact"), EXACT, EXACT, BIASED),
    Entry("fedadmm", gong(planned=True), EXACT, EXACT, BIASED),
    Entry("fedadmm", gong(planned=False), EXACT, BIASED, BIASED),
    Entry("fedprox", scaled(A.fedprox, "mu"), BIASED, BIASED, BIASED),
    Entry("mfl", local(A.mfl), BIASED, BIASED, BIASED),
    Entry("fedadam", local(A.fedadam, server_step=0.01, tau=0.05), BIASED, BIASED, BIASED),
    Entry("fedyogi", local(A.fedyogi, server_step=0.01, tau=0.05), BIASED, BIASED, BIASED),
    Entry("fedadagrad", local(A.fedadagrad, server_step=0.1), BIASED, BIASED, BIASED),
    Entry("fedavgm", local(A.fedavgm), BIASED, BIASED, BIASED),
    Entry("fedpaq", local(A.fedpaq), BIASED, BIASED, BIASED),
    Entry("vrl_sgd", local(A.vrl_sgd), EXACT, REFUSED, REFUSED),
    Entry("feddyn", scaled(A.feddyn, "alpha"), EXACT, EXACT, BIASED),
    Entry("scaffnew", random_steps(A.scaffnew), EXACT, REFUSED, REFUSED),
    Entry("tamuna", random_steps(A.tamuna), EXACT, EXACT, BIASED),
    Entry("fedavg_momentum", local(A.fedavg_momentum), BIASED, BIASED, BIASED),
    Entry("scaffold_momentum", local(A.scaffold_momentum, 0.3), EXACT, EXACT, BIASED),
    Entry("fedvarp", one_step(A.fedvarp), EXACT, EXACT, BIASED),
    Entry("fedvarp", local(A.fedvarp), BIASED, BIASED, BIASED),
    Entry("mifa", one_step(A.mifa), EXACT, EXACT, BIASED),
    Entry("mifa", local(A.mifa), BIASED, BIASED, BIASED),
    Entry("fedlin", local(A.fedlin), EXACT, REFUSED, REFUSED),
    Entry("local_svrg", local(A.local_svrg, refresh=0.5), EXACT, EXACT, EXACT),
    Entry("feddualavg", local(A.feddualavg), BIASED, BIASED, BIASED),
    Entry("fedmid", local(A.fedmid), BIASED, BIASED, BIASED),
    Entry("fedexp", local(A.fedexp), BIASED, BIASED, BIASED),
    Entry("ghbm", local(A.ghbm, 0.05, window=3), BIASED, BIASED, BIASED),
)

ONE_EACH = tuple({entry.name: entry for entry in reversed(CATALOGUE)}.values())
"""Every algorithm once, in its first variant: for what depends on the engine and not on the variant."""
