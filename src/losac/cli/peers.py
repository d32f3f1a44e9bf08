"""``losac deploy identity`` and ``losac deploy peers``: whom a client trusts, for secure aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from losac.cli.output import Answer
from losac.experiment.fields import Option

IDENTITY_EPILOG = "Example: losac deploy identity state/0"
PEERS_EPILOG = """Examples:

losac deploy peers peers.json client-0=1f0e… client-1=9a31… client-2=77b2…

losac deploy peers federation"""


def identity(
    state: Annotated[Path, typer.Argument(help="The node's state-dir, where the private key stays.")],
) -> Answer:
    """Print a node's public key for secure aggregation; make the key, on the node, at the first call."""
    from losac.federation.secure.identity import make_identity

    key = make_identity(state)
    return Answer({"key": key}, f"{key}\nThe operator puts it into the list of peers: losac deploy peers", brief=[key])


def peers(
    file: Annotated[
        Path, typer.Argument(help="File for the list, a copy for every node's state-dir; or a federation's folder.")
    ],
    keys: Annotated[list[str] | None, typer.Argument(help="Names and public keys: NAME=KEY.", metavar="[KEYS]")] = None,
    minimum: Annotated[int, Option("Federation", "The smallest sum that a client takes part in.", min=3)] = 3,
) -> Answer:
    """Write the list of all clients' public keys, for secure aggregation."""
    from losac.deploy.folder import FederationFolder
    from losac.federation.secure.identity import make_identity, write_peers
    from losac.federation.secure.rules import PEERS

    folder = FederationFolder(file)
    settings = folder.read() if file.is_dir() else None
    if settings is not None and not keys:
        states = [folder.state(number) for number in range(settings.nodes)]
        known = {f"client-{number}": make_identity(state) for number, state in enumerate(states)}
        files = [state / PEERS for state in states]
    else:
        known, files = dict(_name_and_key(text) for text in keys or ()), [file]
        if len(known) < minimum:
            raise ValueError(f"{len(known)} keys are given, and the smallest sum is of {minimum}: give more NAME=KEY")
    for path in files:
        write_peers(path, known, minimum)
    text = f"{', '.join(map(str, files))}: {len(known)} clients, sums of at least {minimum}"
    return Answer({"files": [str(path) for path in files], "clients": list(known)}, text, brief=files)


def _name_and_key(text: str) -> tuple[str, str]:
    name, _, key = text.rpartition("=")
    if not name or len(key) != 64 or set(key) - set("0123456789abcdef"):
        raise ValueError(f"{text!r} must be NAME=KEY, with the key as losac deploy identity prints it")
    return name, key
