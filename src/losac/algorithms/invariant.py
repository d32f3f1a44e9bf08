"""The check that a server's variable is the mean of what the clients hold, as several methods require."""

from __future__ import annotations

import jax
import numpy as np

from losac.trees import Tree


def require_mean(rows: Tree, mean: Tree, complaint: str) -> None:
    """Raise ValueError with this complaint unless the mean over the leading axis of ``rows`` is ``mean``."""
    for due, all_rows in zip(jax.tree.leaves(mean), jax.tree.leaves(rows)):
        found = np.asarray(all_rows, float).mean(0)
        spread = np.abs(np.asarray(all_rows, float)).max(initial=0)
        if not np.allclose(found, due, rtol=1e-3, atol=1e-6 + 1e-4 * spread):
            raise ValueError(complaint)
