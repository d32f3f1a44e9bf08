"""Arithmetic on single numbers by operators only, which NumPy, JAX and PyTorch share."""

from __future__ import annotations

from typing import Any


def most(a: Any, b: Any) -> Any:
    """Return the larger of two finite numbers."""
    return a * (a >= b) + b * (a < b)


def bounded_ratio(a: Any, b: Any, bound: Any) -> Any:
    """Return a/b, or the bound where that is smaller or b is zero; b must not be negative."""
    within, limit = a < bound * b, a * 0 + bound
    return within * (a / (b + (b == 0))) + (a >= bound * b) * limit
