"""Figures of curves over the rounds: one panel for each setting, one line and band for each algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.reproduce.looks import line_of, plain_log
from losac.reproduce.parts.sensitivity import BLOCKS, LONG, MEMBERS, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Entry = tuple[str, str, Sequence[int], Mapping[str, Runs]]
"""A panel: its title, the metric, the rounds, and the runs by algorithm."""


def draw_panels(rows: Sequence[Sequence[Entry]]) -> Drawing:
    """Return a figure of panels in rows; those with the same metric have the same scale."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing((2.5 * len(rows[0]) + 0.6, 2.1 * len(rows) + 0.9), layout="constrained")
    entries = [entry for row in rows for entry in row]
    one_metric = len({metric for _, metric, _, _ in entries}) == 1
    grid: Any = drawing.subplots(
        len(rows), len(rows[0]), squeeze=False, sharey="all" if one_metric else "row", sharex=True
    )
    for axes_row, row in zip(grid, rows):
        for axes, (title, metric, rounds, found) in zip(axes_row, row):
            _panel(axes, metric, rounds, found)
            axes.set_title(title, fontsize=9)
        _scale(axes_row[0], entries if one_metric else row)
    for axes in grid[-1]:
        axes.set_xlabel("round")
    drawn = [method for method in MEMBERS if any(method in entry[3] for row in rows for entry in row)]
    drawing.legend(
        [_line(method) for method in drawn],
        [MEMBERS[method] for method in drawn],
        loc="outside lower center",
        ncols={1: 2, 2: 3, 3: 4}.get(len(rows[0]), len(drawn)),
        columnspacing=1.2,
        handlelength=2.6,
    )
    return drawing


def about(panels: str) -> str:
    """Return a caption that says what the lines are."""
    return (
        f"{panels}. Lines: mean over the seeds; bands: least and greatest. All at the paper's step size η; SCAFFOLD "
        f"with server step M = {BLOCKS} takes steps as long as LoSAC's."
    )


def _look(method: str) -> dict[str, Any]:
    return line_of(method, linewidth=1.0 if method == LONG else 1.5)


def _line(method: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **_look(method))


def _panel(axes: Axes, metric: str, rounds: Sequence[int], found: Mapping[str, Runs]) -> None:
    """Draw the mean over the runs that are still finite, their range, and a cross where the first was lost."""
    lost = []
    for method in sorted(found, key=list(MEMBERS).index, reverse=True):
        values = np.array([run[metric] for run in found[method]], float)
        finite = np.isfinite(values)
        there = finite.any(0)
        kept = np.ma.masked_invalid(values[:, there])
        at, mean, look = np.asarray(rounds)[there], kept.mean(0), _look(method)
        axes.plot(at, mean, **look)
        if len(values) > 1:
            alpha = 0.07 if method == LONG else 0.12
            axes.fill_between(at, kept.min(0), kept.max(0), color=look["color"], alpha=alpha, linewidth=0)
        if number := sum(run["diverged"] is not None for run in found[method]):
            end = max(int(finite.all(0).sum()) - 1, 0)
            axes.plot(at[end], mean[end], "x", color=look["color"], markersize=7, markeredgewidth=2)
            lost.append(f"{MEMBERS[method]} ({number} of {len(values)})")
    if lost:
        axes.text(
            0.97, 0.97 if metric == "loss" else 0.03, "diverged (×):\n" + "\n".join(lost), fontsize=7,
            ha="right", va="top" if metric == "loss" else "bottom", transform=axes.transAxes,
        )  # fmt: skip


def _scale(axes: Axes, entries: Sequence[Entry]) -> None:
    """Show losses on a logarithmic scale that a run on its way to infinity does not stretch, accuracies from where
    they are after the first twentieth of the rounds.
    """
    metric = entries[0][1]
    axes.set_ylabel("training loss" if metric == "loss" else "test accuracy")
    runs = [run for entry in entries for found in entry[3].values() for run in found]
    if metric != "loss":
        late = [
            value
            for entry in entries
            for found in entry[3].values()
            for run in found
            for at, value in zip(entry[2], run["accuracy"])
            if value is not None and at >= entry[2][-1] / 20
        ]
        axes.set_ylim(bottom=max(0.0, min(late) - 0.05) if late else None)
        return
    values = [value for run in runs for value in run["loss"] if value is not None]
    axes.set_yscale("log")
    axes.set_ylim(0.8 * max(min(values), 1e-4), 1.5 * max(run["loss"][0] for run in runs))
    low, high = axes.get_ylim()
    plain_log(axes.yaxis, (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 2.0, 3.0, 4.0, 5.0, 7.0))
