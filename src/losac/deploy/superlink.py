"""``python -m losac.deploy.superlink``: Flower's SuperLink, closed by default.

Flower 1.41 serves clients, submitters and executors on one address and lets whoever has the certificate submit. Here
clients alone are served at ``--fleet-address``; everything else stays on Flower's own ``--host`` and ``--port``, which
belong on this machine. Whoever submits needs a token of ``--submitters``, and only apps of ``--apps`` are taken.
All other options are Flower's.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from losac.deploy.fleet import for_clients_only
from losac.deploy.pins import content_digest, pinned
from losac.deploy.submitters import who


def with_tokens(path: Path) -> Any:
    """Return a plugin of Flower's that knows accounts by their tokens."""
    from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin

    class Submitters(NoOpControlAuthnPlugin):
        """All submitters share Flower's one account; what differs is whether they are let in."""

        def validate_tokens_in_metadata(self, metadata: Any) -> Any:
            token = next((value for _, value in metadata), "")
            if who(path, str(token)) is None:
                return False, None
            return super().validate_tokens_in_metadata(metadata)

        def refresh_tokens(self, metadata: Any) -> Any:
            return (), None

    return Submitters()


def pinned_only(start_run: Any, path: Path) -> Any:
    """Return Flower's function that begins a run, for pinned apps alone."""
    from flwr.supercore.error import ApiErrorCode, FlowerError

    def checked(request: Any, *arguments: Any, **options: Any) -> Any:
        digest = content_digest(request.fab.content)
        if request.app_spec or digest not in pinned(path):
            why = f"The app {digest[:12]} is not pinned at this server."
            raise FlowerError(ApiErrorCode.NO_PERMISSIONS, why, public_details=why)
        return start_run(request, *arguments, **options)

    return checked


def serving(address: str) -> Any:
    """Return what takes the place of ``uvicorn.run``: the same, and clients at an address of their own."""
    import uvicorn

    host, _, port = address.rpartition(":")

    def run(app: Any, **options: Any) -> None:
        own = {**options, "host": host.strip("[]"), "port": int(port)}
        own.pop("reload"), own.pop("workers")
        config = uvicorn.Config(for_clients_only(app), lifespan="off", **own)
        clients = uvicorn.Server(config)
        listening = config.bind_socket()  # ends the program where the port is taken
        threading.Thread(target=lambda: clients.run([listening]), daemon=True).start()
        uvicorn.run(app, **options)

    return run


def main() -> None:
    """Start the SuperLink."""
    parser = argparse.ArgumentParser(prog="losac.deploy.superlink", description=__doc__, allow_abbrev=False)
    parser.add_argument("--fleet-address", required=True, help="HOST:PORT at which clients are served")
    parser.add_argument("--submitters", required=True, type=Path, help="file of who may submit")
    parser.add_argument("--apps", required=True, type=Path, help="file of the apps that may run")
    own, flowers = parser.parse_known_args()
    os.umask(0o077)
    sys.argv = ["flower-superlink", *flowers]
    flower: Any = import_module("flwr.superlink.cli.flower_superlink")
    handlers: Any = import_module("flwr.superlink.servicer.control.control_handlers")
    flower.load_control_authn_plugin = lambda: with_tokens(own.submitters)
    flower.uvicorn = SimpleNamespace(run=serving(own.fleet_address))
    handlers.start_run = pinned_only(handlers.start_run, own.apps)
    flower.flower_superlink()


if __name__ == "__main__":
    main()
