r"""Robust aggregation: rules that some lying clients cannot move far, and mixings that go in front of them.

``liars`` is f, the number of uploads of a round that may be arbitrary. Where fewer answer than a rule needs for its f,
it takes the largest f that it can.

References: D. Yin et al., *Byzantine-robust distributed learning*, ICML 2018 (median, trimmed mean); K. Pillutla,
S. Kakade, Z. Harchaoui, *Robust aggregation for federated learning*, 2022 (geometric median); P. Blanchard et al.,
*Machine learning with adversaries*, NeurIPS 2017 (Krum); S. P. Karimireddy, L. He, M. Jaggi, *Learning from history
for Byzantine robust optimization*, ICML 2021 (centred clipping), and *Byzantine-robust learning on heterogeneous
datasets via bucketing*, ICLR 2022; Y. Allouah et al., *Fixing by mixing*, AISTATS 2023 (nearest-neighbour mixing).
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from losac import _random
from losac._settings import POSITIVE, Number, choice, count, number
from losac.algorithms.aggregation import Aggregator, Mixing, Stage
from losac.trees import Array


class TolerantStage(Stage):
    """A stage that is told how many uploads may be lies."""

    liars: int = choice()

    def validate(self) -> None:
        """f is a whole number."""
        if isinstance(self.liars, bool) or not isinstance(self.liars, int) or self.liars < 0:
            raise ValueError(f"{self.label}: liars={self.liars!r} must be a whole number of at least 0")

    def check(self, uploads: int) -> int:
        """Most uploads must be honest."""
        if 2 * self.liars >= uploads:
            raise ValueError(
                f"{self.label}(liars={self.liars}) needs more than {2 * self.liars} uploads, and {uploads} come: ask "
                "more clients per round, or expect fewer liars"
            )
        return uploads

    def f(self, active: Array, most: int = 1) -> Array:
        """Return f, or the largest with 2f + ``most`` uploads at most."""
        return jnp.clip((active.sum() - most) // 2, 0, self.liars)


class CoordinateMedian(Aggregator):
    """The median of each entry; of an even number of uploads, the mean of the two in the middle."""

    def weigh(self, uploads: Array, active: Array) -> Array:
        """Weigh the middle."""
        return median_weights(uploads, active)


class TrimmedMean(TolerantStage, Aggregator):
    """In each entry, the mean without the f lowest and the f highest values.

    Args:
      liars: f, with 2f < n.
    """

    def weigh(self, uploads: Array, active: Array) -> Array:
        """Weigh the values in between alike."""
        place, n, f = ranks(uploads, active), active.sum(), self.f(active)
        return ((place >= f) & (place < n - f)) / jnp.maximum(n - 2 * f, 1).astype(uploads.dtype)


class GeometricMedian(Aggregator):
    r"""The point with the least sum of distances to the uploads, by smoothed Weiszfeld iterations until they settle.

    .. math:: z \leftarrow \frac{\sum_i \beta_i v_i}{\sum_i \beta_i}, \qquad
       \beta_i = \frac{1}{\max(\nu, \|z - v_i\|)}

    They begin at the median of each entry. From the mean, any fixed number of iterations would follow a single liar
    that is far enough away.

    Args:
      smoothing: ν as a multiple of the median of the distances at the start, so that the unit of the uploads does not
        matter; the mean for ∞.
    """

    smoothing: Number = number(default=1e-3, domain=POSITIVE)

    def weigh(self, uploads: Array, active: Array) -> Array:
        """Iterate until the point moves by less than a tenth of ν, 100 times at most."""
        centre = (median_weights(uploads, active) * uploads).sum(0)
        unit = middle(distances_to(centre, uploads), active)
        nu = jnp.maximum(self.smoothing * unit, jnp.finfo(uploads.dtype).tiny)

        def shares(z: Array) -> Array:
            beta = jnp.where(active, 1 / jnp.maximum(nu, distances_to(z, uploads)) * nu, 0)
            return beta / beta.sum()

        def going(carry: Any) -> Any:
            _, moved, times = carry
            return (moved > 0.1 * nu) & (times < 100)

        def step(carry: Any) -> Any:
            z, _, times = carry
            after = shares(z) @ uploads
            return after, jnp.sqrt(((after - z) ** 2).sum()), times + 1

        z, _, _ = jax.lax.while_loop(going, step, (centre, jnp.full((), jnp.inf, uploads.dtype), 0))
        return shares(z)


class Krum(TolerantStage, Aggregator):
    """The upload that is nearest to its n − f − 2 nearest others, by the sum of the squared distances.

    Args:
      liars: f, with n ≥ 2f + 3.
    """

    def check(self, uploads: int) -> int:
        """Each honest upload needs honest neighbours."""
        if uploads < 2 * self.liars + 3:
            raise ValueError(
                f"{self.label}(liars={self.liars}) needs at least 2·{self.liars} + 3 = {2 * self.liars + 3} uploads, "
                f"and {uploads} come: ask more clients per round, or expect fewer liars"
            )
        return uploads

    def number(self, n: Any, f: Any) -> Any:
        """Return how many uploads are averaged."""
        return jnp.ones((), jnp.int32)

    def weigh(self, uploads: Array, active: Array) -> Array:
        """Weigh the uploads with the least scores alike."""
        n, f = active.sum(), self.f(active, 3)
        others = ~jnp.eye(len(active), dtype=bool) & active[None, :]
        near = jnp.sort(jnp.where(others, squared_distances(uploads), jnp.inf), axis=1)
        nearest = jnp.arange(len(active)) < jnp.maximum(n - f - 2, 1)
        scores = jnp.where(active & (n > 1), jnp.where(nearest, near, 0).sum(1), jnp.where(active, 0, jnp.inf))
        chosen = jnp.clip(self.number(n, f), 1, n)
        return (ranks(scores[:, None], active)[:, 0] < chosen) / chosen.astype(uploads.dtype)


class MultiKrum(Krum):
    """The mean of the m uploads with the least scores of Krum.

    Args:
      liars: f, with n ≥ 2f + 3.
      chosen: m; n − f by default.
    """

    chosen: int | None = count(default=None)

    def check(self, uploads: int) -> int:
        """No more can be chosen than come."""
        if self.chosen is not None and self.chosen > uploads:
            raise ValueError(f"{self.label}(chosen={self.chosen}) chooses more than the {uploads} uploads that come")
        return super().check(uploads)

    def number(self, n: Any, f: Any) -> Any:
        """Return m."""
        return n - f if self.chosen is None else jnp.full((), self.chosen, jnp.int32)


class CentredClipping(Aggregator):
    r"""The mean of the uploads after clipping how far they are from a centre, some times over.

    .. math:: v \leftarrow v + \frac1n \sum_i (v_i - v) \min\Big(1, \frac{\tau}{\|v_i - v\|}\Big)

    Karimireddy et al. begin at the result of the round before. Here each round stands for itself: what the round before
    has left belongs to no client of this one, and none could record it.

    Args:
      radius: τ; by default the median of the distances from the centre, which follows the unit of the uploads.
      iterations: how often.
      start: the first centre: the ``"median"`` of each entry, or ``"zero"``, which is plain clipping of the norms: the
        longest upload then has the norm τ.
    """

    radius: Number = number(default=None, domain=POSITIVE)
    iterations: int = count(default=3)
    start: Literal["median", "zero"] = choice(default="median", choices=("median", "zero"), kw_only=True)

    def weigh(self, uploads: Array, active: Array) -> Array:
        """Follow the weights that each centre has."""
        n = active.sum().astype(uploads.dtype)
        weights = median_weights(uploads, active) if self.start == "median" else jnp.zeros_like(uploads[:, 0])
        for _ in range(self.iterations):
            centre = (weights * uploads).sum(0) if weights.ndim == 2 else weights @ uploads
            apart = distances_to(centre, uploads)
            radius = middle(apart, active) if self.radius is None else self.radius
            kept = jnp.where(active, jnp.minimum(1, radius / jnp.maximum(apart, jnp.finfo(apart.dtype).tiny)), 0)
            kept = jnp.where(apart > 0, kept, active)
            share = kept[:, None] if weights.ndim == 2 else kept
            weights = share / n + (1 - kept.sum() / n) * weights
        return weights


class Bucketing(Mixing):
    """Means of groups of s uploads, drawn at random: clients that differ less are told from liars more easily.

    A liar spoils its group, so f stays what it was while the number of vectors falls to ⌈n/s⌉.

    Args:
      size: s.
    """

    size: int = count(default=2)

    def check(self, uploads: int) -> int:
        """Return the number of groups."""
        return -(-uploads // self.size)

    def mix(self, key: Any, uploads: Array, active: Array) -> tuple[Array, Array]:
        """Deal the uploads to groups; the last may be smaller."""
        most = self.check(len(active))
        drawn = _random.bucket_order(key, len(active))
        place = ranks(drawn[:, None].astype(uploads.dtype), active)[:, 0]
        member = (place // self.size == jnp.arange(most)[:, None]) & active
        sizes = member.sum(1)
        return member / jnp.maximum(sizes, 1)[:, None].astype(uploads.dtype), sizes > 0


class NearestMixing(TolerantStage, Mixing):
    """Nearest-neighbour mixing: each upload becomes the mean of the n − f that are nearest to it, itself included.

    Args:
      liars: f, with 2f < n.
    """

    def mix(self, key: Any, uploads: Array, active: Array) -> tuple[Array, Array]:
        """Weigh the nearest alike."""
        apart = jnp.where(jnp.eye(len(active), dtype=bool), -1, squared_distances(uploads))
        near = jax.vmap(lambda row: ranks(row[:, None], active)[:, 0])(apart)
        kept = jnp.maximum(active.sum() - self.f(active), 1)
        return ((near < kept) & active) / kept.astype(uploads.dtype), active


def ranks(values: Array, active: Array) -> Array:
    """Return the place [n, d] of each value in its column [n, d]; ties by the row, rows that are not there last."""
    values = jnp.where(active[:, None], values, jnp.inf)
    rows = jnp.arange(len(active))[:, None]

    def place(i: Any) -> Array:
        mine = values[i]
        return ((values < mine) | ((values == mine) & (rows < i))).sum(0)

    return jax.lax.map(place, jnp.arange(len(active)))


def median_weights(uploads: Array, active: Array) -> Array:
    """Return the weights [n, d] of the median of each entry."""
    place, n = ranks(uploads, active), active.sum()
    low, high = (n - 1) // 2, n // 2
    return ((place == low) * 0.5 + (place == high) * 0.5).astype(uploads.dtype)


def middle(values: Array, active: Array) -> Array:
    """Return the median of some numbers [n]."""
    return (median_weights(values[:, None], active)[:, 0] * jnp.where(active, values, 0)).sum()


def distances_to(point: Array, uploads: Array) -> Array:
    """Return the distances [n] of the uploads from a point."""
    return jnp.sqrt(((uploads - point) ** 2).sum(1))


def squared_distances(uploads: Array) -> Array:
    """Return all squared distances [n, n], by differences: a product of huge uploads would swallow the others."""
    return jax.lax.map(lambda one: ((uploads - one) ** 2).sum(1), uploads)
