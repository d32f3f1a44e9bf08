"""Calls the callbacks of a run: at its start, after every call of its program, and at its end, also after an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from losac.history.callbacks import Callback, End, Moment, Start
from losac.history.history import DivergedError, History
from losac.history.recorder import Recorder


class _Notifier:
    """Called after every call of the program with a way to its state; returns whether to stop."""

    def __init__(self, callbacks: Sequence[Callback], recorder: Recorder, last: int) -> None:
        self.callbacks, self.recorder, self.last = callbacks, recorder, last
        self.result: History | None = None
        self.early = False

    def __call__(self, state: Callable[[], Any]) -> bool:
        if not self.callbacks:
            return False
        moment = Moment(self.recorder.history(), self.last, state)
        for callback in self.callbacks:
            callback.on_evaluation(moment)
        return moment.stopping

    def finished(self, history: History, *, early: bool = False) -> None:
        """Receive the result; with ``early`` the run is complete before its last round."""
        self.result, self.early = history, early


@contextmanager
def notifying(callbacks: Sequence[Callback], recorder: Recorder, first: int, last: int) -> Iterator[_Notifier]:
    """Notify of the start, yield a notifier for the rest, and notify of the end."""
    algorithm = recorder.header.algorithm
    head, about = recorder.header, recorder.conditions
    start = Start(algorithm.label, algorithm.settings(), head.task, head.seed, first, last, about)
    notify = _Notifier(callbacks, recorder, last)
    begun: list[Callback] = []
    now = time.perf_counter()
    try:
        for callback in callbacks:
            callback.on_start(start)
            begun.append(callback)
        recorder.began += time.perf_counter() - now  # opening a tracker takes seconds that are not the run's
        yield notify
    except BaseException as error:
        end: End = "diverged" if isinstance(error, DivergedError) else "failed"
        for callback in begun:
            callback.on_end(recorder.history() if recorder.rounds else None, end)
        raise
    assert notify.result is not None
    complete = notify.early or notify.result.rounds[-1] >= last
    for callback in begun:
        callback.on_end(notify.result, "finished" if complete else "stopped")
