"""The board over HTTP: pages, the runs as JSON, and events when they change. It only reads, and serves no files."""

from __future__ import annotations

import json
import math
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from losac.board import pages
from losac.board.shelf import Shelf

_LOOK_SECONDS = 0.5
_SIGN_OF_LIFE = 15.0
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class BoardServer(ThreadingHTTPServer):
    """Serves the runs of a folder.

    Args:
      folder: the one with the runs.
      host: the address to listen at; 127.0.0.1 shuts out other machines.
      port: the port to listen at; 0 takes any free one.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: str | Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.shelf = Shelf(folder)
        self.closing = threading.Event()
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The board's address for a browser on this machine."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/"

    def shutdown(self) -> None:
        """End the streams of events, then stop serving."""
        self.closing.set()
        super().shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    server_version = "losac"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request."""
        if not self._is_meant():
            return self._refuse(HTTPStatus.FORBIDDEN, "this board answers to the name localhost only")
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        answer = {
            "/": self._board,
            "/run": self._run,
            "/report": self._report,
            "/api/runs": self._rows,
            "/api/curves": self._curves,
            "/api/run": self._details,
            "/events": self._events,
        }.get(address.path)
        if answer is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is no such page; the board is at /")
        try:
            return answer(query)
        except (BrokenPipeError, ConnectionError):
            raise
        except Exception as error:
            return self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def do_HEAD(self) -> None:
        """Answer without the content."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal quiet."""

    def _is_meant(self) -> bool:
        """Whether the request names this machine: a foreign page that points its own name here can read nothing."""
        if not _is_loopback(str(self.server.server_address[0])):
            return True
        try:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:
            return False
        return _is_loopback(name)

    def _board(self, query: dict[str, list[str]]) -> None:
        self._send(pages.board_page(self.server.shelf.folder), "text/html")

    def _run(self, query: dict[str, list[str]]) -> None:
        book = self.server.shelf.books().get(_one(query))
        if book is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is no such run; the board is at /")
        return self._send(pages.run_page(_one(query), str(book.row["name"])), "text/html")

    def _report(self, query: dict[str, list[str]]) -> None:
        from losac.report.page import report_page

        runs = self.server.shelf.chosen(query.get("run", []))
        if not runs:
            return self._refuse(HTTPStatus.NOT_FOUND, "none of these runs can be read; choose others on the board")
        try:
            return self._send(report_page(runs), "text/html")
        except ValueError as error:
            return self._refuse(HTTPStatus.CONFLICT, str(error))

    def _rows(self, query: dict[str, list[str]]) -> None:
        self._send_json(self.server.shelf.rows())

    def _curves(self, query: dict[str, list[str]]) -> None:
        self._send_json(self.server.shelf.curves(query.get("run", []), apart="apart" in query))

    def _details(self, query: dict[str, list[str]]) -> None:
        found = self.server.shelf.details(_one(query))
        if found is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is no such run")
        return self._send_json(found)

    def _events(self, query: dict[str, list[str]]) -> None:
        """Send the state of the shelf whenever it changes, until the browser leaves or the board closes."""
        self._head(HTTPStatus.OK, "text/event-stream", None)
        last, quiet_since = "", time.monotonic()
        while not self.server.closing.is_set() and self.command == "GET":
            state = self.server.shelf.state()
            if state != last or time.monotonic() - quiet_since > _SIGN_OF_LIFE:
                self.wfile.write(f"data: {state}\n\n".encode() if state != last else b": still here\n\n")
                self.wfile.flush()
                last, quiet_since = state, time.monotonic()
            self.server.closing.wait(_LOOK_SECONDS)

    def _send_json(self, value: Any) -> None:
        self._send(json.dumps(_finite(value), default=str), "application/json")

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self._send(f"{message}\n", "text/plain", status)

    def _send(self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        content = text.encode("utf-8", errors="replace")
        self._head(status, kind, len(content))
        if self.command == "GET":
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header(*(("Connection", "close") if length is None else ("Content-Length", str(length))))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _finite(value: Any) -> Any:
    """Return a value with words for the numbers that JSON does not know."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _one(query: dict[str, list[str]]) -> str:
    return query.get("run", [""])[0]
