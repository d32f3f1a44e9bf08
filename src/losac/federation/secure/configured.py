"""Secure aggregation as a run's configuration asks for it, for both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from losac.algorithms.contract import Algorithm
from losac.algorithms.fixed_point import FixedPoint
from losac.federation import configuration
from losac.federation.secure.rules import SecureRules

SWITCH = "secure-aggregation"
LIMIT, OTHER_LIMIT, BITS = "secure-range", "secure-other-range", "secure-bits"
THRESHOLD, NEIGHBOURS = "secure-threshold", "secure-neighbours"


def is_on(config: Mapping[str, Any]) -> bool:
    """Whether a configuration asks for secure aggregation; refuse its details where it does not."""
    if configuration.read_value(SWITCH, config.get(SWITCH, "")):
        return True
    for name in (LIMIT, OTHER_LIMIT, BITS, THRESHOLD, NEIGHBOURS):
        if configuration.read_value(name, config.get(name, "")) != configuration.CONFIG[name][1]:
            raise ValueError(f"{name}={config[name]!r} is of secure aggregation, which is off: set {SWITCH} to true")
    return False


def configured(algorithm: Algorithm, config: Mapping[str, Any]) -> Algorithm:
    """Return an algorithm whose uploads are whole numbers of a step if a configuration asks for it."""
    if not is_on(config):
        return algorithm
    limit, other, bits = (configuration.read_value(name, config.get(name, "")) for name in (LIMIT, OTHER_LIMIT, BITS))
    if limit is None:
        raise ValueError(
            f'{SWITCH} needs {LIMIT}: the largest entry of an upload, or one for each of its parts, such as "0.1, 10"'
        )
    return algorithm.replace(uploads=(*algorithm.uploads, FixedPoint(limit=limit, bits=bits, other_limit=other)))


def settle(values: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Turn the keys of secure aggregation into the rules of a federation, and set the defaults that go with it."""
    secure = is_on(config)
    rules = SecureRules(threshold=values[THRESHOLD] or 0, neighbours=values[NEIGHBOURS] or 0)
    for name in (SWITCH, LIMIT, OTHER_LIMIT, BITS, THRESHOLD, NEIGHBOURS):
        del values[name]
    values["secure"] = rules if secure else None
    if secure:
        for name, default in (("recovery", "reset"), ("largest", None)):
            if not config.get(name):
                values[name] = default
