"""Measurements at every client, as summary numbers, a table and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from losac._checks import is_number, nearest, shown
from losac.metrics import falls


def jain(values: Any) -> float:
    """Return Jain's index of fairness (Σv)² / (N Σv²): 1 if all are equal, 1/N if one client has everything.

    >>> jain([1.0, 1.0, 1.0]), jain([0.0, 0.0, 3.0]) == 1 / 3
    (1.0, True)
    """
    v = np.asarray(values, float)
    squares = float((v * v).sum())
    return float(v.sum() ** 2 / (len(v) * squares)) if squares else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class PerClient:
    """Every metric at every client.

    Attributes:
      values: metric → its value at each client, [N].
      sizes: how many rows each client was measured on, [N].
      name: the data's name, for tables and plots.
      whole: the metrics of all rows of a client at once. NaN means that one is undefined at a client; means, deviations
        and Jain's index are then over the other clients.

    >>> found = PerClient({"accuracy": np.array([0.9, 0.8, 0.4])}, np.array([10, 10, 20]), "three")
    >>> found
    PerClient(three: 3 clients)
              mean  weighted mean  worst 10 %     std   jain
    accuracy   0.7          0.625         0.4   0.216  0.913
    """

    values: Mapping[str, np.ndarray]
    sizes: np.ndarray
    name: str = "data"
    whole: frozenset[str] = frozenset()

    def metric(self, name: str) -> np.ndarray:
        """Return one metric at every client; the error for an unknown name lists the known ones."""
        if name not in self.values:
            known = list(self.values)
            raise KeyError(f"no metric {name!r}{nearest(name, known)}; there is {', '.join(known)}")
        return self.values[name]

    def defined(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a metric at the clients that define it, and their numbers of rows; NaN if no client does."""
        values = self.metric(metric)
        there = ~np.isnan(values) if metric in self.whole else np.ones(len(values), bool)
        return (values[there], self.sizes[there]) if there.any() else (values[:1], self.sizes[:1])

    def mean(self, metric: str) -> float:
        """Return the mean over the clients, with equal weights."""
        return float(self.defined(metric)[0].mean())

    def weighted_mean(self, metric: str) -> float:
        """Return the mean over the clients, weighted by their rows."""
        values, sizes = self.defined(metric)
        return float(np.average(values, weights=sizes))

    def worst(self, metric: str, share: float = 0.1) -> float:
        """Return the mean over the worst share of the clients (at least one); large losses and errors are worst."""
        if not is_number(share) or not 0 < share <= 1:
            raise ValueError(f"share={shown(share)}; give a share of the clients above 0 and at most 1, such as 0.1")
        ordered = np.sort(self.defined(metric)[0])
        ordered = ordered[::-1] if falls(metric) else ordered
        return float(ordered[: int(np.ceil(share * len(ordered)))].mean())

    def std(self, metric: str) -> float:
        """Return the standard deviation over the clients."""
        return float(self.defined(metric)[0].std())

    def jain(self, metric: str) -> float:
        """Return Jain's index of fairness over the clients."""
        return jain(self.defined(metric)[0])

    def summary(self) -> Any:
        """Return a pandas DataFrame: one row per metric, its mean, worst 10 % and fairness among the columns."""
        import pandas as pd

        rows = {
            name: {
                "mean": self.mean(name),
                "weighted mean": self.weighted_mean(name),
                "worst 10 %": self.worst(name),
                "std": self.std(name),
                "jain": self.jain(name),
            }
            for name in self.values
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per client with its number, its rows and every metric."""
        import pandas as pd

        return pd.DataFrame({"client": np.arange(len(self.sizes)), "rows": self.sizes, **self.values})

    def plot(self, metric: str | None = None, ax: Any = None) -> Any:
        """Draw one metric (by default the last) at every client, the worst first; return the matplotlib figure."""
        from matplotlib.figure import Figure

        name = list(self.values)[-1] if metric is None else metric
        ordered = np.sort(self.defined(name)[0])
        ordered = ordered[::-1] if falls(name) else ordered
        if ax is None:
            ax = Figure(figsize=(6, 3.2), layout="constrained").subplots()
        ax.bar(np.arange(len(ordered)), ordered, width=0.9, color="#56B4E9")
        lines = (("mean", self.mean(name), "-"), ("worst 10 %", self.worst(name), "--"))
        for label, value, dashes in lines:
            ax.axhline(value, color="#D55E00", linestyle=dashes, label=f"{label}: {value:.3g}")
        ax.set(xlabel="clients, the worst first", ylabel=name.replace("_", " "), title=self.name)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="lower right", framealpha=0.9)
        return ax.get_figure()

    def __repr__(self) -> str:
        table = self.summary().map(lambda value: f"{value:.3g}").to_string()
        return f"PerClient({self.name}: {len(self.sizes):,} clients)\n{table}"


@dataclass(frozen=True, eq=False, repr=False)
class Personalized:
    """A model at every client, before and after some steps on the client's own rows."""

    before: PerClient
    after: PerClient

    def gain(self, metric: str) -> np.ndarray:
        """Return how much a metric improved at each client; losses and errors improve when they fall."""
        change = self.after.metric(metric) - self.before.metric(metric)
        return -change if falls(metric) else change

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per client with every metric before and after."""
        frame = self.before.to_frame()
        for name in self.before.values:
            frame[f"{name}_before"] = frame.pop(name)
            frame[f"{name}_after"] = self.after.metric(name)
        return frame

    def plot(self, metric: str | None = None, ax: Any = None) -> Any:
        """Draw one metric (the last by default) after against before, a point per client; return the figure."""
        from matplotlib.figure import Figure

        name = list(self.before.values)[-1] if metric is None else metric
        before, after = self.before.metric(name), self.after.metric(name)
        there = ~np.isnan(before + after)
        before, after = (before[there], after[there]) if there.any() else (np.zeros(1), np.zeros(1))
        if ax is None:
            ax = Figure(figsize=(4, 4), layout="constrained").subplots()
        ends = [float(min(before.min(), after.min())), float(max(before.max(), after.max()))]
        ax.plot(ends, ends, color="#999999", linewidth=1)
        ax.scatter(before, after, color="#0072B2", s=18)
        words = name.replace("_", " ")
        ax.set(xlabel=f"{words} before", ylabel=f"{words} after", title=self.before.name)
        ax.spines[["top", "right"]].set_visible(False)
        return ax.get_figure()

    def __repr__(self) -> str:
        name = list(self.before.values)[-1]
        better = int((self.gain(name) > 0).sum())
        return (
            f"Personalized({self.before.name}: {len(self.before.sizes):,} clients; {name} "
            f"{self.before.mean(name):.3g} → {self.after.mean(name):.3g}, worst 10 % "
            f"{self.before.worst(name):.3g} → {self.after.worst(name):.3g}, better at {better})"
        )
