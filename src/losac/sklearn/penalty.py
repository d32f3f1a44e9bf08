"""The penalty of a network's weights."""

from __future__ import annotations

from losac.prox import ElasticNet, Regularizer
from losac.trees import Array, Scalar


class WeightPenalty(ElasticNet):
    """The elastic net λ₁‖W‖₁ + λ₂/2 ‖W‖² of the weight matrices; intercepts are not penalised.

    >>> import numpy as np
    >>> penalty = WeightPenalty(1.0, 0.0)
    >>> penalty.prox({"w": np.array([[3.0, 0.5]]), "b": np.array([3.0])}, 1.0)
    {'b': array([3.]), 'w': array([[2., 0.]])}
    """

    def leaf_value(self, v: Array) -> Scalar:
        """Return the penalty of a matrix, and 0 for anything else."""
        return super().leaf_value(v) if v.ndim == 2 else (v * 0).sum()

    def leaf_prox(self, v: Array, step: Scalar) -> Array:
        """Shrink a matrix; return anything else unchanged."""
        return super().leaf_prox(v, step) if v.ndim == 2 else v


def penalty(l1: float, l2: float) -> Regularizer | None:
    """Return the regulariser of two strengths; None if both are zero."""
    return WeightPenalty(l1, l2) if l1 or l2 else None
