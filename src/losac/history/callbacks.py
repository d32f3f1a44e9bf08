"""Callbacks that follow a run: trackers, folders, early stopping, and what users write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from losac.history.history import History

End = Literal["finished", "stopped", "diverged", "failed"]


class Start(NamedTuple):
    """What identifies a run, and the rounds it goes through; ``first`` is not 0 if it continues an earlier one."""

    algorithm: str
    settings: Mapping[str, Any]
    task: str
    seed: int
    first: int
    last: int
    conditions: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Moment:
    """A run between two calls of its program, after one or more evaluations.

    ``history`` is the record so far, without the model. ``state()`` copies all that is needed to continue to the host:
    the server's and the clients' state and the random key. Give it to :func:`losac.simulate` as ``state``.
    """

    history: History
    last: int
    state: Callable[[], Any] = field(repr=False)
    stopping: bool = False

    @property
    def round(self) -> int:
        """The round that was evaluated last."""
        return int(self.history.rounds[-1])

    def stop(self) -> None:
        """Let the run end here, as if it had reached its last round."""
        self.stopping = True


class Callback:
    """Receives a run's start, every call of its program, and its end; override the methods you need.

    A callback that raises ends the run with its error, after all callbacks have received the end.

    >>> import losac
    >>> class Enough(losac.Callback):
    ...     def on_evaluation(self, moment):
    ...         if moment.history.final("accuracy") > 0.8:
    ...             moment.stop()
    >>> data = losac.data.load("digits", clients=10, partition="iid")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> run = losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=1000, eval_every=10, callbacks=[Enough()])
    >>> bool(run.rounds[-1] < 1000)
    True
    """

    def on_start(self, start: Start) -> None:
        """Receive a run before its first round."""

    def on_evaluation(self, moment: Moment) -> None:
        """Receive what was measured since the last call: about once a second, so often several evaluations."""

    def on_end(self, history: History | None, end: End) -> None:
        """Receive the end; the history has the model if the run finished or was stopped, None without any."""
