r"""Schedules: numbers that change from round to round, such as step sizes. Rounds count from 0.

A schedule is a function of the round, and any setting of an algorithm that is a number may be one; optax's schedules
work too. Those here have a text, so that experiment files and commands can name them: ``cosine:0.1:500``.

>>> import losac
>>> losac.algorithms.fedavg(step_size=losac.schedules.cosine(0.1, 500), local_steps=5, blocks=1)
fedavg(step_size=cosine:0.1:500, local_steps=5, blocks=1)
>>> [round(float(parse("step:0.1:100:0.5")(r)), 4) for r in (0, 99, 100, 250)]
[0.1, 0.1, 0.05, 0.025]
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from losac._checks import FRACTION, NONNEGATIVE, POSITIVE, check_count, check_number, nearest

__all__ = ["cosine", "inverse_sqrt", "parse", "step", "warmup", "warmup_cosine"]


@dataclass(frozen=True)
class _Schedule:
    """The common part: the text of a schedule is its name and its numbers."""

    @property
    def __name__(self) -> str:
        values = [(f.default, getattr(self, f.name)) for f in dataclasses.fields(self)]
        while values and values[-1][0] == values[-1][1]:
            values.pop()
        return ":".join([type(self).__qualname__, *(f"{value:.12g}" for _, value in values)])

    def __repr__(self) -> str:
        return self.__name__


@dataclass(frozen=True, repr=False)
class cosine(_Schedule):  # noqa: N801
    r"""Half a cosine from the peak to ``end`` within some rounds, and ``end`` from then on.

    .. math:: \eta_r = e + \tfrac12 (\eta - e)\,(1 + \cos(\pi \min(r / R, 1)))
    """

    peak: float
    rounds: int
    end: float = 0.0

    def __post_init__(self) -> None:
        check_number("cosine: peak", self.peak, POSITIVE)
        check_count("cosine: rounds", self.rounds)
        check_number("cosine: end", self.end, NONNEGATIVE)

    def __call__(self, round_index: Any) -> Any:
        """Return the value in a round."""
        share = jnp.minimum(round_index / self.rounds, 1.0)
        return self.end + 0.5 * (self.peak - self.end) * (1 + jnp.cos(jnp.pi * share))


@dataclass(frozen=True, repr=False)
class warmup(_Schedule):  # noqa: N801
    """A line from ``peak / rounds`` in the first round to the peak, which it keeps."""

    peak: float
    rounds: int

    def __post_init__(self) -> None:
        check_number("warmup: peak", self.peak, POSITIVE)
        check_count("warmup: rounds", self.rounds)

    def __call__(self, round_index: Any) -> Any:
        """Return the value in a round."""
        return self.peak * jnp.minimum((round_index + 1) / self.rounds, 1.0)


@dataclass(frozen=True, repr=False)
class warmup_cosine(_Schedule):  # noqa: N801
    """:class:`warmup` for some rounds, then :class:`cosine` until ``rounds``, counted from the start."""

    peak: float
    warm: int
    rounds: int
    end: float = 0.0

    def __post_init__(self) -> None:
        warmup(self.peak, self.warm)
        if check_count("warmup_cosine: rounds", self.rounds) <= self.warm:
            raise ValueError(f"warmup_cosine: rounds={self.rounds} must be more than the {self.warm} that warm up")
        cosine(self.peak, self.rounds, self.end)

    def __call__(self, round_index: Any) -> Any:
        """Return the value in a round."""
        falling = cosine(self.peak, self.rounds - self.warm, self.end)
        later = jnp.maximum(round_index - self.warm, 0)
        return jnp.where(round_index < self.warm, warmup(self.peak, self.warm)(round_index), falling(later))


@dataclass(frozen=True, repr=False)
class step(_Schedule):  # noqa: N801
    """The start, times ``factor`` after every ``every`` rounds."""

    start: float
    every: int
    factor: float

    def __post_init__(self) -> None:
        check_number("step: start", self.start, POSITIVE)
        check_count("step: every", self.every)
        check_number("step: factor", self.factor, FRACTION)

    def __call__(self, round_index: Any) -> Any:
        """Return the value in a round."""
        return self.start * self.factor ** jnp.floor(round_index / self.every)


@dataclass(frozen=True, repr=False)
class inverse_sqrt(_Schedule):  # noqa: N801
    """The start divided by the square root of the round, counted from 1."""

    start: float

    def __post_init__(self) -> None:
        check_number("inverse_sqrt: start", self.start, POSITIVE)

    def __call__(self, round_index: Any) -> Any:
        """Return the value in a round."""
        return self.start / jnp.sqrt(round_index + 1.0)


_KINDS: dict[str, type[_Schedule]] = {
    kind.__qualname__: kind for kind in (cosine, warmup, warmup_cosine, step, inverse_sqrt)
}


def parse(text: str) -> _Schedule:
    """Return the schedule of a text such as ``cosine:0.1:500``.

    >>> parse("warmup:0.1:10")(4)
    Array(0.05, dtype=float32, weak_type=True)
    >>> parse("cosin:0.1:500")
    Traceback (most recent call last):
    ...
    ValueError: 'cosin:0.1:500' is not a schedule (did you mean 'cosine'?); the forms are cosine:PEAK:ROUNDS[:END], ...
    """
    name, *values = text.strip().split(":")
    forms = ", ".join(map(_form, _KINDS.values()))
    if name not in _KINDS:
        raise ValueError(f"{text!r} is not a schedule{nearest(name, _KINDS)}; the forms are {forms}")
    kind = _KINDS[name]
    fields = dataclasses.fields(kind)
    least = sum(field.default is dataclasses.MISSING for field in fields)
    if not least <= len(values) <= len(fields):
        raise ValueError(f"{text!r} is not of the form {_form(kind)}")
    try:
        return kind(*(_number(str(field.type), value) for field, value in zip(fields, values)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not of the form {_form(kind)}: {error}") from error


def is_named(value: Any) -> bool:
    """Whether a value is a schedule with a text."""
    return isinstance(value, _Schedule)


def _form(kind: type[_Schedule]) -> str:
    fields = dataclasses.fields(kind)
    needed = [f":{f.name.upper()}" for f in fields if f.default is dataclasses.MISSING]
    return "".join([kind.__qualname__, *needed, *(f"[:{f.name.upper()}]" for f in fields[len(needed) :])])


def _number(kind: str, text: str) -> float | int:
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} must be a {'whole ' if kind == 'int' else ''}number") from None
