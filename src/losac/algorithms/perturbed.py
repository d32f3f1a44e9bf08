"""The step of sharpness-aware methods: the gradient is taken a little uphill of the model."""

from __future__ import annotations

from typing import Any

from losac.trees import Tree, scale, squared_norm


def towards(direction: Tree, radius: Any) -> Tree:
    """Return the vector of this length in a direction; zero where there is no direction."""
    norm = squared_norm(direction) ** 0.5
    return scale(radius / (norm + (norm == 0)), direction)
