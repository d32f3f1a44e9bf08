"""Live progress of runs: bars in a terminal, a few plain lines elsewhere; always on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from losac.cli.errors import say
from losac.cli.output import human_bytes, human_seconds

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


class Pace:
    """The pace of a run: its rounds since its first report, without compilation or earlier parts."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def rate(self, done: int) -> float | None:
        """Return rounds per second, given the round that was reached; None if it cannot be known yet."""
        now = time.perf_counter()
        if self._first is None:
            self._first = done, now
        since, at = self._first
        return (done - since) / (now - at) if done > since and now > at else None


def measured(history: History) -> str:
    """Return what a run has reached."""
    shown = [name for name in ("loss", "accuracy") if name in history.metrics]
    return ", ".join(f"{name} {history.final(name):.4g}" for name in shown)


def speed(rate: float | None) -> str:
    """Return a pace in words; a slow one as seconds per round.

    >>> speed(1234.5), speed(12.34), speed(0.05), speed(None)
    ('1,234 rounds/s', '12.3 rounds/s', '20 s per round', '– rounds/s')
    """
    if rate is None:
        return "– rounds/s"
    if rate < 0.5:
        return f"{1 / rate:.3g} s per round"
    return f"{rate:,.0f} rounds/s" if rate >= 100 else f"{rate:.3g} rounds/s"


def traffic(history: History) -> str:
    """Return what the clients have sent and received so far."""
    return f"{human_bytes(float(history.bytes_up[-1]))} up, {human_bytes(float(history.bytes_down[-1]))} down"


def _lines(name: str, rounds: int) -> Report:
    pace, last = Pace(), time.perf_counter()

    def report(history: History) -> None:
        nonlocal last
        now, done = time.perf_counter(), int(history.rounds[-1])
        rate = pace.rate(done)
        if done < rounds and now - last < _SECONDS_BETWEEN_LINES:
            return
        last = now
        left = f", {human_seconds((rounds - done) / rate)} left" if rate and done < rounds else ""
        say(f"{name}: round {done} of {rounds}, {measured(history)}, {speed(rate)}, {traffic(history)}{left}")

    return report
