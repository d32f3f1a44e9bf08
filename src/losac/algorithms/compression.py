"""Compressed uploads: quantisation and sparsification, for every algorithm that uploads differences.

References: D. Alistarh et al., *QSGD: communication-efficient SGD via gradient quantization and encoding*, NeurIPS
2017; S. U. Stich, J.-B. Cordonnier, M. Jaggi, *Sparsified SGD with memory*, NeurIPS 2018 (top-k and random-k with
error feedback).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from losac import _random
from losac._checks import PROBABILITY, check_number
from losac._settings import choice, count
from losac.algorithms.packing import Bits, pack_places, pack_values, unpack_places, unpack_values
from losac.algorithms.transform import Transform
from losac.trees import Array, Tree, add, map_trees, sub, zeros


class Quantized(NamedTuple):
    """One encoded array: a signed level for every entry, and the norm of the whole."""

    level: Array
    norm: Array


class Meaning(NamedTuple):
    """What both sides know of some arrays that travel as one sparse vector: how to read it, and how to cut it up."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    kept: int
    bits: Bits | None

    @property
    def size(self) -> int:
        """The number of entries of all arrays."""
        return sum(map(math.prod, self.shapes))

    def arrays(self, values: Array, places: Array) -> Tree:
        """Return the arrays, zero but at the places that travelled."""
        flat = jnp.zeros(self.size, self.dtype).at[places].set(unpack_values(values, self.bits, self.dtype))
        ends = itertools.accumulate(map(math.prod, self.shapes))
        parts = (flat[end - math.prod(shape) : end].reshape(shape) for end, shape in zip(ends, self.shapes))
        return jax.tree.unflatten(self.structure, list(parts))


@partial(jax.tree_util.register_dataclass, data_fields=["values", "places"], meta_fields=["meaning"])
@dataclass(frozen=True)
class Sparse:
    """Some entries of arrays, and their places as bytes."""

    values: Array
    places: Array
    meaning: Meaning

    def arrays(self) -> Tree:
        """Return the arrays that it stands for."""
        return self.meaning.arrays(self.values, unpack_places(self.places, self.meaning.size, self.meaning.kept))


@partial(jax.tree_util.register_dataclass, data_fields=["values", "key"], meta_fields=["meaning"])
@dataclass(frozen=True)
class Drawn:
    """Some entries of arrays, and the random key that both sides draw their positions with."""

    values: Array
    key: Array
    meaning: Meaning

    def arrays(self) -> Tree:
        """Return the arrays that it stands for."""
        key = jax.random.wrap_key_data(jnp.asarray(self.key))
        return self.meaning.arrays(self.values, drawn_places(key, self.meaning.size, self.meaning.kept))


def drawn_places(key: Array, size: int, kept: int) -> Array:
    """Return places drawn uniformly without replacement."""
    return jax.random.permutation(key, size)[:kept].astype(jnp.int32)


class Qsgd(Transform):
    r"""QSGD: unbiased stochastic quantisation to s levels of the norm of each array.

    .. math:: Q(v)_k = \|v\|\,\mathrm{sign}(v_k)\,\frac{\xi_k}{s}, \qquad
       \xi_k = \lfloor s|v_k|/\|v\|\rfloor + \mathrm{Bernoulli}\big(\text{the remainder}\big)

    An entry is sent as one byte if s ≤ 127 and as two up to s = 32767 (without further entropy coding), with a norm
    for each array.

    The variance of Q(v) is up to :math:`\omega\|v\|^2` with :math:`\omega = \min(d/s^2, \sqrt d/s)`, more than all of v
    in a large array on few levels. Methods that record what was sent then blow up. ``shrink=True`` sends
    :math:`\alpha Q(v)` with the α for which it is nearest to v, and no farther than 0 is: about the 1/(1 + ω) by which
    DIANA shortens the steps of its memory. It costs nothing, since α is a factor of the norm that travels.

    Args:
      levels: s.
      shrink: whether to send αQ(v), which is biased and nearer to v.
    """

    levels: int = count()
    shrink: bool = choice(default=False, choices=(True, False), kw_only=True)

    def validate(self) -> None:
        """A level must fit into 16 bits."""
        if self.levels > 32767:
            raise ValueError(f"qsgd: levels={self.levels} must be at most 32767, what 16 bits hold")

    def encode(self, key: Array, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Round every entry to one of the two nearest levels at random."""
        integer = jnp.int8 if self.levels <= 127 else jnp.int16

        def quantise(key: Array, v: Array) -> Quantized:
            norm = jnp.sqrt((v * v).sum())
            exact = self.levels * (abs(v) / (norm + (norm == 0)))
            below = jnp.floor(exact)
            level = jnp.sign(v) * (below + (jax.random.uniform(key, v.shape, v.dtype) < exact - below))
            if self.shrink:
                square = (level * level).sum()
                norm = self.levels * (level * v).sum() / (square + (square == 0))
            return Quantized(level.astype(integer), norm)

        return map_with_keys(quantise, key, upload), state

    def decode(self, payload: Tree) -> Tree:
        """Return the levels times norm/s."""
        return jax.tree.map(
            lambda p: p.level.astype(p.norm.dtype) * (p.norm / self.levels),
            payload,
            is_leaf=lambda p: isinstance(p, Quantized),
        )


class _Sparsifier(Transform):
    """Some entries of arrays; what is left out may be sent later."""

    fraction: float = choice()
    error_feedback: bool = choice(default=True, choices=(True, False), kw_only=True)
    over: Literal["array", "model"] = choice(default="array", choices=("array", "model"), kw_only=True)
    bits: Bits | None = choice(default=None, choices=(None, 8, 16), kw_only=True)

    def validate(self) -> None:
        """The share of entries must lie in (0, 1]."""
        check_number(f"{self.label}: fraction", self.fraction, PROBABILITY)

    @property
    def feeds_back(self) -> bool:
        """Whether what was left out is sent later."""
        return self.error_feedback

    def pick(self, key: Array, flat: Array, meaning: Meaning) -> Sparse | Drawn:
        """Return the entries that travel."""
        raise NotImplementedError

    def init(self, upload: Tree) -> Tree:
        """Start with nothing left out."""
        return zeros(upload) if self.error_feedback else ()

    def encode(self, key: Array, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Pick entries of the upload plus all that was left out before."""
        due = add(upload, state) if self.error_feedback else upload

        def pick(key: Array, tree: Tree) -> Sparse | Drawn:
            leaves, structure = jax.tree.flatten(tree)
            flat = jnp.concatenate([leaf.reshape(-1) for leaf in leaves])
            kept = min(flat.size, max(1, round(self.fraction * flat.size)))
            shapes = tuple(leaf.shape for leaf in leaves)
            return self.pick(key, flat, Meaning(structure, shapes, str(flat.dtype), kept, self.bits))

        payload = pick(key, due) if self.over == "model" else map_with_keys(pick, key, due)
        return payload, sub(due, self.decode(payload)) if self.error_feedback else state

    def decode(self, payload: Tree) -> Tree:
        """Return arrays that are zero but at the places that travelled."""
        return jax.tree.map(lambda p: p.arrays(), payload, is_leaf=lambda p: isinstance(p, Sparse | Drawn))


class TopK(_Sparsifier):
    r"""Top-k sparsification: the entries that are largest in modulus, with error feedback.

    .. math:: \text{send } C(u + e), \qquad e \leftarrow u + e - C(u + e)

    FedAvg and similar methods need the feedback. Methods that record what was really sent (SCAFFOLD, LoSAC, FedADMM,
    VRL-SGD) already send later what they left out: with both it is sent twice, and SCAFFOLD diverges, so give these
    ``error_feedback=False``.

    The places travel in increasing order, by Elias–Fano coding (about 2 + log₂(1/fraction) bits each) or as a bitmap,
    whichever is smaller.

    Args:
      fraction: the share of the entries that travel, at least one.
      error_feedback: whether the client keeps e, and so sends later what it left out.
      over: whether the entries are picked in each ``"array"`` separately or in the ``"model"`` as a whole.
      bits: 16 (as bfloat16) or 8 (as multiples of the 127th part of the largest) for each value; by default those of
        the model. The rounding is left out like the entries, and so sent later too.
    """

    def pick(self, key: Array, flat: Array, meaning: Meaning) -> Sparse:
        """Pick the largest entries."""
        places = jnp.sort(jax.lax.top_k(abs(flat), meaning.kept)[1]).astype(jnp.int32)
        return Sparse(pack_values(flat[places], self.bits), pack_places(places, meaning.size), meaning)


class RandomK(_Sparsifier):
    r"""Random-k sparsification: entries drawn uniformly without replacement, with error feedback.

    .. math:: \text{send } C(u + e), \qquad e \leftarrow u + e - C(u + e)

    The entries are sent as they are, not scaled up to be unbiased: error feedback makes up for the rest. For methods
    that record what was sent, see :class:`TopK`. Places do not travel: the random key from which both sides draw them
    does, in 8 bytes.

    Args:
      fraction: the share of the entries that travel, at least one.
      error_feedback: whether the client keeps e, and so sends later what it left out.
      over: whether the entries are picked in each ``"array"`` separately or in the ``"model"`` as a whole.
      bits: 16 or 8 for each value, as for :class:`TopK`.
      same_places: whether all clients of a round send the same places, so that their values can be summed without
        being read, as secure aggregation does.
    """

    same_places: bool = choice(default=False, choices=(True, False), kw_only=True)

    @property
    def common(self) -> bool:
        """Whether the places are drawn for all clients at once."""
        return self.same_places

    def pick(self, key: Array, flat: Array, meaning: Meaning) -> Drawn:
        """Pick entries at random."""
        places = drawn_places(key, meaning.size, meaning.kept)
        return Drawn(pack_values(flat[places], self.bits), jax.random.key_data(key), meaning)


def map_with_keys(function: Callable[..., Tree], key: Array, tree: Tree) -> Tree:
    """Map a function of (a random key of its own, array) over arrays."""
    leaves, structure = jax.tree.flatten(tree)
    keys = [_random.leaf_key(key, leaf_index) for leaf_index in range(len(leaves))]
    return map_trees(function, jax.tree.unflatten(structure, keys), tree)
