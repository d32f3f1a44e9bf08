"""Exit codes, and errors as one line instead of a traceback."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import NoReturn

import typer

BAD_INPUT, DIVERGED, INTERRUPTED = 2, 3, 130


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn a wrong value or file into one line on stderr and exit code 2, and warnings into lines too."""

    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        try:
            yield
        except (ValueError, OSError) as error:
            fail(str(error), BAD_INPUT)


def say(message: str) -> None:
    """Print a line on stderr."""
    typer.echo(message, err=True)


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong, in one line, and stop."""
    say(f"losac: {' '.join(message.split())}")
    raise typer.Exit(code)
