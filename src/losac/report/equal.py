"""Which runs are equal except for their seed, and how the others differ: the labels of rows and lines."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from losac.report.entries import Entry
from losac.report.style import shown

Facts = Mapping[str, Any]
DEALT = ("data_seed", "data_digest", "test_digest")
"""The conditions that follow from the seed if it deals the data as well."""
_HIDDEN = "_digest"
"""Conditions with this ending appear only where nothing else differs."""


def settings_of(entry: Entry) -> Facts:
    """Return the settings in a form that is equal if they are."""
    return {name: _comparable(value) for name, value in entry.history.settings.items()}


def conditions_of(entry: Entry) -> Facts:
    """Return the conditions in a form that is equal if they are."""
    metrics = {"metrics_digest": ", ".join(sorted(entry.history.metrics))}
    return {name: _comparable(value) for name, value in (entry.conditions | metrics).items()}


def equal_runs(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Put runs together that differ in nothing but the seed, in order of first appearance.

    A run that diverged before its planned rounds were noted joins those that it equals otherwise. Where every run's
    data was dealt by the run's own seed, the deal is no difference.
    """
    groups: dict[Any, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(_key(entry, ()), []).append(entry)
    merged: dict[Any, list[Entry]] = {}
    for key, members in groups.items():
        merged.setdefault(_key(members[0], DEALT) if _dealt(members) else key, []).extend(members)
    return _with_open_ends(list(merged.values()))


def labels_of(groups: Sequence[Sequence[Entry]]) -> list[str]:
    """Name each group by its algorithm and by what distinguishes it from the others.

    A setting or condition is named if it differs in another group of the same algorithm. It is also named if it
    differs in those of other algorithms, unless it is that of more than half of the groups or the algorithm's default.
    A setting that no other algorithm has is named if it is not the default.
    """
    first = [members[0] for members in groups]
    several = len({entry.history.task for entry in first}) > 1
    labels = []
    for entry, members in zip(first, groups):
        rivals = [other for other in first if other is not entry and other.history.task == entry.history.task]
        task = f" on {entry.history.task}" if several else ""
        told = [*_telling_settings(entry, rivals), *_telling_conditions(entry, rivals, _dealt(members))]
        labels.append(", ".join([f"{entry.history.algorithm}{task}", *told]))
    return _unique(labels)


def differences(entries: Sequence[Entry]) -> list[str]:
    """Return the names of what differs among runs, except the seed."""
    facts: list[dict[str, Any]] = [
        {"algorithm": one.history.algorithm, "task": one.history.task, **conditions_of(one), **settings_of(one)}
        for one in entries
    ]
    names = list(dict.fromkeys(name for one in facts for name in one))
    if len(entries) == 1 or _dealt(entries):
        names = [name for name in names if name not in DEALT]
    differ = [name for name in names if any(one.get(name) != facts[0].get(name) for one in facts)]
    return [name for name in differ if not name.endswith(_HIDDEN)] or differ


def _key(entry: Entry, without: Collection[str]) -> Any:
    conditions = {name: value for name, value in conditions_of(entry).items() if name not in without}
    facts = frozenset(settings_of(entry).items()), frozenset(conditions.items())
    return entry.history.task, entry.history.algorithm, facts


def _dealt(members: Sequence[Entry]) -> bool:
    """Whether every run's data was dealt by the run's own seed."""
    return all(entry.conditions.get("data_seed") == entry.history.seed for entry in members)


def _with_open_ends(groups: list[list[Entry]]) -> list[list[Entry]]:
    """Join runs without known planned rounds to the one group that they equal otherwise."""
    closed = [members for members in groups if "rounds" in members[0].conditions]
    alone = []
    for members in groups:
        if "rounds" not in members[0].conditions:
            hosts = [group for group in closed if _key(group[0], ("rounds",)) == _key(members[0], ("rounds",))]
            if len(hosts) == 1:
                hosts[0].extend(members)
            else:
                alone.append(members)
    return [members for members in groups if any(members is kept for kept in (*closed, *alone))]


def _telling_settings(entry: Entry, rivals: Sequence[Entry]) -> list[str]:
    mine, defaults = settings_of(entry), _defaults(entry.history.algorithm)
    same = [settings_of(other) for other in rivals if other.history.algorithm == entry.history.algorithm]
    rest = [settings_of(other) for other in rivals if other.history.algorithm != entry.history.algorithm]
    told = []
    for name, value in mine.items():
        theirs = [other[name] for other in rest if name in other]
        usual = name in defaults and _comparable(defaults[name]) == value
        common = _most([value, *theirs, *(other[name] for other in same if name in other)]) == value
        among_same = any(other.get(name) != value for other in same)
        among_rest = not usual and not common and any(v != value for v in theirs)
        own = bool(rest) and not theirs and name in defaults and not usual
        if among_same or among_rest or own:
            told.append(_told(entry.history.settings, name, [value, *theirs, *(o.get(name) for o in same)]))
    return told


def _telling_conditions(entry: Entry, rivals: Sequence[Entry], dealt: bool) -> list[str]:
    mine, theirs = conditions_of(entry), [conditions_of(other) for other in rivals]

    def differs(name: str, other: Entry, facts: Facts) -> bool:
        """Whether a condition differs; one that was not recorded counts as equal."""
        recorded = name in facts or (bool(other.history.conditions) and name != "rounds")
        return recorded and facts.get(name) != mine[name]

    def telling(name: str) -> bool:
        others = [o for o, facts in zip(rivals, theirs) if differs(name, o, facts)]
        same = any(other.history.algorithm == entry.history.algorithm for other in others)
        return same or (bool(others) and _most([mine[name], *(facts.get(name) for facts in theirs)]) != mine[name])

    differ = [name for name in mine if telling(name)]
    if dealt and all(_dealt([other]) for other in rivals):
        differ = [name for name in differ if name not in DEALT]
    plain = [name for name in differ if not name.endswith(_HIDDEN)]
    apart = all(
        other.history.algorithm != entry.history.algorithm
        or settings_of(other) != settings_of(entry)
        or any(facts.get(name) != mine[name] for name in plain)
        for other, facts in zip(rivals, theirs)
    )
    values = {**mine, **entry.conditions}
    return [_told(values, name, [mine[name], *(o.get(name) for o in theirs)]) for name in (plain if apart else differ)]


def _most(values: Sequence[Any]) -> Any:
    """Return the value of more than half; None if there is none."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def _told(values: Facts, name: str, comparable: Sequence[Any]) -> str:
    """Return a value with just enough digits to distinguish it from the others."""
    apart = len({shown(value) for value in comparable}) == len(set(comparable))
    return f"{name}={shown(values[name]) if apart else comparable[0]}"


def _defaults(algorithm: str) -> Facts:
    from losac.algorithms import ALGORITHMS

    if algorithm not in ALGORITHMS:
        return {}
    fields = dataclasses.fields(ALGORITHMS[algorithm])
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


def _unique(labels: Sequence[str]) -> list[str]:
    """Number labels that are equal, from the second on."""
    seen: dict[str, int] = {}
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
    count = dict.fromkeys(seen, 0)
    unique = []
    for label in labels:
        count[label] += 1
        unique.append(label if count[label] == 1 else f"{label} ({count[label]})")
    return unique


def _comparable(value: Any) -> Any:
    """Return a value that compares and hashes equal however it was stored."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
