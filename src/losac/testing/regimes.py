"""The regimes of law 1, and what may be promised of an algorithm in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from losac.algorithms.contract import Algorithm

Promise = Literal["exact", "biased", "refused"]

EXACT: Promise = "exact"
BIASED: Promise = "biased"
REFUSED: Promise = "refused"

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

Make = Callable[[float, Regime], Algorithm]
"""An algorithm for problems of curvature L in a regime."""
