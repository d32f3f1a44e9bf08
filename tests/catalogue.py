"""What theory says of every public algorithm, as the laws test it.

An entry says how to make the algorithm for a problem of curvature L, and for each regime whether it must reach the
optimum (``EXACT``), must stay away from it (``BIASED``), or must be refused there (``REFUSED``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import losac.algorithms as A

EXACT, BIASED, REFUSED = "exact", "biased", "refused"

CLIENTS, SAMPLED, STEPS, BLOCKS = 10, 3, 5, 4


class Regime(NamedTuple):
    """Which clients take part and how their gradients are drawn."""

    name: str
    sampled: int
    blocks: int


FULL = Regime("full participation, full gradients", CLIENTS, 1)
SAMPLING = Regime("client sampling, full gradients", SAMPLED, 1)
RANDOM_BLOCKS = Regime("client sampling, random blocks", SAMPLED, BLOCKS)
REGIMES = (FULL, SAMPLING, RANDOM_BLOCKS)


class Entry(NamedTuple):
    """One algorithm (in one variant) and what must become of it in the three regimes."""

    name: str
    make: Callable[[float, Regime], Any]
    full: str
    sampling: str
    random_blocks: str

    @property
    def label(self) -> str:
        return self.name

    def expected(self, regime: Regime) -> str:
        return dict(zip(REGIMES, (self.full, self.sampling, self.random_blocks)))[regime]


def local(make: Callable[..., Any], share: float = 0.1, **settings: Any) -> Callable[[float, Regime], Any]:
    """Make an algorithm with the local step share/L."""
    return lambda curvature, regime: make(share / curvature, STEPS, regime.blocks, **settings)


def paper_losac(curvature: float, regime: Regime) -> Any:
    """The paper's scaling moves M·N/S times as far along the global gradient, and averages by 1/N."""
    return A.losac(0.1 / curvature * regime.sampled / (CLIENTS * regime.blocks), STEPS, regime.blocks)


CATALOGUE = (
    Entry("dsgd", lambda c, r: A.dsgd(0.3 / c, blocks=r.blocks), EXACT, BIASED, BIASED),
    Entry("fedavg", local(A.fedavg), BIASED, BIASED, BIASED),
    Entry("fedsaga", local(A.fedsaga), BIASED, BIASED, BIASED),
    Entry("losac", paper_losac, EXACT, EXACT, EXACT),
    Entry("losac", local(A.losac, scaling="exact"), EXACT, EXACT, EXACT),
    Entry("losac", local(A.losac, scaling="exact", correction=0.1), EXACT, EXACT, EXACT),
    Entry("losac", local(A.losac, scaling="exact", correction=0.0), EXACT, EXACT, EXACT),
    Entry("scaffold", local(A.scaffold), EXACT, EXACT, BIASED),
    Entry("scaffold", local(A.scaffold, option=1), EXACT, EXACT, BIASED),
)
