"""Uploads as whole numbers of a step: their sum is exact: what secure aggregation adds up under masks.

Reference: K. Bonawitz et al., *Practical secure aggregation for privacy-preserving machine learning*, CCS 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac._checks import is_number
from losac._settings import POSITIVE, choice, count
from losac.algorithms.parts import parts
from losac.algorithms.transform import Transform
from losac.trees import Tree

MOST_BITS = 48
"""More would leave too little of 64 bits for a sum over many clients."""
WORD = 2.0**31
NOT_A_NUMBER = -(2**31)


@partial(jax.tree_util.register_dataclass, data_fields=["high", "low"], meta_fields=["step", "dtype"])
@dataclass(frozen=True)
class Fixed:
    """An array as whole numbers of a step, each high · 2³¹ + low in two words of 32 bits.

    JAX has no 64 bits in single precision. A power of two as the step makes every one of these a float exactly.
    """

    high: Any
    low: Any
    step: float
    dtype: str

    def values(self) -> Any:
        """Return the numbers that it stands for."""
        level = self.high.astype(self.dtype) * WORD + self.low.astype(self.dtype)
        return jnp.where(self.high == NOT_A_NUMBER, jnp.nan, level * self.step)

    def levels(self) -> np.ndarray:
        """Return how many steps each number is."""
        return np.asarray(self.high, np.int64) * 2**31 + np.asarray(self.low, np.int64)

    def has_nan(self) -> bool:
        """Whether a number is none."""
        return bool(np.any(np.asarray(self.high) == NOT_A_NUMBER))


def is_fixed(node: Any) -> bool:
    """Whether a node of a tree is an array in fixed point."""
    return isinstance(node, Fixed)


class FixedPoint(Transform):
    r"""Round every entry to the nearest multiple of a step, within a range.

    .. math:: u \leftarrow \epsilon\,\mathrm{round}\big(\min(\max(u, -C), C)/\epsilon\big), \qquad
       \epsilon = 2^{\lceil\log_2 C\rceil - b}

    It must be the last of the uploads' transforms. The step is a power of two, so nothing else is rounded: the server's
    sum is a sum of integers. Methods with control variates record what was sent, so they send later what the range cuts
    off; other methods lose it. Choose a range that no entry reaches: a range that is too wide costs only resolution.

    Args:
      limit: C, the largest modulus of an entry: one for all parts of an upload (such as LoSAC's Δx and Δφ), or a tuple
        with one for each.
      bits: b; the largest error of an entry is C·2⁻ᵇ.
      other_limit: C for phases other than the algorithm's own; needed where there are such and ``limit`` is a tuple.

    >>> import numpy as np
    >>> fixed = FixedPoint(limit=4.0, bits=5)
    >>> payload, _ = fixed.encode(None, (), np.array([0.3, -1.0, 9.0], np.float32))
    >>> fixed.decode(payload), payload.levels()
    (Array([ 0.25, -1.  ,  4.  ], dtype=float32), array([  2,  -8,  32]))
    """

    limit: Any = choice()
    bits: int = count(default=32)
    other_limit: Any = choice(default=None, kw_only=True)

    def validate(self) -> None:
        """Limits are positive numbers."""
        for name, bound in (*(("limit", bound) for bound in self.limits), ("other_limit", self.other_limit)):
            if (bound is not None or name == "limit") and not (is_number(bound) and POSITIVE.contains(float(bound))):
                raise ValueError(
                    f"fixed_point: {name} must be {POSITIVE.words}, or a tuple of such for limit, and not {bound!r}"
                )
        if self.bits > MOST_BITS:
            raise ValueError(f"fixed_point: bits={self.bits} must be at most {MOST_BITS}")

    @property
    def limits(self) -> tuple[Any, ...]:
        """The limits as they were given: one for all parts, or one for each."""
        return self.limit if isinstance(self.limit, tuple) else (self.limit,)

    def elsewhere(self) -> FixedPoint:
        """Return the same with the limit for other phases."""
        if self.other_limit is None and isinstance(self.limit, tuple):
            raise ValueError(
                f"fixed_point: limit={self.limit!r} has a bound for each part of the algorithm's own upload, but the "
                "algorithm has another phase, whose upload has other parts: say other_limit=…"
            )
        return self.replace(limit=self.limit if self.other_limit is None else self.other_limit)

    def encode(self, key: Any, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Return the upload as whole numbers of the steps."""
        found = parts(upload)
        fixed = {
            name: jax.tree.map(partial(self._fixed, limit), found[name])
            for name, limit in self._limits_of(found).items()
        }
        return upload._replace(**fixed) if hasattr(upload, "_fields") else next(iter(fixed.values())), state

    def decode(self, payload: Tree) -> Tree:
        """Return the numbers."""
        return jax.tree.map(lambda p: p.values(), payload, is_leaf=is_fixed)

    def clipped(self, payload: Tree) -> int:
        """Return how many entries of a payload are at the ends of the range."""
        found = parts(payload)
        return sum(
            int((abs(fixed.levels()) >= round(limit / fixed.step)).sum())
            for name, limit in self._limits_of(found).items()
            for fixed in jax.tree.leaves(found[name], is_leaf=is_fixed)
        )

    def _limits_of(self, found: dict[str, Tree]) -> dict[str, float]:
        """Return the limit of each part of an upload."""
        limits = self.limits
        if isinstance(self.limit, tuple) and len(limits) != len(found):
            raise ValueError(
                f"fixed_point: limit has {len(limits)} numbers, but the upload has {len(found)} parts "
                f"({', '.join(found)}): give one for each, or one number for all"
            )
        return dict(zip(found, map(float, limits * len(found) if len(limits) == 1 else limits)))

    def _fixed(self, limit: float, v: Any) -> Fixed:
        if not jnp.issubdtype(v.dtype, jnp.floating):
            raise ValueError(f"fixed_point: the upload holds {v.dtype}, and only floating-point numbers have a range")
        step = 2.0 ** (math.ceil(math.log2(limit)) - self.bits)
        level = jnp.round(jnp.clip(v, -limit, limit) / step)
        high = jnp.trunc(level / WORD)
        low = level - high * WORD
        known = ~jnp.isnan(v)
        high, low = jnp.where(known, high, NOT_A_NUMBER), jnp.where(known, low, 0)
        return Fixed(high.astype(jnp.int32), low.astype(jnp.int32), step, str(v.dtype))
