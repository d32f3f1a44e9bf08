r"""A step size that follows from the sums that the server of LoSAC receives anyway.

The sum of the uploads is an unbiased estimate of how far φ, the delayed gradient, lags behind: with d̄ the mean of the
uploads and u = 1 − (1 − 1/M)^T the share of its blocks that a client visits, e = d̄/u estimates ∇f − φ. So

.. math:: \rho = 1 + \langle e, \phi\rangle / \|\phi\|^2

says whether the gradient still points along φ. Steps that are too short leave it as it is, and ρ is near 1. Steps that
are too long pass the minimum along φ before φ knows, and ρ falls to 0 and below. So the step grows or shrinks with ρ:

.. math:: \eta \leftarrow \eta \exp\big(\beta\,\mathrm{clip}(\rho - \rho^*, -1, 1)\big).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from losac.trees import Tree

GAIN = 0.1
"""β: a round changes the step by at most a tenth."""
AIM = 0.3
"""ρ*."""
START = 3.0
"""γηTL at the start, L the curvature: how far a round moves along φ, in units of 1/L."""


def alignment(phi: Tree, mean: Tree, blocks: int, steps: int) -> Any:
    """Return ρ; 1 where φ is zero."""
    share = 1 - (1 - 1 / blocks) ** steps
    along, square = _inner(mean, phi) / share, _inner(phi, phi)
    return 1 + along / jnp.where(square > 0, square, jnp.inf)


def next_step(eta: Any, rho: Any) -> Any:
    """Return the step size of the next round."""
    return eta * jnp.exp(GAIN * jnp.clip(rho - AIM, -1, 1))


def _inner(a: Tree, b: Tree) -> Any:
    return sum((u * v).sum() for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b)))
