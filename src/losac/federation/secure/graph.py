"""Who shares masks with whom: everybody with everybody, or few neighbours where there are many clients.

Reference: J. H. Bell et al., *Secure single-server aggregation with (poly)logarithmic overhead*, CCS 2020 (SecAgg+):
a random regular graph of degree O(log n) is enough.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from losac.federation.secure.primitives import words


def holders_of(name: str, names: Sequence[str], degree: int, session: str) -> list[str]:
    """Return who holds shares of a client's seeds, in order: its neighbours and the client itself.

    The clients stand on a ring in an order drawn from the session, and each has the nearest on both sides as its
    neighbours. 0 stands for everybody.
    """
    if not degree or degree >= len(names) - 1:
        return sorted(names)
    ring = sorted(names, key=lambda each: hashlib.sha256(words("ring", session, each)).digest())
    place, half = ring.index(name), degree // 2
    return sorted(ring[(place + offset) % len(ring)] for offset in range(-half, half + 1))


def threshold_for(holders: int, wished: int = 0) -> int:
    """Return how many shares tell a seed: more than two thirds of the holders, or as wished, but more than half.

    With more than half, no two answers of the same holders tell both seeds of a client.

    >>> [threshold_for(n) for n in (3, 5, 10)], threshold_for(5, 3), threshold_for(10, 3)
    ([3, 4, 7], 3, 6)
    """
    return max(wished, holders // 2 + 1) if wished else 2 * holders // 3 + 1
