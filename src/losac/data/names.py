"""Look up names that a user typed, or suggest the nearest one."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from losac._checks import check_text

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the closest known name, or an empty string.

    >>> nearest("minst", ["mnist", "har"])
    " Did you mean 'mnist'?"
    """
    close = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def look_up(name: str, known: Mapping[str, T], what: str) -> T:
    """Return `known[name]`, or raise a ValueError that lists the known names and the nearest one."""
    check_text(what, name)
    try:
        return known[name]
    except KeyError:
        hint = _read_it(name) if what == "data set" and _is_path(name) else nearest(name, known)
        raise ValueError(f"unknown {what} {name!r}; known are {', '.join(known)}.{hint}") from None


def _is_path(name: str) -> bool:
    """Whether a name looks like the name of a file."""
    return "/" in name or name.lower().endswith((".npz", ".csv", ".parquet"))


def _read_it(name: str) -> str:
    return f" {name} is a file: read it with losac.data.read({name!r}, …)"
