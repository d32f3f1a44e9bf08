r"""A step size that follows from the sums that the server of LoSAC receives anyway.

The sum of the uploads is an unbiased estimate of how far φ, the delayed gradient, lags behind: with d̄ the mean of the
uploads and u = 1 − (1 − 1/M)^T the share of its blocks that a client visits, e = d̄/u estimates ∇f − φ. So

.. math:: \rho = 1 + \langle e, \phi\rangle / \|\phi\|^2

says whether the gradient still points along φ. Steps that are too short leave it as it is, and ρ is near 1. Steps that
are too long pass the minimum along φ before φ knows, and ρ falls to 0 and below. So the step grows or shrinks with ρ:

.. math:: \eta \leftarrow \eta \exp\Big(\frac{\min(\beta, p)}{1 + k}\,\mathrm{clip}(\rho - \rho^*, -1, 1)\Big).

p = uS/N is the share of the table that a round renews. φ cannot follow a faster change than p, so the step does not
change faster. ρ sees the direction of φ only; the length of φ shows the rest, such as the noise of a strong compressor.
When ‖φ‖² has grown to four times its least value so far, the step falls to a quarter, the least value is taken from
there, and k, which counts these falls, makes all later changes smaller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac.trees import Tree, squared_norm

GAIN = 0.1
"""β: a round changes the step by at most a tenth."""
AIM = 0.3
"""ρ*."""
GROWTH, FALL = 4.0, 0.25
"""The growth of ‖φ‖² that makes the step fall, and to what share of itself it falls."""


class Signal(NamedTuple):
    """The share of the table that is still at its start, the least ‖φ‖² since the last fall, and the falls so far."""

    unfilled: Any
    least: Any
    falls: Any


def visited(blocks: int, steps: int) -> float:
    """Return u, the share of its blocks that a client is expected to visit in so many steps.

    >>> visited(1, 5), round(visited(5, 1), 3)
    (1.0, 0.2)
    """
    return float(1 - (1 - 1 / blocks) ** steps)


def freshness(renewed: float) -> float:
    r"""Return a = max(p, √p/2), the weight of e in the direction φ + a·e of the server's step.

    Weight p is SAG's: φ + p·e is φ after the round. Weight 1 is SAGA's, unbiased and noisy. The best weight for few
    clients per round lies between them.

    >>> freshness(1.0), freshness(0.01)
    (1.0, 0.05)
    """
    return max(renewed, renewed**0.5 / 2)


def first_length(renewed: float, sampled: int) -> float:
    """Return γηTL at the start: half of what is stable without noise, and at most S.

    On average, φ and hx follow a linear map for each eigenvalue h of the Hessian, which is stable up to
    γηTh = (4 − 2p)/(2a − p). The noise of e shrinks with S, and so must the step with few clients.

    >>> first_length(1.0, 10), first_length(0.01, 1)
    (1.0, 1.0)
    """
    return min((2 - renewed) / (2 * freshness(renewed) - renewed), float(sampled))


def steer(eta: Any, signal: Signal, phi: Tree, after: Tree, lag: Tree, renewed: float) -> tuple[Any, Signal]:
    """Return the step size of the next round, and the signal after this one.

    Args:
      eta, signal: before the round.
      phi, after: φ before and after it.
      lag: e.
      renewed: p.
    """
    unfilled = signal.unfilled * (1 - renewed)
    square = squared_norm(after) / (1 - unfilled) ** 2
    fell = (signal.least > 0) & (square > GROWTH * signal.least)
    falls = signal.falls + fell
    turn = jnp.clip(alignment(phi, lag) - AIM, -1, 1)
    stepped = eta * jnp.exp(min(GAIN, renewed) / (1 + falls) * turn) * jnp.where(fell, FALL, 1.0)
    least = jnp.where(fell | (signal.least == 0), square, jnp.minimum(signal.least, square))
    return stepped, Signal(unfilled, least, falls)


def alignment(phi: Tree, lag: Tree) -> Any:
    """Return ρ; 1 where φ is zero."""
    square = squared_norm(phi)
    along = sum((u * v).sum() for u, v in zip(jax.tree.leaves(lag), jax.tree.leaves(phi)))
    return 1 + along / jnp.where(square > 0, square, jnp.inf)
