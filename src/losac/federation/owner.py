"""The owner of a vault: one client of one run, identified by its name and its node's key."""

from __future__ import annotations

import json
from pathlib import Path

from losac._files import make_folder, write_whole
from losac.federation.errors import RefusedError

OWNER = "owner"
"""The file in a vault that names its owner."""


def claim(vault: Path, run: str, name: str, key: str) -> None:
    """Claim a vault for one client of one run, by its name and its node's key; refuse a vault that has another owner.

    A name without a key, from a federation without keys, may get one later.
    """
    path, mine = vault / OWNER, {"run": run, "name": name, "key": key}
    held = _held(path)
    if held == mine:
        return
    if held and (held.get("run"), held.get("name")) != (run, name):
        raise RefusedError(
            f"{vault} belongs to client {held.get('name')!r} of run {held.get('run')!r}, and this is {name!r} of "
            f"{run!r}: give every client a state-dir of its own"
        )
    if held.get("key") not in (None, "", key):
        raise RefusedError(
            f"{vault} belongs to another key of {name!r}: if the node's key was renewed, say so with losac deploy key "
            "FILE --renew --state STATE-DIR"
        )
    make_folder(vault, private=True)
    write_whole(path, json.dumps(mine) + "\n", private=True)


def release(state: Path) -> int:
    """Let a node with another key take over what a state folder holds; return how many vaults there were."""
    owners = vaults(state)
    for path, held in owners.items():
        write_whole(path, json.dumps({**held, "key": ""}) + "\n", private=True)
    return len(owners)


def vaults(state: Path) -> dict[Path, dict[str, str]]:
    """Return the files in a state folder that name owners, with their content."""
    paths = [path for path in (state / "runs").glob(f"*/{OWNER}") if path.is_file()]
    return {path: _held(path) for path in paths}


def _held(path: Path) -> dict[str, str]:
    """Return what a file says of a vault's owner; nothing where there is none."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        held = None
    if not isinstance(held, dict):
        raise RefusedError(f"{path} is damaged: remove the folder, and the client starts over")
    return held
