"""The check of seeds, however they are given."""

from __future__ import annotations

import numbers
from typing import Any

from losac._checks import check_list

MOST = 2**32 - 1
"""The largest seed. JAX reads 32 bits of a seed in single precision and 64 in double, NumPy reads all of them."""


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return a seed as a Python int; refuse what is not a whole number from 0 to 2^32 − 1.

    Only these mean the same in every precision and for every generator.

    >>> check_seed(7)
    7
    """
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or not 0 <= int(seed) <= MOST:
        raise ValueError(f"{name}={seed!r} must be a whole number from 0 to {MOST}")
    return int(seed)


def check_seeds(seeds: Any) -> list[int]:
    """Return several seeds, all different."""
    found = [check_seed(seed, f"seeds[{k}]") for k, seed in enumerate(check_list("seeds", seeds, "a list of seeds"))]
    if len(set(found)) < len(found):
        raise ValueError(f"seeds={found} names a seed twice; give each once")
    return found
