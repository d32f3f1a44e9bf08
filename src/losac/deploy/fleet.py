"""What of the SuperLink clients can reach, and how much they can send: checked before a request is read.

Flower reads a whole request and then asks who sends it; so a stranger could fill the server's memory.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

PATHS = ("/v1/fleet/", "/health")
LARGEST = 2**26
"""Bytes of one request: Flower sends arrays in pieces of 5 MiB."""


def for_clients_only(app: Any, largest: int = LARGEST) -> Any:
    """Return an ASGI app that serves registered nodes, with what they need and in requests of a sensible size."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = str(scope["path"])
        told = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not path.startswith(PATHS):
            await _refuse(send, 404)
        elif path.startswith(PATHS[0]) and not await asyncio.to_thread(is_registered, app, told):
            await _refuse(send, 401)
        elif not _length(told) <= largest:
            await _refuse(send, 413)
        else:
            await app(scope, _bounded(receive, largest), send)

    return served


def is_registered(app: Any, headers: Mapping[str, str]) -> bool:
    """Whether the headers of a request are signed with a key that the SuperLink knows, by Flower's own checks."""
    from fastapi import HTTPException
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from flwr.superlink.routers.fleet.node_auth import authenticate_node

    try:
        key = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        claimed = SimpleNamespace(protobuf_request=ActivateNodeRequest(public_key=key))
        request: Any = SimpleNamespace(headers=headers, app=app, state=claimed)
        authenticate_node(request)
    except (KeyError, binascii.Error, HTTPException):
        return False
    return app.state.linkstate_factory.state().get_node_id_by_public_key(key) is not None


def _length(headers: Mapping[str, str]) -> float:
    """Return the length that a request says it has: 0 where it says none, infinity where that is no number."""
    told = headers.get("content-length", "0")
    return int(told) if told.isascii() and told.isdigit() else float("inf")


def _bounded(receive: Any, largest: int) -> Any:
    """Return what receives a request, and hangs up where this grows beyond the largest size."""
    read = 0

    async def received() -> Any:
        nonlocal read
        event = await receive()
        read += len(event.get("body", b""))
        return {"type": "http.disconnect"} if read > largest else event

    return received


async def _refuse(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b""})
