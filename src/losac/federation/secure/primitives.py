"""The cryptography of secure aggregation, all of it from vetted libraries: seeds, masks, shares and sealed notes.

A *seed* has 16 bytes, which is what the shares of Shamir's scheme hold. Keys are derived from seeds and from shared
secrets by HKDF, each with words that say what it is for, and each key is used once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from losac._extras import missing
from losac.federation.errors import RefusedError

try:
    from Crypto.Protocol.SecretSharing import Shamir
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise missing("pycryptodome and cryptography", "secure aggregation", "flower") from error

__all__ = [
    "Ed25519PrivateKey",
    "Ed25519PublicKey",
    "InvalidSignature",
    "Stream",
    "X25519PrivateKey",
    "apply_masks",
    "commitment",
    "derived",
    "fresh_seed",
    "join",
    "own_mask",
    "pair_mask",
    "private_key",
    "public_part",
    "seal",
    "shared_secret",
    "split",
    "unseal",
    "words",
]

SEED = 16
ONCE = bytes(12)
"""The nonce of a key that is used once."""


def fresh_seed() -> bytes:
    """Return a seed from the operating system."""
    return secrets.token_bytes(SEED)


def words(*parts: Any) -> bytes:
    """Return a text that no other parts have, to sign, to derive from or to authenticate."""
    return json.dumps(["losac secure aggregation 1", *parts]).encode()


def derived(secret: bytes, *purpose: Any) -> bytes:
    """Return a key of 32 bytes for one purpose."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=words(*purpose)).derive(secret)


def commitment(seed: bytes, session: str) -> bytes:
    """Return what shows later that a seed is the one of a session."""
    return hashlib.sha256(words("commitment", session) + seed).digest()


def private_key(seed: bytes, purpose: str, session: str) -> X25519PrivateKey:
    """Return the key pair of a seed."""
    return X25519PrivateKey.from_private_bytes(derived(seed, purpose, session))


def public_part(key: X25519PrivateKey) -> bytes:
    """Return the public key of a pair."""
    return key.public_key().public_bytes_raw()


def shared_secret(own: X25519PrivateKey, other: bytes) -> bytes:
    """Return what two pairs of keys share; refuse a point that leads to zero for every key."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise RefusedError("a public key is not a point that keys can be agreed on with") from None


def seal(own: X25519PrivateKey, other: bytes, note: bytes, *about: Any) -> bytes:
    """Encrypt a note for the owner of a public key; ``about`` names session, sender and receiver."""
    return ChaCha20Poly1305(derived(shared_secret(own, other), "note", *about)).encrypt(ONCE, note, words(*about))


def unseal(own: X25519PrivateKey, other: bytes, sealed: bytes, *about: Any) -> bytes:
    """Decrypt a note; refuse one that is not from the owner of that key, or not about this."""
    try:
        return ChaCha20Poly1305(derived(shared_secret(own, other), "note", *about)).decrypt(ONCE, sealed, words(*about))
    except InvalidTag:
        raise RefusedError("a sealed note was changed on its way") from None


class Stream:
    """The numbers modulo 2⁶⁴ of a key: the keystream of ChaCha20."""

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def take(self, size: int) -> np.ndarray:
        """Return the next numbers."""
        return np.frombuffer(self._stream.update(bytes(8 * size)), "<u8")


def apply_masks(arrays: Sequence[np.ndarray], keys: Sequence[tuple[bytes, bool]]) -> list[np.ndarray]:
    """Return arrays of uint64 with the stream of every key added, or taken away where that is False."""
    found = [np.array(array, np.uint64).reshape(-1) for array in arrays]
    for key, added in keys:
        stream = Stream(key)
        for array in found:
            mask = stream.take(array.size)
            if added:
                array += mask
            else:
                array -= mask
    return [array.reshape(np.shape(like)) for array, like in zip(found, arrays)]


def own_mask(seed: bytes, session: str) -> bytes:
    """Return the key of a client's own mask, which hides its upload should it only be late."""
    return derived(seed, "own mask", session)


def pair_mask(own: X25519PrivateKey, other: bytes, session: str, name: str, peer: str) -> tuple[bytes, bool]:
    """Return the key of the mask of two clients, and whether the one by this name adds it."""
    return derived(shared_secret(own, other), "pair mask", session, *sorted((name, peer))), name < peer


def split(seed: bytes, threshold: int, holders: Sequence[str]) -> dict[str, bytes]:
    """Return a share of a seed for each holder; so many of them tell it, and fewer tell nothing."""
    return {name: share for name, (_, share) in zip(holders, Shamir.split(threshold, len(holders), seed, False))}


def join(shares: Mapping[str, bytes], threshold: int, holders: Sequence[str]) -> bytes:
    """Return the seed of some shares."""
    if len(shares) < threshold:
        raise RefusedError(f"{len(shares)} shares came, and {threshold} tell the seed")
    chosen = [(holders.index(name) + 1, shares[name]) for name in sorted(shares)[:threshold]]
    return Shamir.combine(chosen, False)
