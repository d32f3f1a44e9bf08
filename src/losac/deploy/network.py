"""Ports and health: free ports, ports in use, and whether a server answers."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import urllib.request
from pathlib import Path

from losac.deploy.errors import DeployError


def free_ports(number: int, host: str) -> list[int]:
    """Return different ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(_family(host))) for _ in range(number)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]


def is_free(port: int, host: str) -> bool:
    """Whether a port can be listened on."""
    with socket.socket(_family(host)) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen()
        except OSError:
            return False
    return True


def require_free(port: int, host: str) -> None:
    """Refuse a port that is taken."""
    if not 0 < port < 65536:
        raise ValueError(f"port {port} does not exist; choose one between 1024 and 65535, or leave it out")
    if not is_free(port, host):
        raise DeployError(f"port {port} of {host} is in use; choose another, or leave it out to have a free one")


def is_healthy(port: int, host: str, authority: Path | None = None) -> bool:
    """Whether the server at a port answers that it is well; with an authority's certificate, over TLS."""
    scheme = "http" if authority is None else "https"
    context = None if authority is None else ssl.create_default_context(cafile=authority)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(f"{scheme}://{_bracketed(host)}:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def address(port: int, host: str) -> str:
    """Return HOST:PORT.

    >>> address(8000, "127.0.0.1"), address(8000, "::1")
    ('127.0.0.1:8000', '[::1]:8000')
    """
    return f"{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
