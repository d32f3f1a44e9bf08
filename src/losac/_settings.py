"""Frozen dataclasses that are pytrees: their numbers are leaves, everything else about them is static.

Algorithms, regularisers and upload transforms are such settings. Because a number is a leaf, a sweep can
vectorise over it and a new step size never recompiles; because the rest is static, it shapes the program.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform

import jax
import numpy as np

T = TypeVar("T")


class Domain(NamedTuple):
    """The values a setting may take, in words and as a test."""

    words: str
    contains: Callable[[float], bool]


REAL = Domain("a finite number", math.isfinite)
POSITIVE = Domain("a positive number", lambda v: math.isfinite(v) and v > 0)
NONNEGATIVE = Domain("a number that is not negative", lambda v: math.isfinite(v) and v >= 0)
FRACTION = Domain("a number in [0, 1]", lambda v: 0 <= v <= 1)
BELOW_ONE = Domain("a number in [0, 1)", lambda v: 0 <= v < 1)
PROBABILITY = Domain("a number in (0, 1]", lambda v: 0 < v <= 1)


def number(*, default: Any = dataclasses.MISSING, domain: Domain = REAL, kw_only: bool = False) -> Any:
    """Declare a field that is a leaf: a number, or a schedule (a function of the round, as in optax)."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"number": domain})


def choice(*, default: Any = dataclasses.MISSING, choices: tuple[Any, ...] | None = None, kw_only: bool = False) -> Any:
    """Declare a static field, with its allowed values where they can be listed."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"choices": choices})


def count(*, default: Any = dataclasses.MISSING, kw_only: bool = False) -> Any:
    """Declare a static field that holds a positive whole number or None."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"count": True})


def node(*, default: Any = dataclasses.MISSING, kw_only: bool = False) -> Any:
    """Declare a field that holds settings of its own (a pytree)."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"node": True})


def is_schedule(value: Any) -> bool:
    """Whether a number is given as a function of the round."""
    return callable(value)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(number, choice, count, node))
class Settings:
    """Base of all settings: subclasses become frozen dataclasses, pytrees, validated before any tracing.

    Defaults are given by keyword, since type checkers see them only so.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, lambda aux, c: _unflatten(cls, aux, c))

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            _check_field(self, field, getattr(self, field.name))
        self.validate()

    def validate(self) -> None:
        """Check what concerns several fields at once; called once, on concrete values."""

    @property
    def label(self) -> str:
        """The name users write: the class's, in snake case."""
        return snake_case(type(self).__name__)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some settings changed, validated like a new one."""
        known = [f.name for f in dataclasses.fields(self) if f.init]  # type: ignore[arg-type]
        for name in changes:
            if name not in known:
                raise TypeError(
                    f"{self.label} has no setting {name!r}{nearest(name, known)}; it has {', '.join(known)}"
                )
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def at(self, round_index: Any) -> Self:
        """Return the settings of one round: every schedule replaced by its value there."""
        changes = {name: value(round_index) for name, value in self.numbers().items() if is_schedule(value)}
        return _unchecked_replace(self, changes) if changes else self

    def with_numbers(self, **values: Any) -> Self:
        """Return a copy with numbers replaced by traced or batched arrays, which cannot be validated."""
        return _unchecked_replace(self, values)

    def numbers(self) -> dict[str, Any]:
        """The fields that are leaves (or schedules), by name."""
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if "number" in f.metadata
        }

    def settings(self) -> dict[str, Any]:
        """All fields by name, for tables and files."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        defaults = {f.name: f.default for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        shown = (f"{k}={_short(v)}" for k, v in self.settings().items() if v is not defaults[k] and v != defaults[k])
        return f"{self.label}({', '.join(shown)})"


def snake_case(name: str) -> str:
    """Return ``mime_svrg`` for ``MimeSvrg``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def nearest(word: str, known: list[str]) -> str:
    """Return ``" (did you mean …?)"`` where a known word is close, else nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _short(value: Any) -> str:
    if is_schedule(value):
        return getattr(value, "__name__", type(value).__name__)
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _check_field(owner: Settings, field: dataclasses.Field[Any], value: Any) -> None:
    if isinstance(value, jax.core.Tracer):
        return
    wanted = _objection(field, value)
    if wanted:
        raise ValueError(f"{owner.label}: {field.name}={value!r} must be {wanted}")


def _objection(field: dataclasses.Field[Any], value: Any) -> str:
    """Return what a field's value should be, in words, or nothing where it is that."""
    if value is None and field.default is None:
        return ""
    if "number" in field.metadata:
        domain: Domain = field.metadata["number"]
        at_start = value(0) if is_schedule(value) else value
        scalar = isinstance(at_start, numbers.Real | np.generic) or getattr(at_start, "ndim", None) == 0
        good = not isinstance(at_start, bool) and scalar and domain.contains(float(at_start))
        return "" if good else f"{domain.words}, or a schedule: a function of the round"
    if field.metadata.get("count"):
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return "" if whole and value >= 1 else "a whole number of at least 1"
    choices = field.metadata.get("choices")
    if choices is None or value in choices:
        return ""
    hint = nearest(value, [c for c in choices if isinstance(c, str)]) if isinstance(value, str) else ""
    return f"one of {', '.join(map(repr, choices))}{hint}"


def _unchecked_replace(settings: T, changes: dict[str, Any]) -> T:
    copy = object.__new__(type(settings))
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(settings, field.name)))
    return copy


def _flatten_with_keys(settings: Settings) -> tuple[Any, Any]:
    leaves = {k: v for k, v in settings.numbers().items() if v is not None and not is_schedule(v)}
    leaves |= {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings) if "node" in f.metadata}  # type: ignore[arg-type]
    static = tuple(
        (f.name, getattr(settings, f.name))
        for f in dataclasses.fields(settings)  # type: ignore[arg-type]
        if f.name not in leaves
    )
    return [(jax.tree_util.GetAttrKey(k), v) for k, v in leaves.items()], (tuple(leaves), static)


def _unflatten(cls: type[Settings], aux: Any, children: Any) -> Settings:
    names, static = aux
    settings = object.__new__(cls)
    for name, value in (*zip(names, children), *static):
        object.__setattr__(settings, name, value)
    return settings
