"""Step rules that need no tuning, as pure functions: DoG, DoWG and Prodigy follow how far the iterates have come.

References: M. Ivgi, O. Hinder, Y. Carmon, *DoG is SGD's best friend*, ICML 2023; A. Khaled, K. Mishchenko, C. Jin,
*DoWG unleashed*, NeurIPS 2023; K. Mishchenko, A. Defazio, *Prodigy*, ICML 2024.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax

from losac.algorithms.scalars import most
from losac.trees import Scalar, Tree, axpy, map_trees, squared_norm, sub, zeros


class Rule(Protocol):
    """A step rule: its state at the start from w₀, and one step along −g, with all steps times ``factor``."""

    def start(self, w: Tree, first: Scalar) -> Any:
        """Return the state at the start; ``first`` is the first guess of the distance."""

    def step(self, state: Any, w: Tree, g: Tree, factor: Scalar) -> tuple[Tree, Any]:
        """Return the next w and state."""


class DogState(NamedTuple):
    """w₀, the largest distance r̄ from it so far, and the sum of squared gradients."""

    origin: Tree
    reach: Scalar
    total: Scalar


class Dog:
    r"""Distance over gradients: a step of :math:`\bar r/\sqrt{\sum\|g\|^2 + \epsilon}`, with ε = 1e-8."""

    @staticmethod
    def start(w: Tree, first: Scalar) -> DogState:
        """Begin with r̄ = first · (1 + ‖w₀‖)."""
        norm = squared_norm(w) ** 0.5
        return DogState(w, first * (1 + norm), norm * 0)

    @staticmethod
    def step(state: DogState, w: Tree, g: Tree, factor: Scalar) -> tuple[Tree, DogState]:
        """Take one step."""
        reach = most(state.reach, squared_norm(sub(w, state.origin)) ** 0.5)
        total = state.total + squared_norm(g)
        return axpy(-factor * reach / (total + 1e-8) ** 0.5, g, w), DogState(state.origin, reach, total)


class DowgState(NamedTuple):
    """w₀, the largest squared distance R from it so far, and the weighted sum v of squared gradients."""

    origin: Tree
    reach: Scalar
    total: Scalar


class Dowg:
    r"""Distance over weighted gradients: a step of :math:`R/(\sqrt v + \epsilon)`, v the sum of R‖g‖², ε = 1e-4."""

    @staticmethod
    def start(w: Tree, first: Scalar) -> DowgState:
        """Begin with R = first."""
        nought = squared_norm(zeros(w))
        return DowgState(w, nought + first, nought)

    @staticmethod
    def step(state: DowgState, w: Tree, g: Tree, factor: Scalar) -> tuple[Tree, DowgState]:
        """Take one step."""
        reach = most(state.reach, squared_norm(sub(w, state.origin)))
        total = state.total + reach * squared_norm(g)
        return axpy(-factor * reach / (total**0.5 + 1e-4), g, w), DowgState(state.origin, reach, total)


class ProdigyState(NamedTuple):
    """w₀; the means m and v of Adam; the sums r and s whose ratio bounds the distance; that bound d and its start."""

    origin: Tree
    m: Tree
    v: Tree
    r: Scalar
    s: Tree
    distance: Scalar
    first: Scalar


class Prodigy:
    """Adam with steps in units of a lower bound d of the distance to the optimum, without bias correction."""

    BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

    @staticmethod
    def start(w: Tree, first: Scalar) -> ProdigyState:
        """Begin with d = first."""
        nought, distance = squared_norm(zeros(w)), squared_norm(zeros(w)) + first
        return ProdigyState(w, zeros(w), zeros(w), nought, zeros(w), distance, distance)

    @classmethod
    def step(cls, state: ProdigyState, w: Tree, g: Tree, factor: Scalar) -> tuple[Tree, ProdigyState]:
        """Take one step."""
        d, beta1, beta2, beta3 = state.distance, cls.BETA1, cls.BETA2, cls.BETA2**0.5
        weight = factor * d * d / state.first
        products = map_trees(lambda g, o, w: (g * (o - w)).sum(), g, state.origin, w)
        r = beta3 * state.r + weight * sum(jax.tree.leaves(products))
        s = map_trees(lambda s, g: beta3 * s + weight * g, state.s, g)
        m = map_trees(lambda m, g: beta1 * m + (1 - beta1) * d * g, state.m, g)
        v = map_trees(lambda v, g: beta2 * v + (1 - beta2) * d * d * g * g, state.v, g)
        size = sum(abs(leaf).sum() for leaf in jax.tree.leaves(s))
        distance = most(d, r / (size + (size == 0)))
        moved = map_trees(lambda w, m, v: w - factor * d * m / (v**0.5 + distance * cls.EPSILON), w, m, v)
        return moved, ProdigyState(state.origin, m, v, r, s, distance, state.first)
