r"""Regularisers Ψ: each has a value and a proximal operator, as used by proximal gradient methods.

.. math:: \mathrm{prox}_{\beta\Psi}(v) = \arg\min_x \Psi(x) + \tfrac{1}{2\beta}\|x - v\|^2

They act on every leaf of a pytree of JAX, NumPy or PyTorch arrays. A regulariser belongs to the task; the algorithm
then runs as its proximal version (LoSAC-Prox, SCAFFOLD-Prox).

>>> import numpy as np
>>> l1(0.5).prox(np.array([2.0, 0.1]), 1.0)
array([1.5, 0. ])

Reference: N. Parikh, S. Boyd, *Proximal algorithms*, 2014.
"""

from __future__ import annotations

import math

import jax
import numpy as np
from array_api_compat import array_namespace

from losac._checks import check_number
from losac._settings import NONNEGATIVE, POSITIVE, Number, Settings, choice, number
from losac.trees import Array, Scalar, Tree, map_trees

__all__ = ["Regularizer", "box", "elastic_net", "group_l2", "l1", "l2", "nuclear", "simplex", "zero"]


class Regularizer(Settings):
    """A convex function Ψ of the parameters with a proximal operator, leaf by leaf; empty leaves are ignored."""

    def leaf_value(self, v: Array) -> Scalar:
        """Return Ψ of one array."""
        raise NotImplementedError

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Return prox_{step·Ψ} of one array."""
        raise NotImplementedError

    def value(self, params: Tree) -> Scalar:
        """Return Ψ(params)."""
        return sum(self.leaf_value(v) for v in jax.tree.leaves(params) if _entries(v))

    def prox(self, params: Tree, step: Scalar) -> Tree:
        """Return prox_{step·Ψ}(params)."""
        return map_trees(lambda v: self.leaf_prox(v, step) if _entries(v) else v, params)


class Zero(Regularizer):
    """Ψ = 0: the proximal operator is the identity."""

    def leaf_value(self, v: Array) -> Scalar:
        """Return 0."""
        return (v * 0).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Return v."""
        return v


class L1(Regularizer):
    """Ψ(x) = λ‖x‖₁: soft thresholding at step·λ."""

    strength: Number = number(domain=NONNEGATIVE)

    def leaf_value(self, v: Array) -> Scalar:
        """Return λ‖v‖₁."""
        return self.strength * abs(v).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Shrink every entry towards zero by step·λ."""
        return _shrink(v, step * self.strength)


class L2(Regularizer):
    """Ψ(x) = λ/2 ‖x‖²: shrinks every entry by 1 + step·λ."""

    strength: Number = number(domain=NONNEGATIVE)

    def leaf_value(self, v: Array) -> Scalar:
        """Return λ/2 ‖v‖²."""
        return 0.5 * self.strength * (v * v).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Divide by 1 + step·λ."""
        return v / (1 + step * self.strength)


class ElasticNet(Regularizer):
    """Ψ(x) = λ₁‖x‖₁ + λ₂/2 ‖x‖²."""

    l1: Number = number(domain=NONNEGATIVE)
    l2: Number = number(domain=NONNEGATIVE)

    def leaf_value(self, v: Array) -> Scalar:
        """Return λ₁‖v‖₁ + λ₂/2 ‖v‖²."""
        return self.l1 * abs(v).sum() + 0.5 * self.l2 * (v * v).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Soft-threshold, then shrink by 1 + step·λ₂."""
        return _shrink(v, step * self.l1) / (1 + step * self.l2)


class GroupL2(Regularizer):
    """Ψ(x) = λ Σ_g ‖x_g‖₂; a group has one index of the first axis (a feature's row of weights)."""

    strength: Number = number(domain=NONNEGATIVE)

    def leaf_value(self, v: Array) -> Scalar:
        """Return λ times the sum of the rows' norms."""
        return self.strength * _row_norms(v).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Shrink every row's norm by step·λ."""
        norms = _row_norms(v)
        kept = _shrink(norms, step * self.strength) / (norms + (norms == 0))
        return v * kept.reshape(v.shape[:1] + (1,) * (v.ndim - 1))


class Nuclear(Regularizer):
    """Ψ(X) = λ‖X‖_*: soft thresholding of the singular values at step·λ.

    The paper prints the threshold without λ; it is the step times λ. Leaves that are not matrices do not change.
    """

    strength: Number = number(domain=NONNEGATIVE)

    def leaf_value(self, v: Array) -> Scalar:
        """Return λ times the sum of the singular values."""
        if v.ndim != 2:
            return (v * 0).sum()
        return self.strength * array_namespace(v).linalg.svdvals(v).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Threshold the singular values."""
        if v.ndim != 2:
            return v
        u, s, vt = array_namespace(v).linalg.svd(v, full_matrices=False)
        return (u * _shrink(s, step * self.strength)) @ vt


class Box(Regularizer):
    """The indicator of low ≤ x ≤ high: projection by clipping."""

    low: Number = number()
    high: Number = number()

    def validate(self) -> None:
        """A box must not be empty."""
        if not self.low <= self.high:
            raise ValueError(f"box: low={self.low} must not exceed high={self.high}")

    def leaf_value(self, v: Array) -> Scalar:
        """Return 0 inside and infinity outside."""
        xp = array_namespace(v)
        inside = xp.all((v >= self.low) & (v <= self.high))
        return xp.where(inside, (v * 0).sum(), xp.asarray(float("inf"), dtype=v.dtype))

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Clip to the box."""
        xp = array_namespace(v)
        return xp.where(v < self.low, v * 0 + self.low, xp.where(v > self.high, v * 0 + self.high, v))


class Simplex(Regularizer):
    """The indicator of {x ≥ 0, Σx = radius}, with each leaf as one vector."""

    radius: Number = number(default=1.0, domain=POSITIVE)
    tolerance: float = choice(default=1e-5)

    def validate(self) -> None:
        """A tolerance is a number of at least 0."""
        check_number("simplex: tolerance", self.tolerance, NONNEGATIVE)

    def leaf_value(self, v: Array) -> Scalar:
        """Return 0 on the simplex (to the tolerance) and infinity off it."""
        xp = array_namespace(v)
        on = (v.min() >= -self.tolerance) & (abs(v.sum() - self.radius) <= self.tolerance * self.radius)
        return xp.where(on, (v * 0).sum(), xp.asarray(float("inf"), dtype=v.dtype))

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Project: subtract the one threshold that makes the positive part sum to the radius."""
        xp = array_namespace(v)
        descending = xp.flip(xp.sort(v.reshape(-1)))
        ranks = xp.arange(1, descending.shape[0] + 1, dtype=v.dtype)
        thresholds = (xp.cumulative_sum(descending) - self.radius) / ranks
        # thresholds rise while the entry exceeds them, and the largest of these is the one sought
        theta = xp.max(xp.where(descending > thresholds, thresholds, thresholds[0]))
        return xp.where(v > theta, v - theta, v * 0)


def _shrink(v: Array, threshold: Scalar) -> Array:
    xp = array_namespace(v)
    excess = abs(v) - threshold
    return xp.where(excess > 0, xp.where(v < 0, -excess, excess), v * 0)


def _entries(v: Array) -> int:
    """Return how many entries an array has."""
    return math.prod(np.shape(v))


def _row_norms(v: Array) -> Array:
    return ((v * v).reshape((v.shape[0], -1)).sum(-1)) ** 0.5 if v.ndim else abs(v).reshape((1,))


zero, l1, l2, elastic_net, group_l2 = Zero, L1, L2, ElasticNet, GroupL2
nuclear, box, simplex = Nuclear, Box, Simplex
