"""How sparse arrays travel: the places of their entries in as few bits as they need, and values in 8 or 16.

The sizes follow from the numbers of entries alone: programs with fixed shapes can send what is counted.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from losac.trees import Array

Bits = Literal[8, 16]


class Levels(NamedTuple):
    """Values as multiples of a unit, in one byte each."""

    level: Array
    unit: Array


def pack_values(values: Array, bits: Bits | None) -> Any:
    """Return values as they travel.

    With 16 bits each is rounded to a bfloat16 (by at most 0.4%), with 8 to one of 127 multiples of the 127th part of
    the largest. No value moves by more than its own size, and the largest hardly moves: something is always sent.
    """
    if bits is None:
        return values
    if bits == 16:
        return jax.lax.bitcast_convert_type(values.astype(jnp.bfloat16), jnp.uint16)
    unit = jnp.abs(values).max() / 127
    return Levels(jnp.round(values / (unit + (unit == 0))).astype(jnp.int8), unit)


def unpack_values(packed: Any, bits: Bits | None, dtype: Any) -> Array:
    """Return the values that travelled."""
    if bits is None:
        return packed
    if bits == 16:
        return jax.lax.bitcast_convert_type(jnp.asarray(packed), jnp.bfloat16).astype(dtype)
    return packed.level.astype(dtype) * packed.unit


def low_bits(size: int, kept: int) -> int | None:
    """Return how many low bits of each place Elias–Fano coding writes out; None where a bitmap is smaller.

    >>> low_bits(1000, 50), low_bits(1000, 500)
    (4, None)
    """
    if not kept:
        return None
    low = (size // kept).bit_length() - 1
    return low if kept * (low + 1) + ((size - 1) >> low) + 1 < size else None


def packed_bytes(size: int, kept: int) -> int:
    """Return how many bytes the places of so many entries take.

    >>> packed_bytes(1000, 50), packed_bytes(1000, 500), packed_bytes(1000, 10)
    (40, 125, 11)
    """
    low = low_bits(size, kept)
    bits = size if low is None else kept * (low + 1) + ((size - 1) >> low) + 1
    return -(-bits // 8)


def pack_places(places: Array, size: int) -> Array:
    """Return increasing places as bytes: as a bitmap, or by Elias–Fano coding where that is smaller.

    The latter writes the low bits of each place as they are. For the high bits h of the k-th place it sets bit h + k of
    a bitmap, whose length follows from the numbers of entries.
    """
    kept, low = places.shape[0], low_bits(size, places.shape[0])
    if low is None:
        return jnp.packbits(jnp.zeros(size, jnp.uint8).at[places].set(1))
    length = kept + ((size - 1) >> low) + 1
    high = jnp.zeros(length, jnp.uint8).at[(places >> low) + jnp.arange(kept)].set(1)
    rest = (places[:, None] >> jnp.arange(low)) & 1
    return jnp.packbits(jnp.concatenate([high, rest.reshape(-1).astype(jnp.uint8)]))


def unpack_places(code: Array, size: int, kept: int) -> Array:
    """Return the places that some bytes stand for."""
    low, bits = low_bits(size, kept), jnp.unpackbits(jnp.asarray(code))
    if low is None:
        return jnp.nonzero(bits[:size], size=kept)[0]
    length = kept + ((size - 1) >> low) + 1
    high = jnp.nonzero(bits[:length], size=kept)[0] - jnp.arange(kept)
    rest = bits[length : length + kept * low].reshape(kept, low).astype(high.dtype)
    return (high << low) + (rest << jnp.arange(low)).sum(1)
