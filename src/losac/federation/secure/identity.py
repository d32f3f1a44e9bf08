"""Whom a client trusts: keys of its own and of its peers, in files that an operator distributes.

The server passes on what peers say, so a client must know their keys from elsewhere. ``identity`` holds the client's
own key; ``peers.json`` the public keys of all clients by name, and the smallest sum that this client takes part in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from losac._checks import check_count
from losac._files import make_folder, write_whole
from losac.federation.errors import RefusedError
from losac.federation.secure.primitives import Ed25519PrivateKey, Ed25519PublicKey, InvalidSignature
from losac.federation.secure.rules import PEERS

IDENTITY = "identity"
MINIMUM = 3
"""The smallest sum by default: of two, each learns the other's upload."""


@dataclass(frozen=True)
class Trust:
    """A client's name and key, the public keys of all clients, and the fewest clients of a sum."""

    name: str
    key: Ed25519PrivateKey
    peers: Mapping[str, bytes]
    minimum: int = MINIMUM

    def __post_init__(self) -> None:
        if self.peers.get(self.name) != public_key(self.key):
            raise RefusedError(f"the list of peers has another key for {self.name!r}, or none: ask who made the list")

    def sign(self, text: bytes) -> bytes:
        """Return this client's signature of a text."""
        return self.key.sign(text)

    def signed(self, name: str, signature: bytes, text: bytes) -> bool:
        """Whether a text is signed by a peer."""
        try:
            Ed25519PublicKey.from_public_bytes(self.peers[name]).verify(signature, text)
        except (KeyError, ValueError, InvalidSignature):
            return False
        return True


def public_key(key: Ed25519PrivateKey) -> bytes:
    """Return the public part of a key."""
    return key.public_key().public_bytes_raw()


def make_identity(folder: Path) -> str:
    """Return the public key of a state folder as text; make the key at the first call."""
    make_folder(folder, private=True)
    path = folder / IDENTITY
    if not path.exists():
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(Ed25519PrivateKey.generate().private_bytes_raw())
            file.flush()
            os.fsync(file.fileno())
    return public_key(_read_identity(path)).hex()


def write_peers(path: Path, keys: Mapping[str, str], minimum: int = MINIMUM) -> None:
    """Write the list of peers: public keys as text, by name. Every client of the federation gets the same."""
    check_count("minimum", minimum, 2)
    make_folder(path.parent, private=True)
    content = {"minimum": minimum, "peers": dict(sorted(keys.items()))}
    write_whole(path, json.dumps(content, indent=2) + "\n", private=True)


def read_trust(folder: Path, name: str) -> Trust:
    """Return whom a client trusts, from the files in its state folder."""
    path = folder / PEERS
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        peers = {str(peer): bytes.fromhex(key) for peer, key in content["peers"].items()}
        minimum = check_count("minimum", content["minimum"], 2)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedError(f"{path} is no list of peers: {error}") from None
    if not (folder / IDENTITY).exists():
        raise RefusedError(f"{folder} has a list of peers and no key: losac deploy identity {folder} makes it")
    return Trust(name, _read_identity(folder / IDENTITY), peers, minimum)


def _read_identity(path: Path) -> Ed25519PrivateKey:
    try:
        return Ed25519PrivateKey.from_private_bytes(path.read_bytes())
    except ValueError:
        raise RefusedError(f"{path} is no key") from None
