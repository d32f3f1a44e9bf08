"""``python -m losac.deploy.supernode``: Flower's SuperNode, which runs only the apps that its own machine has pinned.

``--apps`` names the file of their digests. All other options are Flower's. The app's process gets its work by a secret
that is made at every start: nobody else on the machine can take its place.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import secrets
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from losac._files import make_folder, write_whole
from losac.deploy.commands import program
from losac.deploy.pins import content_digest, pinned

LOG = logging.getLogger("flwr")

_NOT_VERIFIED: dict[str, str] = {}
_VERIFIED = {"valid_license": "pinned"}


def only_pinned(node: Any, path: Path) -> None:
    """Let Flower's SuperNode refuse apps that are not pinned, by the check that it has for signed ones."""
    pull, verify = node._pull_and_store_message, node._verify_fab

    def pull_checked(**given: Any) -> Any:
        get_fab, trusted = given["get_fab"], given["trusted_entities"]

        def checked(fab_hash: str, run_id: int) -> Any:
            fab = get_fab(fab_hash, run_id)
            digest = content_digest(fab.content)
            if digest not in pinned(path):
                LOG.error("app %s is not pinned in %s: it does not run here", digest, path)
                return dataclasses.replace(fab, verifications=_NOT_VERIFIED)
            return fab if trusted else dataclasses.replace(fab, verifications=_VERIFIED)

        node._verify_fab = verify if trusted else lambda fab, entities: True
        return pull(**given | {"get_fab": checked, "trusted_entities": trusted or {"pinned": ""}})

    node._pull_and_store_message = pull_checked


def main() -> None:
    """Start the SuperNode and the program that starts its apps."""
    parser = argparse.ArgumentParser(prog="losac.deploy.supernode", description=__doc__, allow_abbrev=False)
    parser.add_argument("--apps", required=True, type=Path, help="file of the apps that may run")
    parser.add_argument("--host", default="127.0.0.1", help="address of the SuperNode's own server")
    parser.add_argument("--port", default="9094", help="port of the SuperNode's own server")
    own, flowers = parser.parse_known_args()
    os.umask(0o077)
    pinned(own.apps)  # a damaged file is an error now and not at the first message
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"))
    secret = home / f"executor-{own.port}.secret"
    make_folder(home, private=True)
    write_whole(secret, secrets.token_bytes(32), private=True)
    shared = ["--superexec-auth-secret-file", str(secret)]
    sys.argv = ["flower-supernode", "--host", own.host, "--port", own.port, *flowers, "--isolation", "process", *shared]
    only_pinned(import_module("flwr.supernode.start_client_internal"), own.apps)
    flower: Any = import_module("flwr.supernode.cli.flower_supernode")
    address = f"[{own.host}]:{own.port}" if ":" in own.host else f"{own.host}:{own.port}"
    executor = [program("flower-superexec"), "--insecure", "--runtime-api-address", address]
    subprocess.Popen([*executor, "--parent-pid", str(os.getpid()), *shared])
    flower.flower_supernode()


if __name__ == "__main__":
    main()
