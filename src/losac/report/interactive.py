"""Plotly figures as plain dictionaries, drawn by the plotly.js that a page carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from losac.history.history import falls
from losac.report.groups import Axis, Group, mean_curve
from losac.report.style import name_of, style

_GRID = "#e6e6e6"


def chart(groups: Sequence[Group], metric: str, axis: Axis, target: float | None = None) -> dict[str, Any]:
    """Return one chart: a line per group with its band; the traces of a group share a ``legendgroup``."""
    traces = [trace for index, group in enumerate(groups) for trace in _traces(index, group, metric, axis)]
    y_axis: dict[str, Any] = {"title": {"text": name_of(metric)}, "gridcolor": _GRID, "zeroline": False}
    if falls(metric):
        y_axis |= {"type": "log", "dtick": "D2", "exponentformat": "power", "minor": {"ticks": "inside", "ticklen": 3}}
    elif metric == "accuracy":
        y_axis |= {"tickformat": ".0%"}
    x_axis: dict[str, Any] = {"title": {"text": name_of(axis)}, "gridcolor": _GRID, "zeroline": False}
    if axis != "rounds":
        x_axis |= {"tickformat": "~s", "ticksuffix": "B" if axis == "bytes" else ""}
    layout: dict[str, Any] = {
        "xaxis": {**x_axis, "rangemode": "tozero"},
        "yaxis": {**y_axis, "automargin": True},
        "margin": {"l": 56, "r": 12, "t": 30, "b": 48},
        "hovermode": "x unified" if axis == "rounds" else "closest",
        "showlegend": False,
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#222"},
    }
    if target is not None:
        line = {"color": "#666", "width": 1, "dash": "dot"}
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": target, "y1": target, "line": line}
        ]
    return {"data": traces, "layout": layout}


def _traces(index: int, group: Group, metric: str, axis: Axis) -> list[dict[str, Any]]:
    look, curve = style(index), mean_curve(group, metric, axis)
    common: dict[str, Any] = {"type": "scatter", "legendgroup": str(index), "name": group.label}
    line = {"color": look.colour, "dash": look.plotly_dash, "width": 2.2}
    unit = ":.1%" if metric == "accuracy" else ":.4g"
    hover = f"%{{y{unit}}}" if axis == "rounds" else f"{group.label}: %{{y{unit}}} at %{{x}}<extra></extra>"
    mean = {"x": _numbers(curve.x), "y": _numbers(curve.mean), "mode": "lines", "line": line, "hovertemplate": hover}
    traces = [common | mean]
    if len(group.runs) > 1:
        outline = {
            "x": _numbers(np.concatenate([curve.x, curve.x[::-1]])),
            "y": _numbers(np.concatenate([curve.high, curve.low[::-1]])),
        }
        fill = {"fill": "toself", "fillcolor": look.colour, "opacity": 0.15, "mode": "none", "hoverinfo": "skip"}
        traces.insert(0, common | outline | fill)
    if group.fate and len(curve.x):
        cross = {
            "mode": "markers",
            "cliponaxis": False,
            "marker": {"symbol": "x", "size": 11, "color": look.colour},
            "text": [group.fate],
        }
        end = {"x": _numbers(curve.x[-1:]), "y": _numbers(curve.mean[-1:]), "hovertemplate": "%{text}<extra></extra>"}
        traces.append(common | end | cross)
    return traces


def _numbers(values: np.ndarray) -> list[float]:
    """Return six digits of each number: enough for a chart, and a smaller page."""
    return [float(f"{value:.6g}") for value in values]
