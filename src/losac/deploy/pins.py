"""Which apps a machine may run: a file with one line for each, the SHA-256 of the app as Flower packs it, and a name.

Nodes and the server each have a file of their own. What is not in it does not run there, no matter who submitted it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import threading
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from losac._files import editing, make_folder, write_whole

_LINE = re.compile(r"([0-9a-f]{64})(?:\s+(.*))?")

_SECRET = ("credentials.yaml", "submitters.json", "federation.json")
_PACKING = threading.Lock()
"""Which warnings are shown is a setting of the process, not of a thread."""


def app_digest(app: Path) -> str:
    """Return the digest of an app in a folder; equal folders have equal digests on every machine."""
    return content_digest(packed(app))


def packed(app: Path) -> bytes:
    """Return an app as Flower packs it; refuse one that would take a token or the folder of a federation along."""
    from flwr.cli.build import build_fab_from_disk

    with _PACKING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Flower's own calls
        content: bytes = build_fab_from_disk(app)
    with zipfile.ZipFile(io.BytesIO(content)) as files:
        secret = [name for name in files.namelist() if Path(name).name in _SECRET]
    if secret:
        raise ValueError(
            f"{app} would send {secret[0]} to every node: give it fab-include in [tool.flwr.app], as the apps of "
            "losac deploy init have it, or move the file elsewhere"
        )
    return content


def content_digest(content: bytes) -> str:
    """Return the digest of a packed app."""
    return hashlib.sha256(content).hexdigest()


def pinned(path: Path) -> dict[str, str]:
    """Return the apps that may run, names by digest; none where the file is missing."""
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{path}, line {number}: {text[:80]!r} is not the digest of an app; add one with: losac deploy pin"
            )
        found[match[1]] = match[2] or ""
    return found


def pin(path: Path, app: Path) -> str:
    """Let an app run; return its digest."""
    digest = app_digest(app)
    with _changed(path) as lines:
        if digest not in pinned(path):
            name = re.sub(r"[^ -~]|#", "_", app.resolve().name)
            lines.append(f"{digest}  {name}")
    return digest


def unpin(path: Path, digest: str) -> str:
    """Let an app no longer run; any unique beginning of its digest will do. Return the whole digest."""
    with _changed(path) as lines:
        known = pinned(path)
        found = [each for each in known if each.startswith(digest)] if digest else []
        if len(found) != 1:
            listed = ", ".join(each[:12] for each in known) or "none"
            raise ValueError(f"{len(found)} apps in {path} have a digest that begins with {digest!r}; it has {listed}")
        lines[:] = [line for line in lines if not line.strip().startswith(found[0])]
    return found[0]


@contextlib.contextmanager
def _changed(path: Path) -> Iterator[list[str]]:
    """Yield the lines of a file, comments too, and write what becomes of them; nobody else changes them meanwhile."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file")
    make_folder(path.parent, private=True)
    with editing(path):
        before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        lines = list(before)
        yield lines
        if lines != before or not path.exists():
            write_whole(path, "".join(f"{line}\n" for line in lines), private=True)
