"""Ways to prepare ESR's rows, of which the paper names none; each is fitted on the training rows.

Ways that need to know which recording a row is from are left out: the published table hides it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Prepare = Callable[[Array], Array]
Fit = Callable[[Array], Prepare]
"""From the raw training rows, in float64, to a function of raw rows."""


def affine(shift: Any, scale: Any) -> Prepare:
    """Return (x − shift)/scale; what never varies becomes 0."""
    return lambda x: (x - shift) / np.where(scale > 0, scale, 1.0)


def by_row(shift: Callable[[Array], Any], scale: Callable[[Array], Any]) -> Fit:
    """Return a way that shifts and divides each row by its own numbers."""

    def prepare(x: Array) -> Array:
        return affine(shift(x)[:, None], scale(x)[:, None])(x)

    return lambda train: prepare


def then(first: Fit, second: Fit) -> Fit:
    """Return one way after another, the second fitted on what the first made."""

    def fit(train: Array) -> Prepare:
        before = first(train)
        after = second(before(train))
        return lambda x: after(before(x))

    return fit


def always(function: Prepare) -> Fit:
    """Return a way that learns nothing from the training rows."""
    return lambda train: function


def _lowest(x: Array) -> Array:
    return np.asarray(x.min(1))


def _range(x: Array) -> Array:
    return np.asarray(np.ptp(x, axis=1))


def _mean(x: Array) -> Array:
    return np.asarray(x.mean(1))


def _nothing(x: Array) -> Array:
    return np.zeros(len(x))


def _largest(x: Array) -> Array:
    return np.asarray(np.abs(x).max(1))


def _double(x: Array) -> Array:
    return 2 * x - 1


def _log(x: Array) -> Array:
    return np.asarray(np.sign(x) * np.log1p(np.abs(x)))


row: Fit = by_row(_lowest, _range)
feature: Fit = lambda train: affine(train.min(0), np.ptp(train, axis=0))  # noqa: E731
standard: Fit = lambda train: affine(train.mean(0), train.std(0))  # noqa: E731
unit: Fit = by_row(_nothing, lambda x: np.linalg.norm(x, axis=1))
whole: Fit = lambda train: affine(train.min(), np.ptp(train))  # noqa: E731

CANDIDATES: dict[str, tuple[str, Fit]] = {
    "row": ("each row to [0, 1]", row),
    "row ±1": ("each row to [−1, 1]", then(row, always(_double))),
    "row mean": ("each row less its mean, over its range", by_row(_mean, _range)),
    "row max": ("each row over its largest absolute value", by_row(_nothing, _largest)),
    "row centred max": (
        "each row less its mean, then over its largest absolute value",
        then(by_row(_mean, _nothing), by_row(_nothing, _largest)),
    ),
    "row standard": ("each row standardised", by_row(_mean, lambda x: x.std(1))),
    "row unit": ("each row over its Euclidean norm", unit),
    "row centred unit": ("each row less its mean, then over its norm", then(by_row(_mean, _nothing), unit)),
    "feature": ("each feature to [0, 1]", feature),
    "feature ±1": ("each feature to [−1, 1]", then(feature, always(_double))),
    "feature mean": (
        "each feature less its mean, over its range",
        lambda train: affine(train.mean(0), np.ptp(train, axis=0)),
    ),
    "feature max": ("each feature over its largest absolute value", lambda t: affine(0.0, np.abs(t).max(0))),
    "feature unit": ("each feature to [0, 1], then each row over its norm", then(feature, unit)),
    "standard": ("each feature standardised", standard),
    "standard unit": ("each feature standardised, then each row over its norm", then(standard, unit)),
    "standard row": ("each feature standardised, then each row to [0, 1]", then(standard, row)),
    "standard sigmoid": ("the logistic function of standardised features", then(standard, always(
        lambda x: 1 / (1 + np.exp(-x))))),
    "standard tanh": ("tanh of standardised features", then(standard, always(np.tanh))),
    "whole": ("the whole set to [0, 1]", whole),
    "whole ±1": ("the whole set to [−1, 1]", then(whole, always(_double))),
    "whole mean": ("the whole set less its mean, over its range", lambda t: affine(t.mean(), np.ptp(t))),
    "whole max": ("the whole set over its largest absolute value", lambda t: affine(0.0, np.abs(t).max())),
    "whole standard": ("the whole set standardised", lambda t: affine(t.mean(), t.std())),
    "over 1000": ("over 1000", always(affine(0.0, 1e3))),
    "over 255": ("over 255", always(affine(0.0, 255.0))),
    "log": ("sign(x)·log(1 + |x|)", always(_log)),
    "log whole": ("sign(x)·log(1 + |x|), then the whole set to [0, 1]", then(always(_log), whole)),
    "log row": ("sign(x)·log(1 + |x|), then each row to [0, 1]", then(always(_log), row)),
}  # fmt: skip
"""Name → what it does in words, and how."""


def prepare(name: str, train: Array, test: Array) -> tuple[Array, Array]:
    """Return the training and the test rows as a candidate makes them.

    >>> prepare("row", np.array([[1, 3, 2]]), np.array([[0, 0, 4]]))[1].tolist()
    [[0.0, 0.0, 1.0]]
    """
    made = CANDIDATES[name][1](train.astype(np.float64))
    return made(train.astype(np.float64)).astype(np.float32), made(test.astype(np.float64)).astype(np.float32)
