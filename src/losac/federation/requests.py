"""What an operator asks of a running server, or of the next that runs: small files next to its checkpoint.

The server alone changes its book. It takes the requests before a round, each once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from losac._checks import nearest, one_of
from losac._files import make_folder, write_whole
from losac.federation import membership
from losac.federation.book import Book
from losac.federation.checkpoint import members
from losac.federation.setting import Setting

LOG = logging.getLogger("losac")
FOLDER = "requests"
CHECK = "check"
"""The file that asks for a comparison; it has no content."""

ACTIONS: Mapping[str, Callable[[Setting, Book, str], Book]] = {
    "free": membership.dismiss,
    "rebind": lambda setting, book, name: membership.unbind(book, name),
}
"""``free``: a client leaves for good with all it contributed; ``rebind``: it may come with another key."""


def ask(out: Path, action: str, name: str) -> Path:
    """Leave a request for the server that writes its results to a folder; return the request's file."""
    if action not in ACTIONS:
        raise ValueError(f"action={action!r} must be {one_of(action, ACTIONS)}")
    if name not in (known := members(_checkpointed(out))):
        hint = nearest(name, known) or f"; it has {', '.join(known) or 'none'}"
        raise ValueError(f"{out} has no client {name!r} in its last round{hint}")
    path = _folder(out) / f"{time.time_ns()}.json"
    write_whole(path, json.dumps({"action": action, "name": name}) + "\n", private=True)
    return path


def ask_check(out: Path) -> Path:
    """Ask the server to compare its sums with what the clients hold, after its present round."""
    path = _folder(out) / CHECK
    write_whole(path, "", private=True)
    return path


def take_check(out: Path) -> bool:
    """Return whether that was asked since the last time."""
    path = out / FOLDER / CHECK
    asked = path.exists()
    path.unlink(missing_ok=True)
    return asked


def _checkpointed(out: Path) -> Path:
    if not (out / "checkpoint").is_file():
        raise ValueError(f"{out} holds no checkpoint of a server; give the folder of a run's results")
    return out


def _folder(out: Path) -> Path:
    folder = _checkpointed(out) / FOLDER
    make_folder(folder, private=True)
    return folder


def carry_out(out: Path, setting: Setting, book: Book, save: Callable[[Book], None]) -> Book:
    """Return the book after all requests; each is removed once that is on the disk."""
    for path in sorted((out / FOLDER).glob("*.json")):
        try:
            request = json.loads(path.read_text(encoding="utf-8"))
            action, name = request["action"], request["name"]
            if name not in book.members:
                raise ValueError(f"there is no client {name!r}")
            book = ACTIONS[action](setting, book, name)
        except (ValueError, KeyError, TypeError) as error:
            LOG.error("the request %s is left out: %s", path, error)
        else:
            LOG.warning("as requested: %s client %s", action, name)
            save(book)
        path.unlink(missing_ok=True)
    return book
