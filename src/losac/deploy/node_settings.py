"""A node's own settings, such as the path of its data: a TOML file that ``up`` reads and never writes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from losac.deploy.commands import toml_value, write_toml

RESERVED = ("partition-id", "state-dir")
"""What losac decides."""


def own_settings(path: Path) -> dict[str, Any]:
    """Return a node's own settings; none where the file is missing."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for name, value in found.items():
        _check(name, value, path)
    return found


def change(path: Path, given: Mapping[str, Any], remove: Iterable[str]) -> dict[str, Any]:
    """Change a node's own settings; return all of them."""
    known = own_settings(path)
    for name in remove:
        if name not in known:
            raise ValueError(f"{path} has no setting {name!r}; it has {', '.join(sorted(known)) or 'none'}")
    for name, value in given.items():
        _check(name, value, path)
    after = {name: value for name, value in known.items() if name not in set(remove)} | dict(given)
    write_toml(path, after)
    return after


def _check(name: str, value: Any, path: Path) -> None:
    if name in RESERVED:
        raise ValueError(f"{path}: {name} follows from the node's place and cannot be set")
    try:
        toml_value(value)
    except ValueError as error:
        raise ValueError(f"{path}: {name}: {error}") from None
