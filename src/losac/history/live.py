"""The progress of a run in a line: its pace, what it has reached and sent, and the time that is left."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from losac._units import human_bytes, human_seconds
from losac.history.history import History


class Live:
    """A live line of a run, for ``losac.simulate(…, progress=losac.Live())``; it ends when the run does.

    >>> import io, losac
    >>> task = losac.regression(losac.models.linear(4), losac.data.quadratic(clients=4, samples=8, dim=4, seed=0))
    >>> fedavg = losac.algorithms.fedavg(step_size=1e-3, local_steps=2, blocks=2)
    >>> stream = io.StringIO()
    >>> _ = losac.simulate(task, fedavg, rounds=2, progress=losac.Live(stream))
    >>> stream.getvalue().startswith("\\rfedavg: round 0 of 2, loss ")
    True
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream, self.pace, self.width = stream or sys.stderr, Pace(), 0

    def __call__(self, history: History) -> None:
        """Write the line again, over itself."""
        done, rounds = int(history.rounds[-1]), history.planned
        line = told(history.algorithm, history, rounds, self.pace.rate(done))
        ended = "\n" if done == rounds else ""
        self.stream.write(f"\r{line.ljust(self.width)}{ended}")
        self.stream.flush()
        self.width = len(line)


def told(name: str, history: History, rounds: int | None, rate: float | None) -> str:
    """Return the line of a run with a name; ``rounds`` are planned, and ``rate`` of them are done in a second."""
    done = int(history.rounds[-1])
    planned = "" if rounds is None else f" of {rounds}"
    left = f", {human_seconds((rounds - done) / rate)} left" if rate and rounds is not None and done < rounds else ""
    reached = f"{measured(history)}, {speed(rate)}, {traffic(history)}"
    return f"{name}: round {done}{planned}, {reached}{left}"


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
