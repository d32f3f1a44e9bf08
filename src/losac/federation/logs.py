"""What server and clients write to the log: every line has its time, level, round and client, as text or as JSON.

Flower's processes configure only Flower's own logger, and Python then shows warnings alone, bare. :func:`show` gives
losac's logger a handler where nobody else has done so.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

LOG = logging.getLogger("losac")
FORMS = ("text", "json")
FIELDS = ("round", "client")
_ABOUT: ContextVar[Mapping[str, Any]] = ContextVar("losac.federation.logs", default=MappingProxyType({}))
"""What the present work is about; a line's own ``extra`` wins."""


@contextlib.contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Say which round or client the lines within are about."""
    token = _ABOUT.set({**_ABOUT.get(), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line is about: its round and its client, where they are known."""
    known = {**_ABOUT.get()} | {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
    return {name: known[name] for name in FIELDS if known.get(name) is not None}


def time_of(record: logging.LogRecord) -> str:
    """Return when a line was written, in UTC.

    >>> time_of(logging.makeLogRecord({"created": 0.25}))
    '1970-01-01T00:00:00.250Z'
    """
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """Lines for people.

    >>> line = {"created": 0.0, "levelname": "INFO", "msg": "hello", "round": 3, "client": "client-1"}
    >>> TextLines().format(logging.makeLogRecord(line))
    '1970-01-01T00:00:00.000Z INFO    round=3 client="client-1" hello'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a line, and the traceback of an error below it."""
        told = "".join(f"{name}={json.dumps(value)} " for name, value in fields_of(record).items())
        line = f"{time_of(record)} {record.levelname:<7} {told}{record.getMessage()}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JsonLines(logging.Formatter):
    """One JSON object per line, for programs.

    >>> JsonLines().format(logging.makeLogRecord({"created": 0.0, "levelname": "INFO", "msg": "hello", "round": 3}))
    '{"time": "1970-01-01T00:00:00.000Z", "level": "INFO", "round": 3, "message": "hello"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a line; the traceback of an error is its field ``error``."""
        told = {"time": time_of(record), "level": record.levelname, **fields_of(record), "message": record.getMessage()}
        if record.exc_info is not None:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class _Lines(logging.StreamHandler[TextIO]):
    """The handler of :func:`show`. Flower replaces the standard error stream, so it is looked up for every line."""

    def __init__(self, form: str) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(JsonLines() if form == "json" else TextLines())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self.stream = sys.stderr
        super().emit(record)


def show(form: str = "text") -> None:
    """Show losac's lines from INFO on in a process of Flower's; a program with its own handlers keeps those."""
    LOG.setLevel(logging.INFO)
    for handler in LOG.handlers:
        if isinstance(handler, _Lines):
            LOG.removeHandler(handler)
    if not LOG.hasHandlers():
        LOG.addHandler(_Lines(form))
