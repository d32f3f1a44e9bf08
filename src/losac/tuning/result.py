"""The result of a search: its trials, the best one, and its position in the space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from losac._files import write_picture, write_whole
from losac._own import name_of
from losac.algorithms.contract import Algorithm
from losac.runs.sections import Sections, to_toml
from losac.tuning.space import Axis, Edge, Point
from losac.tuning.trials import Trial, ranked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Tuning:
    """A finished search.

    Attributes:
      start: the algorithm, with the settings that were not searched.
      task: the name of the task.
      search: ``"grid"``, ``"refine"``, ``"random"`` or ``"optuna"``.
      space: setting → the values tried, including those added at an edge, or the range.
      trials: one for each point, in the order they were run.
      edges: setting → the position of the best value: ``"inside"``; at the ``"low"`` or ``"high"`` edge, where a better
        value may be beyond it; at a ``"low limit"`` or ``"high limit"``, the last value that the setting allows;
        ``"fixed"`` for a single value or values without an order.
      metric, target: the goal of the search.
      validation: the share of the clients' rows used to measure the metric; None for the training rows.
      seeds, rounds, clients_per_round, dtype: of the runs.
    """

    start: Algorithm
    task: str
    search: str
    space: Mapping[str, Axis]
    trials: tuple[Trial, ...]
    edges: Mapping[str, Edge]
    metric: str
    target: float | None
    validation: float | None
    seeds: tuple[int, ...]
    rounds: int
    clients_per_round: int
    dtype: str

    @property
    def best_trial(self) -> Trial:
        """The best trial; the loss decides between equal ones."""
        return ranked(self.trials)[0]

    @property
    def best(self) -> Point:
        """The best settings."""
        return dict(self.best_trial.settings)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm with the best settings."""
        return self.start.replace(**self.best)

    @property
    def diverged(self) -> int:
        """How many trials diverged."""
        return sum(trial.diverged is not None for trial in self.trials)

    @property
    def measured(self) -> str:
        """The metric and its rows, for axes and tables."""
        return f"{'training' if self.validation is None else 'validation'} {self.metric.replace('_', ' ')}"

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per trial, the best first and diverged ones last."""
        import pandas as pd

        rows = [trial.record() for trial in ranked(self.trials)]
        frame = pd.DataFrame(rows).astype({"rounds_to": float, "diverged": "Int64"})
        return frame.drop(columns="rounds_to") if self.target is None else frame

    def plot(self) -> Figure:
        """Return a figure: a map for a grid of two axes, else the score over each axis."""
        from losac.report.tuning import plot_tuning

        return plot_tuning(self)

    def config(self) -> dict[str, Any]:
        """Return the best configuration as the sections of an experiment file, without the problem."""
        best = self.best_trial
        tuned = {
            "task": self.task,
            "metric": self.measured,
            "score": best.score,
            "spread": best.spread,
            "search": self.search,
            "trials": len(self.trials),
            "seeds": list(self.seeds),
            "rounds": self.rounds,
            "edges": dict(self.edges),
        }
        if self.target is not None:
            tuned |= {"target": self.target, "rounds_to": best.rounds_to}
        settings = {name: value for name, value in self.algorithm.settings().items() if name != "uploads" or value}
        run = {"clients_per_round": self.clients_per_round, "rounds": self.rounds, "dtype": self.dtype}
        name = name_of(type(self.algorithm), self.algorithm.label)
        return {"algorithm": {"name": name, **settings}, "simulation": run, "tuned": tuned}

    def save(self, folder: str | Path, problem: Sections | None = None) -> list[Path]:
        """Write trials.csv, tuning.png, tuning.svg and best.toml; return their paths.

        Args:
          folder: the folder to write to; made if missing.
          problem: further sections of best.toml, such as the problem that ``losac run`` is to solve.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        table, picture, drawing, best = (
            folder / name for name in ("trials.csv", "tuning.png", "tuning.svg", "best.toml")
        )
        write_whole(table, self.to_frame().to_csv(index=False))
        figure = self.plot()
        write_picture(figure, picture)
        write_picture(figure, drawing)
        found, said = self.config(), problem or {}
        sections = {name: {**said.get(name, {}), **found.get(name, {})} for name in dict.fromkeys([*said, *found])}
        write_whole(best, to_toml(sections))
        return [table, picture, drawing, best]

    def __repr__(self) -> str:
        best, at = self.best_trial, ", ".join(f"{k}={v:g}" if _real(v) else f"{k}={v}" for k, v in self.best.items())
        on_edge = [name for name, end in self.edges.items() if end in ("low", "high")]
        edges = f"; on the edge: {', '.join(on_edge)}" if on_edge else ""
        return (
            f"Tuning({self.start.label} on {self.task}, {len(self.trials)} trials, {self.diverged} diverged: "
            f"{self.measured} {best.score:.4g} at {at}{edges})"
        )


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
