"""What secure aggregation adds to orders and replies, as bytes, and how each side reads what the other wrote.

Nothing in a note is used before it has the kinds and lengths that are due.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from losac._checks import shown
from losac.federation.errors import RefusedError
from losac.federation.secure.primitives import SEED, words

SIGNATURE, KEY, SEALED = 64, 32, 2 * SEED + 16
LONGEST = 10**8
"""Bytes of the longest note: the keys of all clients, where there are very many."""


class Advert(NamedTuple):
    """What a client says of its keys of one session: to encrypt, to mask, and the commitment to its own mask."""

    cipher: bytes
    mask: bytes
    commitment: bytes
    signature: bytes = b""

    def text(self, session: str, name: str) -> bytes:
        """Return what the signature is of."""
        return words("keys", session, name, self.cipher.hex(), self.mask.hex(), self.commitment.hex())


def survivors_text(session: str, names: Sequence[str]) -> bytes:
    """Return what a client signs of a set of survivors."""
    return words("survivors", session, sorted(names))


def write(**parts: Any) -> bytes:
    """Return a note."""
    return json.dumps(parts, default=bytes.hex, separators=(",", ":")).encode()


def read(note: bytes, *names: str) -> dict[str, Any]:
    """Return the parts of a note; refuse other parts than those due."""
    if len(note) > LONGEST:
        raise RefusedError(f"a note has {len(note)} bytes")
    try:
        parts = json.loads(note)
    except (ValueError, RecursionError):
        raise RefusedError("a note cannot be read") from None
    if not isinstance(parts, dict) or sorted(parts) != sorted(names):
        raise RefusedError(f"a note holds {shown(parts)} where {sorted(names)} are due")
    return parts


def as_bytes(value: Any, length: int) -> bytes:
    """Return bytes of a length."""
    if not isinstance(value, str) or len(value) != 2 * length:
        raise RefusedError(f"{shown(value)} is not {length} bytes")
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise RefusedError(f"{shown(value)} is not {length} bytes") from None


def as_bytes_by_name(value: Any, length: int, due: Sequence[str] | None = None) -> dict[str, bytes]:
    """Return bytes of a length by name; of exactly those names, if they are known."""
    if not isinstance(value, dict) or (due is not None and sorted(value) != sorted(due)):
        raise RefusedError(f"a note is about {shown(value)} where {shown(due)} are due")
    return {name: as_bytes(part, length) for name, part in value.items()}


def as_names(value: Any) -> list[str]:
    """Return names of clients: sorted, each once."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise RefusedError(f"{shown(value)} are no names")
    if value != sorted(set(value)):
        raise RefusedError("names are not in order, or not each once")
    return value


def as_advert(value: Any) -> Advert:
    """Return what a client says of its keys."""
    if not isinstance(value, list) or len(value) != 4:
        raise RefusedError(f"{shown(value)} are no keys")
    cipher, mask, commitment, signature = value
    return Advert(as_bytes(cipher, KEY), as_bytes(mask, KEY), as_bytes(commitment, KEY), as_bytes(signature, SIGNATURE))


def as_adverts(value: Any) -> dict[str, Advert]:
    """Return what clients say of their keys, by name."""
    if not isinstance(value, Mapping):
        raise RefusedError(f"{shown(value)} are no keys")
    return {name: as_advert(part) for name, part in value.items()}


def as_number(value: Any, least: int, most: int) -> int:
    """Return a whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise RefusedError(f"{shown(value)} must be a whole number from {least} to {most}")
    return value
