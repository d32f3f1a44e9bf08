"""``losac board``: the runs of a folder in the browser, live."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from losac.cli.errors import say

if TYPE_CHECKING:
    from losac.board import BoardServer

EPILOG = """Examples:

losac board

losac board runs --port 9000 --no-open"""


def board(
    folder: Annotated[Path, typer.Argument(help="Folder that holds runs, at any depth.")] = Path("."),
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8080,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines read all runs, without a password.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Show the runs of a folder in the browser, with curves that grow while they run; Ctrl-C ends it."""
    with _listen(folder, host, port) as server:
        say(f"losac: the runs of {folder} are at {server.url} (Ctrl-C ends this)")
        if open_:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            server.closing.set()


def _listen(folder: Path, host: str, port: int) -> BoardServer:
    from losac.board import BoardServer

    try:
        return BoardServer(folder, host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} is in use; give another with --port, or --port 0 for any free one") from None
        if error.errno == errno.EACCES:
            raise ValueError(f"port {port} needs more rights; give one above 1023 with --port") from None
        raise ValueError(
            f"cannot listen at {host}: {error.strerror or error}; --host 127.0.0.1 is this machine"
        ) from None
