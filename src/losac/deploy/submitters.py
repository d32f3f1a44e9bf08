"""Who may submit runs and see the log: names with tokens. The server keeps only digests of the tokens.

The SuperLink reads the file at every call, thus a removed line counts at once.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from losac._files import editing, make_folder, write_whole

OWNER = "owner"
"""The submitter whose token is kept in the federation's own folder."""
CREDENTIALS = "credentials.yaml"
"""The file where ``flwr`` keeps its tokens."""
_STORED = "flower.account-auth.%s."
"""How Flower's own credentials begin, for an address."""


def submitters(path: Path) -> dict[str, str]:
    """Return the digest of each submitter's token by name; none where the file is missing."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in found.items()}
    except (ValueError, AttributeError):
        raise ValueError(f"{path} is damaged; remove it, and admit the submitters again") from None


def admit(path: Path, name: str, hand_over: Callable[[str], object] = lambda token: None) -> str:
    """Let somebody submit; return the token, which is kept nowhere. A token that the name had before is void.

    ``hand_over`` is called with the token first: where it fails, nothing changes.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", name):
        raise ValueError(f"{name!r} is not the name of a submitter: use up to 64 letters, digits and . _ @ -")
    token = secrets.token_urlsafe(32)
    with _changed(path) as known:
        hand_over(token)
        known[name] = _digest(token)
    return token


def revoke(path: Path, name: str) -> None:
    """Let somebody no longer submit."""
    with _changed(path) as known:
        if name not in known:
            raise ValueError(f"{path} has no submitter {name!r}; it has {', '.join(sorted(known)) or 'none'}")
        del known[name]


def who(path: Path, token: str) -> str | None:
    """Return the name of whoever has a token."""
    digest = _digest(token)
    return next((name for name, known in submitters(path).items() if hmac.compare_digest(known, digest)), None)


def write_credentials(home: Path, address: str, token: str) -> Path:
    """Put a token where ``flwr`` looks for it, in a folder that becomes its FLWR_HOME; other tokens stay."""
    check_address(address)
    path, key = home / CREDENTIALS, _STORED % address
    values = {"authn-type": "oidc", "oidc-access-token": token, "oidc-refresh-token": "none"}
    stored = {f"{key}{name}": base64.b64encode(value.encode()).decode() for name, value in values.items()}
    if home.is_file():
        raise ValueError(f"{home} is a file; give a folder")
    make_folder(home, private=True)
    with editing(path):
        write_whole(path, json.dumps(_credentials(path) | stored, indent=2) + "\n", private=True)  # all JSON is YAML
    return path


def check_address(address: str) -> None:
    """Refuse what is not HOST:PORT.

    >>> check_address("server")
    Traceback (most recent call last):
    ...
    ValueError: 'server' is not an address; write HOST:PORT, such as server.example:8001 or [::1]:8001
    """
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})", address)
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError(f"{address!r} is not an address; write HOST:PORT, such as server.example:8001 or [::1]:8001")


def _credentials(path: Path) -> dict[str, Any]:
    """Return the credentials that a file holds already."""
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None
    except (yaml.YAMLError, UnicodeDecodeError):
        found = ""
    if not isinstance(found, dict | None):
        raise ValueError(f"{path} is not a file of flwr's credentials; move it elsewhere, or give another folder")
    return found or {}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@contextlib.contextmanager
def _changed(path: Path) -> Iterator[dict[str, str]]:
    """Yield the digests by name, and write what becomes of them; nobody else changes them meanwhile."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file")
    make_folder(path.parent, private=True)
    with editing(path):
        known = submitters(path)
        yield known
        write_whole(path, json.dumps(known, indent=2) + "\n", private=True)
