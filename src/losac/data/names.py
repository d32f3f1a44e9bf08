"""Names that a user typed: find the thing, or say which name was probably meant."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the closest known name, or an empty string.

    >>> nearest("minst", ["mnist", "har"])
    " Did you mean 'mnist'?"
    """
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def look_up(name: str, known: Mapping[str, T], what: str) -> T:
    """Return `known[name]`, or raise a ValueError that lists the known names and the nearest one."""
    try:
        return known[name]
    except KeyError:
        raise ValueError(f"unknown {what} {name!r}; known are {', '.join(known)}.{nearest(name, known)}") from None
