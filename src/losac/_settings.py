"""Frozen dataclasses that are pytrees: their numbers are leaves, everything else about them is static.

Algorithms, regularisers and upload transforms are such settings. Because a number is a leaf, a sweep can
vectorise over it and a new step size never recompiles; because the rest is static, it shapes the program.
"""

from __future__ import annotations

import dataclasses
import numbers
import re
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import jax
import numpy as np
from numpy.typing import DTypeLike

from losac._checks import BELOW_ONE as BELOW_ONE
from losac._checks import FRACTION as FRACTION
from losac._checks import NONNEGATIVE as NONNEGATIVE
from losac._checks import POSITIVE as POSITIVE
from losac._checks import PROBABILITY as PROBABILITY
from losac._checks import REAL, Domain, is_number, is_one_of, is_whole, one_of, shown
from losac._checks import nearest as nearest

T = TypeVar("T")
Number = float | Any
"""A setting that is a number: a float or a schedule as the user gives it, a float or an array where it is used."""


def number(
    *, default: Any = dataclasses.MISSING, domain: Domain = REAL, kw_only: bool = False, words: tuple[str, ...] = ()
) -> Any:
    """Declare a field that is a leaf: a number, or a schedule (a function of the round, as in optax).

    It may be one of some words instead, and is static then.
    """
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"number": domain, "words": words})


def choice(*, default: Any = dataclasses.MISSING, choices: tuple[Any, ...] | None = None, kw_only: bool = False) -> Any:
    """Declare a static field, with its allowed values if they can be listed."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"choices": choices})


def count(*, default: Any = dataclasses.MISSING, kw_only: bool = False) -> Any:
    """Declare a static field that holds a positive whole number or None."""
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"count": True})


def node(*, default: Any = dataclasses.MISSING, kw_only: bool = False, silent: bool = False) -> Any:
    """Declare a field that itself holds settings (a pytree).

    A ``silent`` one is not named where it has its default: it came later, and records without it are still right.
    """
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"node": True, "silent": silent})


def is_schedule(value: Any) -> bool:
    """Whether a number is given as a function of the round."""
    return callable(value)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(number, choice, count, node))
class Settings:
    """Base of all settings: subclasses become frozen dataclasses, pytrees, validated before any tracing.

    Give defaults by keyword: type checkers see only these.
    """

    schedules: ClassVar[bool] = False
    """Whether a number may be a function of the round."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, lambda aux, c: _unflatten(cls, aux, c))

    def __post_init__(self) -> None:
        for name in (field.name for field in dataclasses.fields(self)):  # type: ignore[arg-type]
            self.check_setting(name, getattr(self, name))
        self.validate()

    def check_setting(self, name: str, value: Any) -> None:
        """Refuse a value that a setting cannot have, whatever the others are."""
        (field,) = (field for field in dataclasses.fields(self) if field.name == name)  # type: ignore[arg-type]
        if not isinstance(value, jax.core.Tracer) and (wanted := _objection(self, field, value)):
            raise ValueError(f"{self.label}: {name}={shown(value)} must be {wanted}")

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

    def worded(self) -> dict[str, Any]:
        """The numbers that may also be words, by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata.get("words")}  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """All fields by name, for tables and files; without silent ones at their default."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]
        silent = {f.name: f.default for f in dataclasses.fields(self) if f.metadata.get("silent")}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if not (name in silent and value == silent[name])}

    def __repr__(self) -> str:
        defaults = {f.name: f.default for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        shown = (f"{k}={_short(v)}" for k, v in self.settings().items() if v is not defaults[k] and v != defaults[k])
        return f"{self.label}({', '.join(shown)})"


LOOKED_AT = (0, 1, 10, 100, 1000)
"""The rounds at which schedules are compared."""


def plain_setting(value: Any) -> Any:
    """Return a setting in a form with a unique text: equal settings have equal texts.

    Numbers are compared by six digits, schedules by their values at some rounds, other functions by their names.
    """
    if isinstance(value, Settings):
        schedules = {name: tuple(map(part, LOOKED_AT)) for name, part in value.numbers().items() if is_schedule(part)}
        settings = {**value.settings(), **schedules}
        return type(value).__name__, sorted((name, plain_setting(part)) for name, part in settings.items())
    if isinstance(value, tuple):
        return tuple(plain_setting(part) for part in value)
    if isinstance(value, bool | str | None):
        return repr(value)
    if isinstance(value, numbers.Real | np.ndarray | jax.Array):
        return f"{float(value):.6g}"
    return getattr(value, "__name__", repr(value))


def setting_text(value: Any) -> str:
    """Return a setting as one line of text that no other setting has.

    >>> import losac
    >>> setting_text(losac.prox.l1(0.1)), setting_text((losac.algorithms.qsgd(4),)), setting_text("paper")
    ('l1(strength=0.1)', '(qsgd(levels=4, shrink=False))', "'paper'")
    """
    if isinstance(value, Settings):
        _, settings = plain_setting(value)
        return f"{value.label}({', '.join(f'{name}={_line(part)}' for name, part in settings)})"
    return f"({', '.join(map(setting_text, value))})" if isinstance(value, tuple) else str(plain_setting(value))


def _line(plain: Any) -> str:
    return f"({', '.join(map(_line, plain))})" if isinstance(plain, tuple) else str(plain)


def snake_case(name: str) -> str:
    """Return ``mime_svrg`` for ``MimeSvrg``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _short(value: Any) -> str:
    if is_schedule(value):
        return getattr(value, "__name__", type(value).__name__)
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _objection(owner: Settings, field: dataclasses.Field[Any], value: Any) -> str:
    """Return what a field's value should be, in words, or nothing if it is valid."""
    if value is None and field.default is None:
        return ""
    if "number" in field.metadata:
        words = field.metadata["words"]
        objection = (
            "" if is_one_of(value, words) else _objection_to_number(field.metadata["number"], value, owner.schedules)
        )
        return f"{objection}, or {one_of(value, words)}" if objection and words else objection
    if field.metadata.get("count"):
        if is_whole(value) and value >= 1:
            return "" if value < 2**63 else "less than 2^63"
        return "a whole number of at least 1"
    choices = field.metadata.get("choices")
    return "" if choices is None or is_one_of(value, choices) else one_of(value, choices)


def _objection_to_number(domain: Domain, value: Any, schedules: bool) -> str:
    if not schedules:
        good = is_number(value) and domain.contains(float(value))
        return "" if good else f"{domain.words}{', the same in all rounds' if is_schedule(value) else ''}"
    words = f"{domain.words}, or a schedule: a function of the round"
    if not is_schedule(value):
        return "" if is_number(value) and domain.contains(float(value)) else words
    try:
        first = value(0)
    except Exception as error:
        return f"{words}; called with round 0 it raised {type(error).__name__}: {_first_line(error)}"
    if not (is_number(first) and domain.contains(float(first))):
        return words
    try:
        jax.eval_shape(value, jax.ShapeDtypeStruct((), np.int32))
    except Exception as error:
        return (
            f"{words} that JAX can compile; as it traced this one, that raised {type(error).__name__}: write cases as "
            "jnp.where(round < 2, 0.01, 0.001), not with if, and look values up in an array of jax.numpy"
        )
    return ""


def check_numbers(owner: Settings, first: int, last: int, dtype: DTypeLike) -> None:
    """Refuse numbers that leave their domain in a run's rounds or precision, such as a step that becomes negative.

    A schedule may end at zero. It is looked at in some of the rounds from ``first`` until before ``last``.
    """
    for field in dataclasses.fields(owner):  # type: ignore[arg-type]
        value = getattr(owner, field.name)
        if "number" not in field.metadata or value is None or isinstance(value, str):
            continue
        domain: Domain = field.metadata["number"]
        if not is_schedule(value):
            _check_in_dtype(owner, f"{field.name}={float(value):g}", float(value), domain, dtype)
            continue
        looked_at = {r for r in LOOKED_AT if first <= r < last} | {*np.linspace(first, last - 1, 30).astype(int)}
        for r in sorted(looked_at) if last > first else ():
            found = float(value(int(r)))
            if found != 0 and not domain.contains(found):
                raise ValueError(
                    f"{owner.label}: {field.name} is {found:g} at round {r}, and must be {domain.words}; keep its "
                    "schedule there in all rounds, such as by jnp.maximum"
                )


def _check_in_dtype(owner: Settings, said: str, value: float, domain: Domain, dtype: DTypeLike) -> None:
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value, dtype))
    if domain.contains(value) and not domain.contains(rounded):
        raise ValueError(f"{owner.label}: {said} is {rounded:g} in {np.dtype(dtype).name}, and must be {domain.words}")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _unchecked_replace(settings: T, changes: dict[str, Any]) -> T:
    copy = object.__new__(type(settings))
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(settings, field.name)))
    return copy


def _flatten_with_keys(settings: Settings) -> tuple[Any, Any]:
    leaves = {k: v for k, v in settings.numbers().items() if not (v is None or isinstance(v, str) or is_schedule(v))}
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
