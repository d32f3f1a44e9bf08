"""Compressed uploads: quantisation and sparsification, for every algorithm that uploads differences.

References: D. Alistarh et al., *QSGD: communication-efficient SGD via gradient quantization and encoding*, NeurIPS
2017; S. U. Stich, J.-B. Cordonnier, M. Jaggi, *Sparsified SGD with memory*, NeurIPS 2018 (top-k and random-k with
error feedback).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac._settings import choice, count
from losac.algorithms.transform import Transform
from losac.trees import Tree, add, map_trees, sub, zeros


class Quantized(NamedTuple):
    """One array as it travels: a signed level for every entry, and the norm of the whole."""

    level: Any
    norm: Any


@partial(jax.tree_util.register_dataclass, data_fields=["values", "indices"], meta_fields=["shape"])
@dataclass(frozen=True)
class Sparse:
    """One array as it travels: some of its entries and their places; both sides know the shape."""

    values: Any
    indices: Any
    shape: tuple[int, ...]


class Qsgd(Transform):
    r"""QSGD: unbiased stochastic quantisation to s levels of the norm of each array.

    .. math:: Q(v)_k = \|v\|\,\mathrm{sign}(v_k)\,\frac{\xi_k}{s}, \qquad
       \xi_k = \lfloor s|v_k|/\|v\|\rfloor + \mathrm{Bernoulli}\big(\text{the remainder}\big)

    An entry travels as one byte where s ≤ 127 and as two up to s = 32767 (without further entropy coding), and a norm
    with each array.

    Args:
      levels: s.
    """

    levels: int = count()

    def validate(self) -> None:
        """A level must fit into 16 bits."""
        if self.levels > 32767:
            raise ValueError(f"qsgd: levels={self.levels} must be at most 32767, what 16 bits hold")

    def encode(self, key: Any, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Round every entry to one of the two nearest levels at random."""
        integer = jnp.int8 if self.levels <= 127 else jnp.int16

        def quantise(key: Any, v: Any) -> Quantized:
            norm = jnp.sqrt((v * v).sum())
            exact = self.levels * (abs(v) / (norm + (norm == 0)))
            below = jnp.floor(exact)
            level = below + (jax.random.uniform(key, v.shape, v.dtype) < exact - below)
            return Quantized((jnp.sign(v) * level).astype(integer), norm)

        return _map_with_keys(quantise, key, upload), state

    def decode(self, payload: Tree) -> Tree:
        """Return the levels times norm/s."""
        return jax.tree.map(
            lambda p: p.level.astype(p.norm.dtype) * (p.norm / self.levels),
            payload,
            is_leaf=lambda p: isinstance(p, Quantized),
        )


class _Sparsifier(Transform):
    """Some entries of each array, as values and int32 places; what is left out may be sent later."""

    fraction: float = choice()
    error_feedback: bool = choice(default=True, choices=(True, False), kw_only=True)

    def validate(self) -> None:
        """The share of entries must lie in (0, 1]."""
        if not 0 < self.fraction <= 1:
            raise ValueError(f"{self.label}: fraction={self.fraction!r} must be a number in (0, 1]")

    @property
    def feeds_back(self) -> bool:
        """Whether what was left out is sent later."""
        return self.error_feedback

    def places(self, key: Any, flat: Any, kept: int) -> Any:
        """Return the places of the ``kept`` entries that travel."""
        raise NotImplementedError

    def init(self, upload: Tree) -> Tree:
        """Start with nothing left out."""
        return zeros(upload) if self.error_feedback else ()

    def encode(self, key: Any, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Pick entries of the upload, to which all that was left out before is added."""
        due = add(upload, state) if self.error_feedback else upload

        def pick(key: Any, v: Any) -> Sparse:
            flat = v.reshape(-1)
            indices = self.places(key, flat, max(1, round(self.fraction * flat.size))).astype(jnp.int32)
            return Sparse(flat[indices], indices, v.shape)

        payload = _map_with_keys(pick, key, due)
        return payload, sub(due, self.decode(payload)) if self.error_feedback else state

    def decode(self, payload: Tree) -> Tree:
        """Return arrays that are zero but at the places that travelled."""

        def unfold(p: Sparse) -> Any:
            size = 1
            for length in p.shape:
                size *= length
            return jnp.zeros(size, p.values.dtype).at[p.indices].set(p.values).reshape(p.shape)

        return jax.tree.map(unfold, payload, is_leaf=lambda p: isinstance(p, Sparse))


class TopK(_Sparsifier):
    r"""Top-k sparsification: the entries of each array that are largest in modulus, with error feedback.

    .. math:: \text{send } C(u + e), \qquad e \leftarrow u + e - C(u + e)

    FedAvg and its kin need the feedback. Methods whose clients record what was really sent (SCAFFOLD, LoSAC, FedADMM,
    VRL-SGD) already send later what they left out: with both it is sent twice, and SCAFFOLD diverges, so give these
    ``error_feedback=False``.

    Args:
      fraction: the share of each array's entries that travel, at least one.
      error_feedback: whether the client keeps e, and so sends later what it left out.
    """

    def places(self, key: Any, flat: Any, kept: int) -> Any:
        """Return the places of the largest entries."""
        return jax.lax.top_k(abs(flat), kept)[1]


class RandomK(_Sparsifier):
    r"""Random-k sparsification: entries of each array drawn uniformly without replacement, with error feedback.

    .. math:: \text{send } C(u + e), \qquad e \leftarrow u + e - C(u + e)

    The entries are sent as they are, not scaled up to be unbiased: error feedback makes up for the rest. It is not for
    methods that record what was sent; see :class:`TopK`.

    Args:
      fraction: the share of each array's entries that travel, at least one.
      error_feedback: whether the client keeps e, and so sends later what it left out.
    """

    def places(self, key: Any, flat: Any, kept: int) -> Any:
        """Return places drawn at random."""
        return jax.random.permutation(key, flat.size)[:kept]


def _map_with_keys(function: Any, key: Any, tree: Tree) -> Tree:
    leaves, structure = jax.tree.flatten(tree)
    keys = [jax.random.fold_in(key, place) for place in range(len(leaves))]
    return map_trees(function, jax.tree.unflatten(structure, keys), tree)
