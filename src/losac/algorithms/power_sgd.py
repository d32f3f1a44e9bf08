"""PowerSGD: the matrices of an upload as products of two thin ones.

Reference: T. Vogels, S. P. Karimireddy, M. Jaggi, *PowerSGD: practical low-rank gradient compression for distributed
optimization*, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from losac._settings import choice, count
from losac.algorithms.compression import map_with_keys
from losac.algorithms.packing import Bits, pack_values, unpack_values
from losac.algorithms.transform import Transform
from losac.trees import Array, Tree, add, sub, zeros


@partial(jax.tree_util.register_dataclass, data_fields=["factors"], meta_fields=["shape", "dtype", "bits"])
@dataclass(frozen=True)
class Factored:
    """An array as the product of two thin matrices, or whole as a single one; each column is packed by itself."""

    factors: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: str
    bits: Bits | None

    def array(self) -> Array:
        """Return the array."""
        first, *second = (_unpacked(factor, self.bits, self.dtype) for factor in self.factors)
        return (_product(first, second[0].T) if second else first).reshape(self.shape)


class PowerSgd(Transform):
    r"""PowerSGD: each matrix A of an upload as the product of two thin ones, found by power iteration.

    .. math:: P \leftarrow \mathrm{orth}(AQ), \qquad Q \leftarrow A^\top P, \qquad \text{send } P, Q, \qquad
       A \approx PQ^\top

    An array of more than two axes is a matrix of its first axis by all others. A vector travels whole, and so does a
    matrix that is smaller than its factors. Gradients of few rows have a low rank: those of LoSAC-lean's clients often
    need one column (``benchmarks/lean_rank.py``).

    The paper adds up P and Q over the workers of a cluster, and keeps Q for the next step. Here each client sends its
    own, since few clients come twice in a row, and Q starts at random in every round.

    Error feedback works as for :class:`losac.algorithms.compression.TopK`: methods that record what was sent need
    ``error_feedback=False``.

    Args:
      rank: the columns of P and Q.
      power_steps: how often P and Q are improved.
      error_feedback: whether the client keeps what was left out, and so sends it later.
      bits: 16 or 8 for each number, as for ``top_k``; Q then makes up for the rounding of P.
    """

    rank: int = count(default=1)
    power_steps: int = count(default=2, kw_only=True)
    error_feedback: bool = choice(default=True, choices=(True, False), kw_only=True)
    bits: Bits | None = choice(default=None, choices=(None, 8, 16), kw_only=True)

    @property
    def feeds_back(self) -> bool:
        """Whether what was left out is sent later."""
        return self.error_feedback

    def init(self, upload: Tree) -> Tree:
        """Start with nothing left out."""
        return zeros(upload) if self.error_feedback else ()

    def encode(self, key: Any, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Factor the upload plus all that was left out before."""
        due = add(upload, state) if self.error_feedback else upload
        payload = map_with_keys(self._factored, key, due)
        return payload, sub(due, self.decode(payload)) if self.error_feedback else state

    def decode(self, payload: Tree) -> Tree:
        """Return the products."""
        return jax.tree.map(lambda p: p.array() if _is_factored(p) else p, payload, is_leaf=_is_factored)

    def _factored(self, key: Any, array: Array) -> Factored:
        rows = array.shape[0] if array.ndim > 1 else array.size
        columns, dtype = array.size // max(rows, 1), str(array.dtype)
        if array.ndim < 2 or self.rank * (rows + columns) >= array.size:
            return Factored((_packed(array.reshape(-1, 1), self.bits),), array.shape, dtype, self.bits)
        matrix = array.reshape(rows, columns)
        right = jax.random.normal(key, (columns, self.rank), array.dtype)
        for _ in range(self.power_steps):
            left = _orthonormal(_product(matrix, right))
            right = _orthonormal(_product(matrix.T, left))
        packed = _packed(left, self.bits)
        sent = _unpacked(packed, self.bits, dtype)
        right = jnp.linalg.solve(_product(sent.T, sent), _product(sent.T, matrix)).T
        return Factored((packed, _packed(right, self.bits)), array.shape, dtype, self.bits)


def _is_factored(payload: Any) -> bool:
    return isinstance(payload, Factored)


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _orthonormal(matrix: Array) -> Array:
    return jnp.linalg.qr(matrix)[0]


def _packed(factor: Array, bits: Bits | None) -> Any:
    """Return the columns of a factor as they travel, each in a unit of its own."""
    return jax.vmap(partial(pack_values, bits=bits))(factor.T)


def _unpacked(packed: Any, bits: Bits | None, dtype: str) -> Array:
    return jax.vmap(partial(unpack_values, bits=bits, dtype=dtype))(packed).T
