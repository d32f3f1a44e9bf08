"""What a run measured: metrics, bytes and gradients over the rounds, and the model it ended with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from losac._settings import nearest
from losac.history import treefile
from losac.trees import Tree

FORMAT = "losac history 1"


class DivergedError(ArithmeticError):
    """A run left the finite numbers; ``history`` holds what was measured before."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message, history)
        self.history = history

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, eq=False)
class History:
    """The record of one run; all arrays go over the evaluations, the first of which is before any training.

    ``bytes_up``, ``bytes_down`` and ``gradients`` (single-sample gradients) are totals over all clients up to the
    round, counted from the messages and the calls themselves. ``seconds`` is wall time, compilation included.
    """

    algorithm: str
    settings: Mapping[str, Any]
    task: str
    seed: int
    rounds: np.ndarray
    metrics: Mapping[str, np.ndarray]
    bytes_up: np.ndarray
    bytes_down: np.ndarray
    gradients: np.ndarray
    seconds: np.ndarray
    params: Tree = None
    model_state: Tree = None
    diverged: int | None = None
    """The round that left the finite numbers, if any did."""
    state: Any = field(default=None, repr=False)
    """The state to go on from, where the run was asked to keep it."""

    def metric(self, name: str) -> np.ndarray:
        """Return one metric; the error for an unknown name lists those there are."""
        if name not in self.metrics:
            known = list(self.metrics)
            raise KeyError(f"no metric {name!r}{nearest(name, known)}; this run has {', '.join(known)}")
        return self.metrics[name]

    def rounds_to(self, metric: str, value: float, *, sustained: int = 1) -> int | None:
        """Return the first round at which a metric reaches a value, or None.

        Losses and objectives reach it from above, everything else from below. With ``sustained=k`` the metric must
        stay there for k evaluations in a row, and the first of these counts.
        """
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

        columns = {
            "round": self.rounds,
            **self.metrics,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }
        return pd.DataFrame(columns | {"gradients": self.gradients, "seconds": self.seconds})

    def save(self, path: str | Path) -> Path:
        """Write everything but the state to one ``.npz`` file."""
        settings = plain_settings(self.settings)
        content = {name: getattr(self, name) for name in _SAVED} | {"format": FORMAT, "settings": settings}
        return treefile.save(path, content | {"metrics": dict(self.metrics)})

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read a history back."""
        content = treefile.load(path)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"{path} does not hold a history of this version ({FORMAT!r})")
        return cls(**content)

    def plot(self, metrics: list[str] | None = None) -> Any:
        """Return a matplotlib figure with the metrics over the rounds."""
        from losac.report.plots import plot_histories

        return plot_histories([self], metrics)

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {self.final(name):.4g}" for name in self.metrics)
        end = f"; diverged at round {self.diverged}" if self.diverged is not None else ""
        return f"History({self.algorithm} on {self.task}, seed {self.seed}, {self.rounds[-1]} rounds: {last}{end})"


_SAVED = (
    "algorithm", "task", "seed", "rounds", "bytes_up", "bytes_down", "gradients", "seconds", "params", "model_state",
    "diverged",
)  # fmt: skip


def falls(metric: str) -> bool:
    """Whether smaller values of a metric are better, by its name."""
    return any(word in metric for word in ("loss", "objective", "error", "distance"))


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they can be written down: functions by their names."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    return getattr(value, "__name__", None) or repr(value)
