"""The live view of runs in a terminal: their names, progress, results and costs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from losac._units import human_seconds
from losac.cli.progress import Begin, Report
from losac.history.live import Pace, measured, speed, traffic

if TYPE_CHECKING:
    from losac.history import History


class _Left(ProgressColumn):
    """The remaining time, by the pace of the current run."""

    def render(self, task: Task) -> RenderableType:
        left = task.fields["left"]
        return Text(f"{human_seconds(left)} left" if left else "", style="progress.remaining")


class _View(Progress):
    """The bars, between the name of the run and its results so far."""

    name, reached = "", ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield Text(self.name, style="bold", overflow="ellipsis", no_wrap=True)
        yield self.make_tasks_table(self.tasks)
        yield Text(self.reached)


@contextlib.contextmanager
def live(console: Console, runs: int, rounds: int) -> Iterator[Begin]:
    """Yield a function that begins a run in the view; the view disappears at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Left())
    with _View(*columns, console=console, transient=True) as view:
        current = view.add_task("rounds", total=rounds, left=None)
        overall = view.add_task("all runs", total=runs * rounds, left=None, visible=runs > 1)
        begun = 0

        def begin(name: str, start: int = 0) -> Report:
            nonlocal begun
            before, begun = begun * rounds, begun + 1
            pace = Pace()
            view.name, view.reached = name, "compiling …"
            view.update(current, completed=start, left=None)
            view.update(overall, completed=before + start)

            def report(history: History) -> None:
                done = int(history.rounds[-1])
                rate = pace.rate(done)
                view.reached = f"{measured(history)}, {speed(rate)}, {traffic(history)}"
                here, all_ = rounds - done, runs * rounds - before - done
                view.update(current, completed=done, left=here / rate if rate else None)
                view.update(overall, completed=before + done, left=all_ / rate if rate else None)

            return report

        yield begin
