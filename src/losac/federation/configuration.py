"""What the configuration of a run may hold, and what each value must be: in pyproject.toml and for ``--set`` alike."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from losac._checks import (
    NONNEGATIVE,
    POSITIVE,
    Domain,
    check_choice,
    check_count,
    check_flag,
    check_number,
    is_number,
    nearest,
    shown,
)
from losac._seeds import check_seed
from losac.federation.book import DTYPES, Recovery
from losac.federation.bounds import ADAPTIVE
from losac.federation.logs import FORMS

Check = Callable[[str, Any], Any]


def _count(least: int) -> Check:
    return lambda name, value: check_count(name, value, least)


def _number(domain: Domain) -> Check:
    return lambda name, value: check_number(name, value, domain)


def _choice(choices: Iterable[str]) -> Check:
    return lambda name, value: check_choice(name, value, choices)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}={shown(value)} must be a text")
    return value


def _largest(name: str, value: Any) -> Any:
    if value in (ADAPTIVE, "none"):
        return None if value == "none" else value
    if not is_number(value) or not POSITIVE.contains(float(value)):
        raise ValueError(f"{name}={shown(value)} must be a positive number, {ADAPTIVE!r} or 'none'")
    return float(value)


def _range(name: str, value: Any) -> Any:
    """Return a positive number, or several in a text as a tuple."""
    try:
        found = tuple(float(part) for part in str(value).split(","))
    except ValueError:
        found = ()
    if isinstance(value, bool) or not found or not all(POSITIVE.contains(number) for number in found):
        raise ValueError(f"{name}={shown(value)} must be a positive number, or some with commas between them")
    return found if len(found) > 1 else found[0]


REQUIRED = ("rounds", "clients")
CONFIG: Mapping[str, tuple[Check, Any]] = {
    "rounds": (_count(1), None), "clients": (_count(1), None), "clients-per-round": (_count(1), None),
    "seed": (lambda name, value: check_seed(value, name), 0), "fewest": (_count(1), 0),
    "recovery": (_choice(get_args(Recovery)), "resync"), "largest": (_largest, ADAPTIVE),
    "dtype": (_choice(DTYPES), "float32"), "deadline": (_number(POSITIVE), 600.0), "out": (_text, None),
    "mean-rows": (_number(POSITIVE), None), "evaluate-every": (_count(1), 1), "evaluate-clients": (check_flag, False),
    "forget-after": (_count(1), None), "patience": (_number(NONNEGATIVE), 300.0), "attempts": (_count(1), 20),
    "node-keys": (check_flag, True), "log-format": (_choice(FORMS), "text"), "secure-aggregation": (check_flag, False),
    "secure-range": (_range, None), "secure-other-range": (_range, None), "secure-bits": (_count(1), 32),
    "secure-threshold": (_count(2), None), "secure-neighbours": (_count(4), None),
}  # fmt: skip
"""The check and the default of each key. The number 0 and an empty text stand for the default."""

LIKELY = 0.75
"""How alike a word must be to a key to be taken for a slip of it: an app's own keys may resemble ours a little."""


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every key; refuse what is missing, misspelt or no value for its key."""
    for name in config:
        meant = difflib.get_close_matches(name.replace("_", "-"), set(CONFIG) - set(config), n=1, cutoff=LIKELY)
        if name not in CONFIG and meant:
            raise ValueError(f"the run's configuration has {name!r}; did you mean {meant[0]!r}?")
    for name in REQUIRED:
        if name not in config:
            near = nearest(name, list(config))
            raise ValueError(f"the run's configuration has no {name!r}{near}; set it in [tool.flwr.app.config]")
    return {name: read_value(name, config[name]) if name in config else CONFIG[name][1] for name in CONFIG}


def read_value(name: str, value: Any) -> Any:
    """Return the value of one key, or its default for 0 and an empty text."""
    check, default = CONFIG[name]
    if name not in REQUIRED and (value == "" or (type(value) in (int, float) and value == 0)):
        return default
    return check(name, value)
