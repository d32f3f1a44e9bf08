"""A short name of an algorithm with its settings, by which server, clients and checkpoints know that they agree."""

from __future__ import annotations

import hashlib
import numbers
from typing import Any

import jax
import numpy as np

from losac._settings import Settings, is_schedule
from losac.algorithms.contract import Algorithm

LOOKED_AT = (0, 1, 10, 100, 1000)
"""The rounds at which schedules are compared."""


def fingerprint(algorithm: Algorithm) -> str:
    """Return the algorithm's name and a digest of its settings; functions other than schedules go by their names.

    >>> import losac, numpy
    >>> one, other = losac.algorithms.fedavg(0.1), losac.algorithms.fedavg(numpy.float32(0.1))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, True)
    """
    return f"{algorithm.label} {hashlib.sha256(repr(_plain(algorithm)).encode()).hexdigest()[:12]}"


def _plain(value: Any) -> Any:
    """Return a setting in a form whose text is the same wherever it is the same."""
    if isinstance(value, Settings):
        schedules = {name: tuple(map(part, LOOKED_AT)) for name, part in value.numbers().items() if is_schedule(part)}
        settings = {**value.settings(), **schedules}
        return type(value).__name__, sorted((name, _plain(part)) for name, part in settings.items())
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, bool | str | None):
        return repr(value)
    if isinstance(value, numbers.Real | np.ndarray | jax.Array):
        return f"{float(value):.6g}"
    return getattr(value, "__name__", repr(value))
