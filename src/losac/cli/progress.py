"""Live progress of runs: bars in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from losac.cli.errors import say

if TYPE_CHECKING:
    from losac.history import History

Report = Callable[["History"], None]
Begin = Callable[[str], Report]
_SECONDS_BETWEEN_LINES = 5.0


@contextlib.contextmanager
def progress(runs: int, rounds: int, *, shown: bool) -> Iterator[Begin]:
    """Yield a function that is told the name of each run as it begins and returns whom to report to."""
    from rich.console import Console

    console = Console(stderr=True)
    if not shown:
        yield lambda name: lambda history: None
    elif console.is_terminal:
        with _bars(console, runs, rounds) as begin:
            yield begin
    else:
        yield lambda name: _lines(name, rounds)


@contextlib.contextmanager
def _bars(console: object, runs: int, rounds: int) -> Iterator[Begin]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measured]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bars:  # type: ignore[arg-type]
        overall = bars.add_task("all runs", total=runs * rounds, measured="", visible=runs > 1)
        current = bars.add_task("", total=rounds, measured="compiling …")
        begun = 0

        def begin(name: str) -> Report:
            nonlocal begun
            before, begun = begun * rounds, begun + 1
            bars.reset(current, description=name, total=rounds, measured="compiling …")
            bars.update(overall, completed=before)
            started = time.perf_counter()

            def report(history: History) -> None:
                done = int(history.rounds[-1])
                speed = f"{done / (time.perf_counter() - started):.1f} rounds/s"
                bars.update(current, completed=done, measured=f"{_measured(history)}, {speed}")
                bars.update(overall, completed=before + done)

            return report

        yield begin


def _lines(name: str, rounds: int) -> Report:
    started = last = time.perf_counter()

    def report(history: History) -> None:
        nonlocal last
        now, done = time.perf_counter(), int(history.rounds[-1])
        if done < rounds and now - last < _SECONDS_BETWEEN_LINES:
            return
        last = now
        left = (now - started) * (rounds - done) / max(done, 1)
        end = f", {left:.0f} s left" if done < rounds else ""
        say(f"{name}: round {done} of {rounds}, {_measured(history)}, {done / (now - started):.1f} rounds/s{end}")

    return report


def _measured(history: History) -> str:
    shown = [name for name in ("loss", "accuracy") if name in history.metrics]
    return ", ".join(f"{name} {history.final(name):.4g}" for name in shown)
