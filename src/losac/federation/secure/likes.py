"""What masked uploads look like."""

from __future__ import annotations

import jax
import numpy as np

from losac.algorithms.fixed_point import is_fixed
from losac.federation.protocol import Kind
from losac.federation.setting import Setting


def masked_reply_like(setting: Setting, kind: Kind, phase_index: int = 0) -> tuple[np.ndarray, ...]:
    """Return the arrays of a reply: whole numbers modulo 2⁶⁴ for uploads and holdings, none for other steps."""
    if kind == "train":
        leaves = jax.tree.leaves(setting.payload_like(phase_index), is_leaf=is_fixed)
        return tuple(np.zeros(np.shape(leaf.high), np.uint64) for leaf in leaves)
    held = jax.tree.leaves(setting.no_credit) if kind == "hold" else []
    return tuple(np.zeros(np.shape(leaf), np.uint64) for leaf in held)
