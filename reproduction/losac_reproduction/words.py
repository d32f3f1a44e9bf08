"""Numbers as text: the one place where results are averaged, given intervals and formatted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

import numpy as np


class _Words(Formatter):
    """The templates of claims and summaries; see :func:`say`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return told(value, format_spec)


def say(template: str, numbers: Mapping[str, Any]) -> str:
    """Fill numbers into a template: lists are joined by commas, a word behind a bar stands for what is not finite.

    >>> say("{loss:.2f} of {cells}, {share:.1%}, {lost:.2f|diverged}", {"loss": [1, 2], "cells": 3, "share": 0.5,
    ...     "lost": float("nan")})
    '1.00, 2.00 of 3, 50.0 %, diverged'
    """
    return typeset(_Words().vformat(template, (), numbers))


def typeset(text: str) -> str:
    """Return text with minus signs before its negative numbers, instead of hyphens.

    >>> typeset("-12 % to -0.5, by 1e-4 on 2026-11-19")
    '−12 % to −0.5, by 1e-4 on 2026-11-19'
    """
    return re.sub(r"(?<![\w.-])-(?=\.?\d)", "−", text)


def told(value: Any, spec: str = "") -> str:
    """Return a number as text, by a format specification and behind a bar the word where there is none.

    >>> told(0.25, ".3f"), told(None, ".3f"), told(math.inf, ".3f|diverged"), told(0.123, ".1%")
    ('0.250', '–', 'diverged', '12.3 %')
    """
    form, _, word = spec.partition("|")
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return ", ".join(told(each, spec) for each in value)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return word or "–"
    return f"{format(100 * value, form[:-1] + 'f')} %" if form.endswith("%") else format(value, form)


def shown(cell: Any) -> str:
    """Return a table's cell as a reader wants it.

    >>> shown(0.123456), shown(None), shown(12), shown("57 ± 3")
    ('0.123', '–', '12', '57 ± 3')
    """
    return "–" if cell is None else typeset(f"{cell:.3g}" if isinstance(cell, float) else str(cell))


def span(values: Iterable[float], spec: str) -> str:
    """Return the least and the greatest of some numbers.

    >>> span([0.1, 0.3], ".1%"), span([0.1], ".1%")
    ('10.0 to 30.0 %', '10.0 %')
    """
    ordered = sorted(values)
    low, high = told(ordered[0], spec), told(ordered[-1], spec)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def known(values: Iterable[float | None]) -> list[float]:
    """Return the values that are there."""
    return [value for value in values if value is not None and math.isfinite(value)]


def mean(values: Iterable[float | None], missing: float = math.nan) -> float:
    """Return the mean over the seeds; something else where one of them has no value.

    >>> mean([1.0, 3.0]), mean([1.0, None]), mean([], missing=9.0)
    (2.0, nan, 9.0)
    """
    values = list(values)
    there = known(values)
    return float(np.mean(there)) if there and len(there) == len(values) else missing


def none(value: float) -> float | None:
    """Return a number, None where it is not finite: what a table leaves blank."""
    return value if math.isfinite(value) else None


def spread(values: Sequence[float | None], form: str, missing: str, count: str = "{missing} in {lost} of {all}") -> str:
    """Return the mean and standard deviation over the seeds that have a value, and how many do not.

    >>> spread([1.0, 3.0, None], ".1f", "never"), spread([None], ".1f", "never")
    ('2.0 ± 1.0 (never in 1 of 3)', 'never')
    """
    there = known(values)
    if not there:
        return missing
    text = format(np.mean(there), form) + (f" ± {format(np.std(there), form)}" if len(there) > 1 else "")
    lost = count.format(missing=missing, lost=len(values) - len(there), all=len(values))
    return f"{text} ({lost})" if len(there) < len(values) else text


class Interval(NamedTuple):
    """A mean over the seeds with the half width of its 95 % confidence interval."""

    mean: float
    half: float

    def shown(self, form: str = "{:.3g}", scale: float = 1) -> str:
        """Return it as text."""
        return f"{form.format(self.mean * scale)} ± {form.format(self.half * scale)}"


def interval(values: Sequence[float | None], level: float = 0.95) -> Interval | None:
    """Return the interval of the mean of some values, by Student's t; None where one is missing.

    >>> interval([1.0, 2.0, 3.0]).shown("{:.2f}"), interval([1.0, None])
    ('2.00 ± 2.48', None)
    """
    from scipy.stats import t  # type: ignore[import-untyped, unused-ignore]

    there = np.array(known(values))
    if not len(there) or len(there) < len(values):
        return None
    if len(there) == 1:
        return Interval(float(there[0]), 0.0)
    wide = float(t.ppf((1 + level) / 2, len(there) - 1))
    return Interval(float(there.mean()), wide * float(there.std(ddof=1)) / len(there) ** 0.5)
