"""The checks of arguments: each names the value and says what it must be. Nothing heavy is imported here."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
_LONGEST = 60
"""Characters of a value that an error shows."""


class Domain(NamedTuple):
    """The values a number may take, in words and as a test."""

    words: str
    contains: Callable[[float], bool]


REAL = Domain("a finite number", math.isfinite)
POSITIVE = Domain("a positive number", lambda v: math.isfinite(v) and v > 0)
NONNEGATIVE = Domain("a number that is not negative", lambda v: math.isfinite(v) and v >= 0)
FRACTION = Domain("a number in [0, 1]", lambda v: 0 <= v <= 1)
BELOW_ONE = Domain("a number in [0, 1)", lambda v: 0 <= v < 1)
PROBABILITY = Domain("a number in (0, 1]", lambda v: 0 < v <= 1)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least`` as a Python int.

    >>> check_count("rounds", True)
    Traceback (most recent call last):
    ...
    ValueError: rounds=True must be a whole number of at least 1
    """
    if not is_whole(value) or value < least:
        raise ValueError(f"{name}={shown(value)} must be a whole number of at least {least}")
    return int(value)


def check_number(name: str, value: Any, domain: Domain = REAL) -> float:
    """Return a number of a domain as a Python float.

    >>> check_number("step_size", "a", POSITIVE)
    Traceback (most recent call last):
    ...
    ValueError: step_size='a' must be a positive number
    """
    if not is_number(value) or not domain.contains(float(value)):
        raise ValueError(f"{name}={shown(value)} must be {domain.words}")
    return float(value)


def check_share(name: str, value: Any, *, least: float | None = None) -> float:
    """Return a share between 0 and 1, without the ends unless a least value is given.

    >>> check_share("fraction", 1)
    Traceback (most recent call last):
    ...
    ValueError: fraction=1; give a share between 0 and 1, such as 0.2
    """
    if not is_number(value) or not (0 < value < 1 or value == least):
        raise ValueError(f"{name}={shown(value)}; give a share between 0 and 1, such as 0.2")
    return float(value)


def check_flag(name: str, value: Any) -> bool:
    """Return a truth value."""
    if not (isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")):
        raise ValueError(f"{name}={shown(value)} must be True or False")
    return bool(value)


def check_choice(name: str, value: T, choices: Iterable[T]) -> T:
    """Return a value that is one of the choices; the error suggests a near miss.

    >>> check_choice("start", "glorod", ["glorot", "he"])
    Traceback (most recent call last):
    ...
    ValueError: start='glorod' must be one of 'glorot', 'he' (did you mean 'glorot'?)
    """
    known = list(choices)
    if not is_one_of(value, known):
        raise ValueError(f"{name}={shown(value)} must be {one_of(value, known)}")
    return value


def check_kind(name: str, value: Any, kind: type[T], way_out: str) -> T:
    """Return an object of a class; the error says how to make one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {_a(kind.__name__)}, not {described(value)}; {way_out}")
    return value


def check_function(name: str, value: Any, form: str, arguments: int = 1, **named: Any) -> None:
    """Refuse what cannot be called as ``form`` says, with this many arguments and these names."""
    if not callable(value):
        raise TypeError(f"{name} must be a function {form}, not {described(value)}")
    if not accepts(value, *[None] * arguments, **named):
        raise TypeError(f"{name} must be a function {form}, but it takes {inspect.signature(value)}")


def check_list(name: str, value: Any, words: str) -> list[Any]:
    """Return the entries of a list, a tuple, an array or an iterator; refuse a text or a mapping."""
    if not is_list(value) and not isinstance(value, Iterator):
        raise TypeError(f"{name} must be {words}, not {described(value)}")
    return list(value)


def check_text(name: str, value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {described(value)}")
    return value


def check_path(name: str, value: Any) -> Path:
    """Return a path; refuse an empty one, which Python takes for the current folder."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path, not {described(value)}")
    if is_blank(value):
        raise ValueError(f'{name}={value!r} is empty, which would be the current folder; give "." for that')
    return Path(value)


def is_blank(path: Any) -> bool:
    """Whether a path is an empty text, or one of spaces."""
    return isinstance(path, str) and not path.strip()


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number; True and 1.0 are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def accepts(function: Callable[..., Any], *arguments: Any, **named: Any) -> bool:
    """Whether a function can be called with this many arguments and these names; true if its signature is unknown.

    >>> accepts(len, []), accepts(lambda x: x, 1, 2)
    (True, False)
    """
    try:
        inspect.signature(function).bind(*arguments, **named)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def is_list(value: Any) -> bool:
    """Whether a value is a list, a tuple, a range or an array with at least one axis."""
    if hasattr(value, "tolist"):
        return bool(getattr(value, "ndim", 1) > 0)
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_number(value: Any) -> bool:
    """Whether a value is a real number that a float can hold, or an array of one; True is not."""
    if isinstance(value, bool | str) or getattr(value, "ndim", 0) != 0 or not hasattr(value, "__float__"):
        return False
    if str(getattr(value, "dtype", "")) in ("bool", "object"):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def is_one_of(value: Any, choices: Iterable[Any]) -> bool:
    """Whether a value is one of the given ones; True is not 1."""
    plain = value is None or isinstance(value, str | numbers.Number)
    return plain and any(isinstance(value, bool) == isinstance(choice, bool) and value == choice for choice in choices)


def one_of(value: Any, choices: Iterable[Any]) -> str:
    """Return the choices in words, with a suggestion."""
    known = list(choices)
    return f"one of {', '.join(map(repr, known))}{nearest(value, [c for c in known if isinstance(c, str)])}"


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a loss, a metric or a model has an argument of this name, besides its two positional ones."""
    try:
        return argument in list(inspect.signature(function).parameters)[2:]
    except (TypeError, ValueError):
        return False


def requires(function: Callable[..., Any], argument: str) -> bool:
    """Whether it has such an argument without a default."""
    return takes(function, argument) and inspect.signature(function).parameters[argument].default is inspect._empty


def shown(value: Any) -> str:
    """Return a value as text for one line: a long one is cut, a function is shown by its name.

    >>> shown(3.0), shown(shown), shown("a" * 100)[-4:]
    ('3.0', 'shown', 'aaa…')
    """
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def described(value: Any) -> str:
    """Return a value in few words: its class, and its text if that is short.

    >>> described(3), described(None), described([1] * 100)
    ('3 (int)', 'None', 'a list')
    """
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str | int | float | complex) and len(repr(value)) <= 40:
        return f"{value!r} ({type(value).__name__})"
    return _a(type(value).__name__)


def nearest(word: Any, known: Iterable[str]) -> str:
    """Return ``" (did you mean …?)"`` if a known word is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1) if isinstance(word, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""


def _a(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' or noun == 'ndarray' else 'a'} {noun}"
