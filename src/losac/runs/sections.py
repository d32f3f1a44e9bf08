"""Configurations by sections: as TOML, and how two of them differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Sections = Mapping[str, Mapping[str, Any]]


def to_toml(sections: Sections) -> str:
    """Return the sections as TOML, without values of None, which TOML cannot express.

    >>> print(to_toml({"simulation": {"rounds": 20, "target": None}}))
    [simulation]
    rounds = 20
    <BLANKLINE>
    """
    import tomli_w

    return tomli_w.dumps(_plain(sections))


def difference(before: Sections, now: Sections, free: Collection[tuple[str, str]]) -> tuple[str, Any, Any] | None:
    """Return the first field that differs, with both values; those in ``free`` may.

    >>> difference({"simulation": {"seed": 0}}, {"simulation": {"seed": 1}}, free=set())
    ('simulation.seed', 0, 1)
    """
    old, new = _plain(before), _plain(now)
    for section in dict.fromkeys([*old, *new]):
        mine, theirs = old.get(section, {}), new.get(section, {})
        for name in dict.fromkeys([*mine, *theirs]):
            if (section, name) not in free and mine.get(name) != theirs.get(name):
                return f"{section}.{name}", mine.get(name), theirs.get(name)
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if getattr(value, "ndim", None) == 0:
        return value.item()
    return value if isinstance(value, str | bool | int | float) else getattr(value, "__name__", str(value))
