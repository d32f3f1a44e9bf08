"""Measures whether the server's sums match what the clients hold."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from losac.federation.book import Book
from losac.federation.setting import Setting
from losac.trees import Tree, scale


def invariant_error(setting: Setting, book: Book, holdings: Sequence[Tree]) -> float:
    """Return how far the server's sum is from the sum of what all clients hold, relative to what these hold.

    It compares the sum of all accepted credits with that of the holdings, and the server's state with the one that
    the credits alone would have made.
    """
    if not setting.keeps_sums:
        return 0.0
    held = [np.stack([np.asarray(h, np.float64) for h in leaves]) for leaves in zip(*map(jax.tree.leaves, holdings))]
    sums = [h.sum(0) for h in held] or [np.zeros(np.shape(a)) for a in jax.tree.leaves(setting.no_credit)]
    size = max(norm([np.abs(h).sum(0) for h in held]), norm(jax.tree.leaves(book.total)), 1e-30)
    apart = [a - b for a, b in zip(jax.tree.leaves(book.total), sums)]
    bare = jax.tree.leaves(setting.shifted(book, scale(-1, book.total)))
    start = jax.tree.leaves(setting.call(lambda: setting.algorithm.at(0).init(book.first)))
    moved = [np.any(a != b) for a, b in zip(bare, jax.tree.leaves(book.server))]
    left = norm([a - b for a, b, m in zip(bare, start, moved) if m])
    whole = norm([b for b, m in zip(jax.tree.leaves(book.server), moved) if m])
    return max(norm(apart) / size, left / max(whole, 1e-30) if any(moved) else 0.0)


def norm(arrays: Sequence[np.ndarray]) -> float:
    """Return the norm of some arrays together."""
    return float(np.sqrt(sum((np.asarray(a, np.float64) ** 2).sum() for a in arrays)))
