"""Live progress of runs: bars in a terminal, a few plain lines elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from losac.cli.errors import say

if TYPE_CHECKING:
    from losac.history import History

Report = Callable[["History"], None]
_SECONDS_BETWEEN_LINES = 5.0


class Begin(Protocol):
    """Takes the name of a run that begins, and the round where its bar starts; returns the function to report to."""

    def __call__(self, name: str, start: int = 0) -> Report:
        """Begin a run."""


@contextlib.contextmanager
def progress(runs: int, rounds: int, *, shown: bool) -> Iterator[Begin]:
    """Yield a function that takes the name of each run as it begins and returns the function to report to.

    ``rounds`` is the last round of each run, also of one that continues from an earlier round.
    """
    if not shown:
        yield lambda name, start=0: lambda history: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        from losac.cli.live import live

        with live(console, runs, rounds) as begin:
            yield begin
    else:
        yield lambda name, start=0: _lines(name, rounds)


def _lines(name: str, rounds: int) -> Report:
    from losac.history.live import Pace, told

    pace, last = Pace(), time.perf_counter()

    def report(history: History) -> None:
        nonlocal last
        now, done = time.perf_counter(), int(history.rounds[-1])
        rate = pace.rate(done)
        complete = done in (rounds, history.planned)
        if not complete and now - last < _SECONDS_BETWEEN_LINES:
            return
        last = now
        say(told(name, history, rounds, rate))

    return report
