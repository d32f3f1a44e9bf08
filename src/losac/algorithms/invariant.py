"""The check that a server's variable is the mean of what the clients hold, as several methods require."""

from __future__ import annotations

import jax
import numpy as np

from losac.trees import OfClients, Tree, map_trees


def require_mean(rows: OfClients, mean: Tree, complaint: str) -> None:
    """Raise ValueError with this complaint unless the mean over the leading axis of ``rows`` is ``mean``."""
    for due, all_rows in zip(jax.tree.leaves(mean), jax.tree.leaves(rows)):
        found = np.asarray(all_rows, float).mean(0)
        spread = np.abs(np.asarray(all_rows, float)).max(initial=0)
        if not np.allclose(found, due, rtol=1e-3, atol=1e-6 + 1e-4 * spread):
            raise ValueError(complaint)


def require_balance(label: str, symbol: str, rows: OfClients, mean: Tree | None = None) -> None:
    """Raise ValueError unless the clients' variables ``rows`` [N, …] have the server's variable as their mean.

    Without ``mean`` they must add up to zero.
    """
    if mean is None:
        wrong, remedy = f"Σ {symbol}_i ≠ 0", "start at zero"
        mean = map_trees(lambda row: row[0] * 0, rows)
    else:
        wrong = f"Σ {symbol}_i ≠ N·{symbol}"
        remedy = f"start at zero, or with {symbol} = (1/N) Σ {symbol}_i"
    require_mean(rows, mean, f"{label}: this start has {wrong}, so the method would end at a wrong point; {remedy}")
