"""The space of ``losac tune`` from text: ``step_size=1e-5:1e-2:7log``, ``server_step=1,3,10``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from losac._units import tidy
from losac.experiment.settings import parse_value

if TYPE_CHECKING:
    from losac.tuning.space import Range

FORMS = "a list 1,3,10; LOW:HIGH:COUNT or LOW:HIGH:COUNTlog values; or a range LOW:HIGH or LOW:HIGH:log to draw from"

MOST_VALUES = 1000
"""Of one setting."""


def parse_space(texts: Sequence[str]) -> dict[str, list[Any] | Range]:
    """Return the space of texts of the form NAME=VALUES.

    >>> parse_space(["step_size=1e-4:1e-2:3log", "server_step=1,3,10", "momentum=0:0.8:3"])
    {'step_size': [0.0001, 0.001, 0.01], 'server_step': [1, 3, 10], 'momentum': [0.0, 0.4, 0.8]}
    >>> parse_space(["step_size=1e-4:1e-2:log"])
    {'step_size': Range(low=0.0001, high=0.01, log=True)}
    """
    space = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not (name and equals and values):
            raise ValueError(f"--space {text!r} is not of the form NAME=VALUES, such as server_step=1,3,10")
        name = name.strip().replace("-", "_")
        if name in space:
            raise ValueError(f"--space names {name} twice; give it once")
        space[name] = _span(text, *values.split(":")) if ":" in values else _listed(text, values)
    return space


def _listed(text: str, values: str) -> list[Any]:
    parts = [part.strip() for part in values.split(",")]
    if not all(parts):
        raise ValueError(f"--space {text!r} has an empty value; give {FORMS}")
    return [parse_value(part) for part in parts]


def _span(text: str, low: str, high: str, spacing: str = "", *more: str) -> list[float] | Range:
    import numpy as np

    from losac.tuning.space import Range

    form = re.fullmatch(r"(\d*)(log)?", spacing.strip())
    try:
        ends = float(low), float(high)
    except ValueError:
        form = None
    if form is None or more:
        raise ValueError(f"--space {text!r} is not understood; give {FORMS}")
    whole = Range(*ends, log=form[2] is not None)
    if not form[1]:
        return whole
    if int(form[1]) > MOST_VALUES:
        raise ValueError(f"--space {text!r} asks for {form[1]} values; give at most {MOST_VALUES:,}")
    if int(form[1]) < 2:
        raise ValueError(f"--space {text!r} asks for {form[1]} values between two ends; give at least 2")
    return [tidy(whole.at(share), 6) for share in np.linspace(0, 1, int(form[1]))]
