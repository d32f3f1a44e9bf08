"""The plain local step w ← w − η g, shared by the methods that leave it open to clipping and to optax."""

from __future__ import annotations

from typing import Any, NamedTuple

from losac.algorithms.contract import LocalMethod
from losac.trees import Tree, axpy, scale, squared_norm


class Walk(NamedTuple):
    """A local model, and the state of the local optimiser if there is one."""

    w: Tree
    optimizer: Any


def start(method: LocalMethod, x: Tree) -> Walk:
    """Begin at x with a fresh local optimiser."""
    return Walk(x, method.local_optimizer(method.step_size).init(x) if method.local_optimizer else ())


def descend(method: LocalMethod, walk: Walk, g: Tree) -> Walk:
    """Take one step along −g: clipped, and by the local optimiser, if these are set."""
    if method.clip_norm is not None:
        norm = squared_norm(g) ** 0.5
        excess = norm / method.clip_norm
        g = scale(1 / (excess * (excess > 1) + (excess <= 1)), g)
    if method.local_optimizer is None:
        return Walk(axpy(-method.step_size, g, walk.w), ())
    updates, state = method.local_optimizer(method.step_size).update(g, walk.optimizer, walk.w)
    return Walk(axpy(1, updates, walk.w), state)
