"""When a run may end early: ``until="accuracy=0.9"``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from losac._checks import check_text, nearest
from losac.metrics.declared import falls
from losac.task import Task


class Until(NamedTuple):
    """A metric and the value that it should reach."""

    metric: str
    value: float

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Return the goal of a text.

        >>> Until.parse("accuracy=0.9")
        Until(metric='accuracy', value=0.9)
        """
        name, equals, number = check_text("until", text).partition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not (name.strip() and equals and np.isfinite(value)):
            raise ValueError(f"until={text!r} is not of the form METRIC=NUMBER, such as accuracy=0.9")
        return cls(name.strip(), value)

    def check(self, task: Task) -> None:
        """Refuse a metric that the runs of a task do not measure."""
        own = ["loss", *(["objective"] if task.is_composite else []), *(["test_loss"] if task.test is not None else [])]
        known = [*own, *task.metrics]
        if self.metric not in known:
            hint = nearest(self.metric, known)
            raise ValueError(f"until={self.metric}={self.value:g}: there is no such metric{hint}; there are {known}")

    def reached(self, metrics: Mapping[str, Sequence[float] | np.ndarray]) -> bool:
        """Whether the last evaluation is there: losses reach a value from above, other metrics from below."""
        last = metrics.get(self.metric, ())[-1:]
        return len(last) > 0 and bool(last[0] <= self.value if falls(self.metric) else last[0] >= self.value)
