"""Figures of runs, made without pyplot and so without global state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from losac._checks import check_list
from losac.history import History
from losac.metrics import falls
from losac.report.checks import check_target
from losac.report.groups import AxisName, RunGroup, default_metrics, group_histories, headline_metric, mean_curve
from losac.report.style import name_of, style
from losac.report.tables import seeds_told

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_histories(
    histories: Sequence[History], metrics: Sequence[str] | None = None, labels: Sequence[str] | None = None
) -> Figure:
    """Draw one panel per metric over the rounds.

    Equal runs (:func:`group_histories`) are one line, the mean over their seeds, with a band from the least to the
    greatest value; runs with the same label are, where labels are given. Diverged runs end in a ×.

    Args:
      histories: the runs.
      metrics: which to draw; the loss and the task's own metrics by default.
      labels: one for each run.
    """
    groups = group_histories(histories, labels)
    chosen = (
        check_list("metrics", metrics, "a list of names of metrics") if metrics else default_metrics(groups[0].runs[0])
    )
    figure, panels = _panels(1, len(chosen), width=5.2 * len(chosen), height=3.9)
    for panel, metric in zip(panels, chosen):
        _draw(panel, groups, metric, "rounds")
    _finish(figure, panels, groups)
    return figure


def plot_comparison(
    histories: Sequence[History], *, labels: Sequence[str] | None = None, target: float | None = None
) -> Figure:
    """Draw four panels: the loss, and the accuracy over rounds, bytes and gradients.

    Tasks without an accuracy show their last metric instead. A target is a thin dotted line.
    """
    groups = group_histories(histories, labels)
    check_target(target)
    metric = headline_metric(histories)
    figure, panels = _panels(2, 2, width=10.4, height=7.4)
    for panel, (quantity, axis) in zip(panels, comparison_panels(metric)):
        _draw(panel, groups, quantity, axis)
        if target is not None and quantity == metric:
            panel.axhline(target, color="0.4", linewidth=0.9, linestyle=":", zorder=1, label="_target")
    _finish(figure, panels, groups)
    return figure


def comparison_panels(metric: str) -> tuple[tuple[str, AxisName], ...]:
    """Return what a comparison shows: the loss over rounds, and the metric over all that it may cost."""
    return (("loss", "rounds"), (metric, "rounds"), (metric, "bytes"), (metric, "gradients"))


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    return figure, list(np.ravel(figure.subplots(rows, columns)))


def _draw(panel: Axes, groups: Sequence[RunGroup], metric: str, axis: AxisName) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

    for index, group in enumerate(groups):
        look = style(index)
        curve = mean_curve(group, metric, axis)
        label = f"{group.label} ({group.fate})" if group.fate else group.label
        panel.plot(
            curve.x,
            curve.mean,
            color=look.colour,
            linestyle=look.dashes,
            linewidth=1.8,
            marker=look.marker,
            markersize=5.5,
            markevery=(0.15 * index / len(groups), 0.15),
            label=label,
        )
        if len(group.runs) > 1:
            panel.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.15, linewidth=0)
        if any(run.diverged is not None for run in group.runs) and len(curve.x):
            panel.plot(
                curve.x[-1:],
                curve.mean[-1:],
                color=look.colour,
                marker="x",
                markersize=9,
                markeredgewidth=2.4,
                label="_×",
                clip_on=False,
            )
    if falls(metric):
        panel.set_yscale("log")
    elif metric == "accuracy":
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.set_xlabel(name_of(axis))
    panel.set_ylabel(name_of(metric))
    panel.margins(x=0.01)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=axis == "rounds"))
    if axis != "rounds":
        panel.xaxis.set_major_formatter(EngFormatter("B" if axis == "bytes" else ""))
    panel.grid(True, which="both" if falls(metric) else "major", color="0.9", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _finish(figure: Figure, panels: Sequence[Axes], groups: Sequence[RunGroup]) -> None:
    """Put one legend under all panels, and say what the bands are."""
    handles, names = panels[0].get_legend_handles_labels()
    columns = min(len(names), 2 if len(panels) == 1 else 3)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.5)
    run = groups[0].runs[0]
    told = seeds_told([group.runs for group in groups])
    spread = f"; mean of {told}, band from least to greatest" if told else ""
    figure.suptitle(f"{run.task}{spread}", fontsize="medium", x=0.01, ha="left")
