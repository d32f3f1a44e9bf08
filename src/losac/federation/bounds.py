"""How large an upload may be where nobody has said so: a multiple of what is usual.

A quantile of the norms is tracked as in Andrew et al., *Differentially Private Learning with Adaptive Clipping* (2021):
C ← C exp(−η (b − γ)), where b is the share of a round's norms of at most C. The quantile is the median (γ = ½), and an
upload is refused beyond a multiple of it, since honest clients differ. Uploads of clients that take part for the first
time are tracked separately: with control variates they are much larger than later ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

ADAPTIVE = "adaptive"
FACTOR = 30.0
"""How many times the usual norm is refused."""
RATE = 0.2
"""η: C moves by a tenth in a round at most."""
LEAST = 0.1
"""The share of the largest C so far below which it does not fall: near an optimum uploads become very small, and after
a client's loss they are large again."""


class Tracked(NamedTuple):
    """C, and the largest that it has been."""

    usual: float
    peak: float


def largest(tracked: Tracked | None, norms: Sequence[float]) -> float:
    """Return the norm above which uploads of a round are refused.

    If most of several uploads exceed the bound, the bound is wrong, and a new one follows from them. The very first
    upload has nothing to be compared with.

    >>> largest(Tracked(1.0, 1.0), [0.9, 1.2, 1e6]), largest(Tracked(1.0, 1.0), [1e6, 1.1e6, 1.2])
    (30.0, 30000000.0)
    """
    now = _usual_now(norms)
    if tracked is None or tracked.peak <= 0:
        return math.inf if now is None else FACTOR * now
    before = FACTOR * max(tracked.usual, LEAST * tracked.peak)
    return before if now is None or now <= before else FACTOR * now


def track(tracked: Tracked | None, norms: Sequence[float]) -> Tracked:
    """Return C after a round's norms."""
    if tracked is None or tracked.usual <= 0:
        first = median(norms)
        return Tracked(first, first)
    now = _usual_now(norms)
    if now is not None and now > FACTOR * tracked.usual:
        return Tracked(now, max(now, tracked.peak))
    below = sum(norm <= tracked.usual for norm in norms) / len(norms)
    usual = tracked.usual * math.exp(-RATE * (below - 0.5))
    return Tracked(usual, max(usual, tracked.peak))


def _usual_now(norms: Sequence[float]) -> float | None:
    """Return the median of a round, the lower of two in the middle; None where two or fewer came."""
    return sorted(norms)[(len(norms) - 1) // 2] if len(norms) > 2 else None
