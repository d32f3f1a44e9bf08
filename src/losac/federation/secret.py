"""Secret random keys, for the noise that protects a client."""

from __future__ import annotations

from collections.abc import Sequence

from losac import _random
from losac.algorithms.transform import Transform
from losac.trees import Array


def secret_for(transforms: Sequence[Transform]) -> Array | None:
    """Return a new secret key if a transform is private; else None: all randomness follows from the seed."""
    return _random.secret_key() if any(transform.private for transform in transforms) else None
