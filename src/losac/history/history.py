"""What a run measured: metrics, bytes and gradients over the rounds, and the model it ended with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from losac._checks import check_count, check_number, check_path, nearest
from losac._costs import COSTS, series_of
from losac.history import treefile
from losac.metrics import falls
from losac.trees import Tree

FORMAT = "losac history 1"


class DivergedError(ArithmeticError):
    """A run left the finite numbers; ``history`` holds what was measured before, None where nothing is recorded."""

    def __init__(self, message: str, history: Any = None) -> None:
        super().__init__(message, history)
        self.history = history

    def __str__(self) -> str:
        return str(self.args[0])


class NotKept(enum.Enum):
    """The state in the history of a run that was not asked to keep it; ``simulate`` refuses to start from it."""

    STATE = "not kept"

    def __bool__(self) -> bool:
        return False


NOT_KEPT = NotKept.STATE


@dataclass(frozen=True, eq=False)
class History:
    """The record of one run; all arrays go over the evaluations; the first is before any training.

    ``costs`` are totals over all clients up to the round, counted from the messages and the calls themselves:
    ``bytes_up``, ``bytes_down`` and ``gradients`` (of single samples), which are attributes too. ``seconds`` is wall
    time, compilation included.
    """

    algorithm: str
    settings: Mapping[str, Any]
    task: str
    seed: int
    rounds: np.ndarray
    metrics: Mapping[str, np.ndarray]
    costs: Mapping[str, np.ndarray]
    seconds: np.ndarray
    params: Tree = None
    model_state: Tree = None
    diverged: int | None = None
    """The round that left the finite numbers, if any did."""
    state: Any = field(default=NOT_KEPT, repr=False)
    """The state to continue from, if the run was asked to keep it."""
    conditions: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The problem and how it was simulated, by name: runs count as seeds of one experiment only if these are equal."""

    @property
    def bytes_up(self) -> np.ndarray:
        """What all clients have sent."""
        return self.costs["bytes_up"]

    @property
    def bytes_down(self) -> np.ndarray:
        """What has been sent to all clients."""
        return self.costs["bytes_down"]

    @property
    def gradients(self) -> np.ndarray:
        """How many gradients of single samples all clients have computed."""
        return self.costs["gradients"]

    @property
    def planned(self) -> int | None:
        """The planned last round of the run; None if that was not recorded."""
        return self.conditions.get("rounds")

    def metric(self, name: str) -> np.ndarray:
        """Return one metric; the error for an unknown name lists those there are."""
        if name not in self.metrics:
            known = list(self.metrics)
            raise KeyError(f"no metric {name!r}{nearest(name, known)}; this run has {', '.join(known)}")
        return self.metrics[name]

    def rounds_to(self, metric: str, value: float, *, sustained: int = 1) -> int | None:
        """Return the first round at which a metric reaches a value, or None.

        Losses, errors and the like (:func:`losac.metrics.falls`) reach it from above, everything else from below. With
        ``sustained=k`` the metric must stay there for k evaluations in a row, and the first of these counts.
        """
        check_number("value", value)
        check_count("sustained", sustained)
        values = self.metric(metric)
        there = values <= value if falls(metric) else values >= value
        for start in range(len(there) - sustained + 1):
            if there[start : start + sustained].all():
                return int(self.rounds[start])
        return None

    def final(self, metric: str) -> float:
        """Return the last value of a metric that was measured."""
        values = self.metric(metric)
        measured = values[~np.isnan(values)]
        return float(measured[-1]) if len(measured) else float("nan")

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per evaluation, the round first."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, np.ndarray]:
        """Return all series by name, the round first."""
        return {"round": self.rounds, **self.metrics, **self.costs, "seconds": self.seconds}

    def until(self, last: int) -> History:
        """Return the record up to a round."""
        rows = slice(int(np.searchsorted(self.rounds, last, side="right")))
        return replace(
            self,
            rounds=self.rounds[rows],
            metrics={name: values[rows] for name, values in self.metrics.items()},
            costs={name: values[rows] for name, values in self.costs.items()},
            seconds=self.seconds[rows],
        )

    def save(self, path: str | Path) -> Path:
        """Write everything but the state to one ``.npz`` file."""
        check_path("path", path)
        settings = plain_settings(self.settings)
        content = {name: getattr(self, name) for name in _SAVED} | {"format": FORMAT, "settings": settings}
        return treefile.save(path, content | {"metrics": dict(self.metrics), **self.costs})

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read a history back."""
        content = treefile.load(check_path("path", path))
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"{path} does not hold a history of this version ({FORMAT!r})")
        costs = series_of(content)
        return cls(**{name: value for name, value in content.items() if name not in COSTS}, costs=costs)

    def plot(self, metrics: list[str] | None = None) -> Any:
        """Return a matplotlib figure with the metrics over the rounds."""
        from losac.report.plots import plot_histories

        return plot_histories([self], metrics)

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {self.final(name):.4g}" for name in self.metrics)
        end = f"; diverged at round {self.diverged}" if self.diverged is not None else ""
        return f"History({self.algorithm} on {self.task}, seed {self.seed}, {self.rounds[-1]} rounds: {last}{end})"


_SAVED = (
    "algorithm", "task", "seed", "rounds", "seconds", "params", "model_state", "diverged", "conditions",
)  # fmt: skip


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as plain values: functions by their names."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    return getattr(value, "__name__", None) or repr(value)
