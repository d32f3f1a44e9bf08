"""Who may submit runs and see the log: names with tokens. The server keeps only digests of the tokens.

The SuperLink reads the file at every call, thus a removed line counts at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from pathlib import Path

from losac._files import make_folder, write_whole

OWNER = "owner"
"""The submitter whose token is kept in the federation's own folder."""
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


def admit(path: Path, name: str) -> str:
    """Let somebody submit; return the token, which is kept nowhere. A token that the name had before is void."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", name):
        raise ValueError(f"{name!r} is not the name of a submitter: use up to 64 letters, digits and . _ @ -")
    token = secrets.token_urlsafe(32)
    _write(path, submitters(path) | {name: _digest(token)})
    return token


def revoke(path: Path, name: str) -> None:
    """Let somebody no longer submit."""
    known = submitters(path)
    if name not in known:
        raise ValueError(f"{path} has no submitter {name!r}; it has {', '.join(sorted(known)) or 'none'}")
    _write(path, {other: digest for other, digest in known.items() if other != name})


def who(path: Path, token: str) -> str | None:
    """Return the name of whoever has a token."""
    digest = _digest(token)
    return next((name for name, known in submitters(path).items() if hmac.compare_digest(known, digest)), None)


def write_credentials(home: Path, address: str, token: str) -> Path:
    """Put a token where ``flwr`` looks for it, in a folder that becomes its FLWR_HOME."""
    path, key = home / "credentials.yaml", _STORED % address
    values = {"authn-type": "oidc", "oidc-access-token": token, "oidc-refresh-token": "none"}
    stored = {f"{key}{name}": base64.b64encode(value.encode()).decode() for name, value in values.items()}
    make_folder(home, private=True)
    write_whole(path, json.dumps(stored, indent=2) + "\n", private=True)  # all JSON is YAML
    return path


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _write(path: Path, known: dict[str, str]) -> None:
    make_folder(path.parent, private=True)
    write_whole(path, json.dumps(known, indent=2) + "\n", private=True)
