"""The answer that a hostile input gets: the error in one line, and whether it is losac's own."""

from __future__ import annotations

import contextlib
import linecache
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import losac

SECONDS = 20
"""No input may take longer; almost all are refused in milliseconds."""
HOME = str(Path(losac.__file__).parent)


class Hang(BaseException):
    """The time is up."""


class Answer(NamedTuple):
    """What came of an input: ``ours`` where losac itself refused it, in one line; ``text`` says what came."""

    ours: bool
    text: str


@contextlib.contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Raise Hang where the block takes too long."""

    def stop(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer(function: Callable[[], Any]) -> Answer:
    """Call a function that must be refused by ValueError or TypeError of losac; return what came of it."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function()
    except Hang:
        return Answer(False, f"HANG: no answer after {SECONDS} seconds")
    except Exception as error:
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        kind = "" if isinstance(error, ValueError | TypeError | KeyError | OSError) else type(error).__name__
        where = "" if isinstance(error, OSError) and error.filename else _place(error)
        if kind or where or "\n" in text or not text:
            return Answer(False, f"RAW {type(error).__name__} {where}: {text}")
        return Answer(True, text)
    return Answer(False, f"SILENCE: it was taken, and gave a {type(value).__name__}")


def _place(error: BaseException) -> str:
    """Return where an error comes from, empty where a ``raise`` statement of losac made it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    if last.filename.startswith(HOME) and line.startswith("raise"):
        return ""
    return f"at {last.filename}:{last.lineno}"
