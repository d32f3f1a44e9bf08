"""What theory says of every public algorithm, as the laws test it: read off the algorithms' own files."""

from __future__ import annotations

from typing import NamedTuple

from losac.algorithms import ALGORITHMS, Algorithm
from losac.algorithms.facts import Theory
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
    """One algorithm in one choice of its settings, and what must become of it in the three regimes."""

    name: str
    theory: Theory

    @property
    def full(self) -> str:
        return self.theory.full

    @property
    def sampling(self) -> str:
        return self.theory.sampling

    @property
    def random_blocks(self) -> str:
        return self.theory.random_blocks

    def make(self, curvature: float, regime: Regime) -> Algorithm:
        return ALGORITHMS[self.name].for_scale(regime.scale(curvature), self.theory.example)

    def expected(self, regime: Regime) -> str:
        return dict(zip(REGIMES, (self.full, self.sampling, self.random_blocks)))[regime]


CATALOGUE = tuple(Entry(name, theory) for name, cls in ALGORITHMS.items() for theory in cls.theory)

ONE_EACH = tuple({entry.name: entry for entry in reversed(CATALOGUE)}.values())
"""Every algorithm once, in its first variant: for what depends on the engine and not on the variant."""


def ids(entry: object) -> str:
    """Return how a test with an entry, or with a regime, is called."""
    if isinstance(entry, Entry):
        return str(entry.make(1.0, RANDOM_BLOCKS)).replace(" ", "")
    return entry.name.replace(" ", "-") if isinstance(entry, Regime) else str(entry)
