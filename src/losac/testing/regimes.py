"""The regimes of law 1, and what may be promised of an algorithm in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from losac.algorithms.contract import Algorithm
from losac.algorithms.facts import BIASED as BIASED
from losac.algorithms.facts import EXACT as EXACT
from losac.algorithms.facts import LOCAL_STEPS, Scale
from losac.algorithms.facts import REFUSED as REFUSED
from losac.algorithms.facts import Promise as Promise

CLIENTS, SAMPLED, STEPS, BLOCKS = 10, 3, LOCAL_STEPS, 4


class Regime(NamedTuple):
    """Which clients take part and how their gradients are drawn."""

    name: str
    sampled: int
    blocks: int

    def scale(self, curvature: float) -> Scale:
        """Return the scale of a problem of this curvature in the regime."""
        return Scale(curvature, CLIENTS, self.sampled, self.blocks)


FULL = Regime("full participation, full gradients", CLIENTS, 1)
SAMPLING = Regime("client sampling, full gradients", SAMPLED, 1)
RANDOM_BLOCKS = Regime("client sampling, random blocks", SAMPLED, BLOCKS)
REGIMES = (FULL, SAMPLING, RANDOM_BLOCKS)

Make = Callable[[float, Regime], Algorithm]
"""An algorithm for problems of curvature L in a regime."""
