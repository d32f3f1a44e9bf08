"""Collects what an engine measures, and turns it into histories."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from losac._costs import COSTS, by_name
from losac.algorithms.contract import Algorithm
from losac.history.conditions import of_algorithm, of_earlier
from losac.history.history import NOT_KEPT, History
from losac.history.measured import Measurements
from losac.trees import Tree


class Header(NamedTuple):
    """What identifies a run and prices its rounds.

    ``price`` returns what the pieces of a measurement cost, which begin after a round: [pieces, costs].
    """

    algorithm: Algorithm
    task: str
    seed: int
    price: Callable[[Measurements, int], np.ndarray]
    conditions: Mapping[str, Any]
    loss_every: int = 1


class Recorder:
    """The growing record of one run; what lies beyond a divergence is left out."""

    def __init__(self, header: Header, start: int, rounds: int, earlier: History | None = None) -> None:
        self.header = header
        self.conditions = {"rounds": start + rounds, **header.conditions, **of_algorithm(header.algorithm)}
        if start and earlier is None:
            self.conditions["first_round"] = start
        self.began = time.perf_counter()
        self.start = self.last = start
        self.rounds: list[int] = []
        self.metrics: dict[str, list[float]] = {}
        self.totals: list[np.ndarray] = []  # each [costs]
        self.seconds: list[float] = []
        self.spent = np.zeros(len(COSTS))
        self.diverged: int | None = None
        self.expected: frozenset[str] | None = None
        """The names of the series that the record continues."""
        self.blame = ""
        """Why it diverged, if the step size is not to blame."""
        if earlier is not None:
            self._go_on(earlier)
            self.conditions |= of_earlier(earlier, header.algorithm.settings(), self.conditions)

    def _go_on(self, earlier: History) -> None:
        """Continue the record of an earlier part of the run, its time included."""
        mine = (self.header.algorithm.label, self.header.task, self.header.seed, self.last)
        theirs = (earlier.algorithm, earlier.task, earlier.seed, int(earlier.rounds[-1]))
        for name, own, other in zip(("algorithm", "task", "seed", "last round"), mine, theirs):
            if own != other:
                raise ValueError(f"the given history is of another run: its {name} is {other!r}, here it is {own!r}")
        self.rounds = earlier.rounds.tolist()
        self.metrics = {name: series.tolist() for name, series in earlier.metrics.items()}
        self.totals = list(np.stack([earlier.costs[name] for name in COSTS], axis=1).astype(float))
        self.spent = self.totals[-1]
        self.seconds = earlier.seconds.tolist()
        self.began -= self.seconds[-1]
        self.expected = frozenset(earlier.metrics)

    def add(self, measured: Measurements) -> None:
        """Add one call of the program."""
        if self.diverged is not None:
            return
        if measured.evaluated.any():
            self._check_series({*measured.metrics, *measured.whole})
        now = time.perf_counter() - self.began
        prices = self.header.price(measured, self.last)
        for e, stop in enumerate(measured.rounds.tolist()):
            for name in sorted({*measured.metrics, *measured.whole}):
                self.metrics.setdefault(name, [])
            if 0 <= measured.broken <= stop:
                self.diverged = measured.broken
                return
            values = {name: float(series[e]) for name, series in measured.metrics.items()}
            if measured.evaluated[e] and not self._finite(values, stop):
                self.diverged = stop
                return
            self.spent = self.spent + prices[e]
            self.last = stop
            if measured.evaluated[e]:
                self.totals.append(self.spent)
                self.rounds.append(stop)
                self.seconds.append(now)
                whole = {name: float(series[e]) for name, series in measured.whole.items()}
                for name, value in (values | whole).items():
                    self.metrics[name].append(value)

    def _check_series(self, names: Collection[str]) -> None:
        """Refuse to continue a record of other series, which would become unequally long."""
        if self.expected is not None and self.expected != set(names):
            raise ValueError(
                f"the given history is of a run that measured {', '.join(sorted(self.expected))}, and this one "
                f"measures {', '.join(sorted(names))}: use the same test rows and metrics, or begin another record, "
                "with state=history.state"
            )

    def _finite(self, values: Mapping[str, float], stop: int) -> bool:
        """Whether what was measured is finite; NaN in the training loss may also mean that it was not evaluated.

        Before any round, a value that is not finite is an error of the task. An infinite objective with a finite loss
        is neither: the model is outside of a constraint's set, such as a box, where many methods start.
        """
        due = stop % self.header.loss_every == 0
        outside = np.isposinf(values.get("objective", 0.0)) and np.isfinite(values["loss"])
        skipped = ("objective",) if outside else () if due else ("loss", "objective")
        bad = [name for name, value in values.items() if not np.isfinite(value) and name not in skipped]
        if not bad:
            return True
        name = next((name for name in ("loss", "objective", "test_loss") if name in bad), bad[0])
        what = f"{_WORDS.get(name, f'the metric {name!r}')} is {values[name]}"
        if stop == self.start:
            raise ValueError(f"{what} at the start, before any step: look at the {_SUSPECTS.get(name, _METRIC)}")
        if name not in ("loss", "objective"):
            known = "the parameters and the training loss are" if due else "the parameters are"
            self.blame = (
                f"{what}, while {known} finite: look at the {_SUSPECTS.get(name, _METRIC)}, not at the step size"
            )
        return False

    def history(self, params: Tree = None, model_state: Tree = None, state: Any = NOT_KEPT) -> History:
        """Return the history so far, with the model if it is given."""
        return History(
            algorithm=self.header.algorithm.label,
            settings=self.header.algorithm.settings(),
            task=self.header.task,
            seed=self.header.seed,
            rounds=np.array(self.rounds, int),
            metrics={name: np.array(series) for name, series in self.metrics.items()},
            costs=by_name(self.totals),
            seconds=np.array(self.seconds),
            params=params,
            model_state=model_state,
            diverged=self.diverged,
            state=state,
            conditions=self.conditions,
        )


_WORDS = {"loss": "the training loss", "objective": "the objective", "test_loss": "the test loss"}
_METRIC = "metric, which must return a finite number, such as 0 if it is not defined"
_SUSPECTS = {
    "loss": "loss, the training data and the initial parameters, and whether their numbers suit the run's dtype",
    "objective": "regulariser",
    "test_loss": "test data, and the loss on them",
}
