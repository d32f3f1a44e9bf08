"""Private uploads: clipping and Gaussian noise, for every algorithm, at its clients or at the server.

References: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang, *Learning differentially private recurrent language models*,
ICLR 2018 (clipped uploads and noise on their sum); C. Dwork, A. Roth, *The algorithmic foundations of differential
privacy*, 2014. :mod:`losac.privacy` says what a noise multiplier is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from losac import _random
from losac._checks import is_number
from losac._settings import NONNEGATIVE, POSITIVE, Number, choice, node, number
from losac.algorithms.contract import Algorithm
from losac.algorithms.parts import parts, replaced
from losac.algorithms.transform import Transform
from losac.trees import Array, Scalar, Tree, map_trees, squared_norm


class Gaussian(Transform):
    r"""Clip every part of an upload, and add Gaussian noise to it, or to the sum of all.

    The parts of an upload are the fields of its named tuple, such as LoSAC's Δx and Δφ, or else the whole is one part.
    Part k of K is scaled down to the norm C_k if it is longer, and gets noise on every entry:

    .. math:: u_k \leftarrow u_k \min(1, C_k/\|u_k\|) + \mathcal N\big(0, (z\sqrt K\,C_k)^2 I\big)

    Why √K: divided by C_k√K, the parts together have a norm of at most 1, and all of the noise has the standard
    deviation z. So the whole upload is one Gaussian mechanism of noise multiplier z, however its bounds differ.

    The noise of a client is in its state too: LoSAC's y and SCAFFOLD's c_i record what was *sent*, so φ = κ Σ y
    and Σ c_i = N c stay true. With ``noise_at="server"`` the clients only clip, and the server adds the same noise once
    to the sum. No client can record that: φ, c and FedDyn's h then take a random walk away from the clients' states.

    An upload that is not finite is sent as zero, as a bound must hold for every upload.

    Args:
      clip: C, one bound for all parts, or a tuple with one for each; :func:`losac.privacy.typical_norms` helps.
      noise_multiplier: z; 0 only clips.
      noise_at: ``"client"``, where not even the server sees an upload without noise, or ``"server"``.
      other_clip: the bound for phases other than the algorithm's own, such as MimeSVRG's full gradients, which are
        protected alike; needed where such phases exist and ``clip`` is a tuple.

    The noise is drawn by JAX's generator (Threefry-2x32, with a key of 64 bits) in floating-point numbers. In the
    simulator its key follows from the seed, so runs can be repeated. In a federation it comes from the operating
    system of the client or server that adds the noise, a new one for each upload. It is no generator for cryptography,
    and the roundings of floating-point numbers are not hidden (I. Mironov, *On significance of the least significant
    bits for differential privacy*, CCS 2012).

    >>> import losac
    >>> losac.algorithms.fedavg(0.1, uploads=(Gaussian(clip=1.0, noise_multiplier=0.5),))
    fedavg(step_size=0.1, uploads=(gaussian(clip=1, noise_multiplier=0.5),))
    """

    private = True

    clip: Any = node()
    noise_multiplier: Number = number(default=0.0, domain=NONNEGATIVE)
    noise_at: Literal["client", "server"] = choice(default="client", choices=("client", "server"), kw_only=True)
    other_clip: Any = node(default=None, kw_only=True)

    def validate(self) -> None:
        """Bounds are positive numbers; schedules are for algorithms."""
        for bound in self.bounds or (self.clip,):
            _check("clip", bound)
        if self.other_clip is not None:
            _check("other_clip", self.other_clip)
        if callable(self.noise_multiplier):
            raise ValueError("gaussian: noise_multiplier must be a number, the same in all rounds")

    @property
    def bounds(self) -> tuple[Any, ...]:
        """The bounds as they were given: one for all parts, or one for each."""
        return self.clip if isinstance(self.clip, tuple) else (self.clip,)

    @property
    def on_the_sum(self) -> bool:
        """Whether the server adds the noise."""
        return self.noise_at == "server"

    def elsewhere(self) -> Gaussian:
        """Return the same with the bound for other phases."""
        if self.other_clip is None and isinstance(self.clip, tuple):
            raise ValueError(
                f"gaussian: clip={self.clip!r} has a bound for each part of the algorithm's own upload, but the "
                "algorithm has another phase, with an upload that must be clipped too: say other_clip=…"
            )
        return self.with_numbers(clip=self.clip if self.other_clip is None else self.other_clip)

    def encode(self, key: Array, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Clip every part, and add the noise if it is the client's."""
        clipped = self._by_part(upload, lambda part_index, bound, part: _clipped(part, bound))
        return (clipped if self.on_the_sum else self._noisy(key, clipped)), state

    def summed(self, key: Array, total: Tree) -> Tree:
        """Add the noise if it is the server's."""
        return self._noisy(key, total) if self.on_the_sum else total

    def _noisy(self, key: Array, upload: Tree) -> Tree:
        spread = self.noise_multiplier * len(parts(upload)) ** 0.5

        def noisy(part_index: int, bound: Scalar, part: Tree) -> Tree:
            leaves, structure = jax.tree.flatten(part)
            keys = _random.leaf_keys(_random.part_key(key, part_index), len(leaves))
            drawn = (v + spread * bound * jax.random.normal(k, jnp.shape(v), v.dtype) for k, v in zip(keys, leaves))
            return jax.tree.unflatten(structure, list(drawn))

        return self._by_part(upload, noisy)

    def _by_part(self, upload: Tree, function: Callable[..., Tree]) -> Tree:
        """Return the upload with each part replaced by a function of its index, its bound and itself."""
        found, bounds = parts(upload), self.bounds
        if isinstance(self.clip, tuple) and len(bounds) != len(found):
            names = " and ".join(found) if hasattr(upload, "_fields") else "a single one"
            raise ValueError(
                f"gaussian: clip has {len(bounds)} bounds, but the upload has {len(found)} parts ({names}): give one "
                "bound for each, or one number for all"
            )
        bounds = bounds * len(found) if len(bounds) == 1 else bounds
        changed = {
            name: function(part_index, bound, part)
            for part_index, (bound, (name, part)) in enumerate(zip(bounds, found.items()))
        }
        return replaced(upload, changed)


def refuse_model_state(algorithm: Algorithm, model_state: Tree) -> None:
    """Refuse a private transform for a model with a state, which travels unprotected."""
    if any(transform.private for transform in algorithm.transforms()) and jax.tree.leaves(model_state):
        raise ValueError(
            f"{algorithm.label} is to protect its uploads, but the model has a state (such as batch statistics) that "
            "travels with them without protection: use a model without one, such as group instead of batch norm"
        )


def _clipped(part: Tree, bound: Scalar) -> Tree:
    norm = jnp.sqrt(squared_norm(part))
    factor = jnp.where(norm > bound, bound / norm, 1)
    return map_trees(lambda v: jnp.where(jnp.isfinite(norm), v * factor.astype(v.dtype), 0), part)


def _check(name: str, bound: Any) -> None:
    if isinstance(bound, jax.core.Tracer):
        return
    if not is_number(bound) or not POSITIVE.contains(float(bound)):
        raise ValueError(f"gaussian: {name} must be {POSITIVE.words}, or a tuple of such for clip, and not {bound!r}")
