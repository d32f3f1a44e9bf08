"""The comparison as plotly figures, for a page that is read on a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from losac.report import style
from losac.report.groups import Group

_FONT = {"family": "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif", "size": 13}


def interactive_figure(
    groups: Sequence[Group], metric: str, axis: str = "rounds", target: float | None = None
) -> Any:
    """Return a plotly figure of a metric over an axis, with the same looks as :mod:`losac.report.plots`."""
    import plotly.graph_objects as go

    figure = go.Figure()
    share = style.is_share(metric, groups)
    for index, member in enumerate(groups):
        for trace in _traces(member, index, metric, axis, share):
            figure.add_trace(trace)
    if target is not None:
        figure.add_hline(target, line={"color": "#777777", "width": 1, "dash": "dot"})
    lines = {"gridcolor": "#E6E6E6", "zeroline": False, "linecolor": "#888888"}
    figure.update_layout(
        template="none", font=_FONT, hovermode="closest", margin={"l": 62, "r": 12, "t": 8, "b": 46}, height=360,
        showlegend=False, paper_bgcolor="white", plot_bgcolor="white",
        xaxis={"title": {"text": style.AXIS_WORDS[axis]}, **lines},
        yaxis={"title": {"text": style.metric_words(metric)}, **lines},
    )  # fmt: skip
    if style.is_logarithmic(metric, groups):
        figure.update_yaxes(type="log", dtick=_log_ticks(groups, metric), exponentformat="power", minorloglabels="none")
    elif share:
        figure.update_yaxes(tickformat=".0%")
    return figure


def _traces(member: Group, index: int, metric: str, axis: str, share: bool) -> list[Any]:
    """Return a group's band, its curve, and a cross where it diverged."""
    import plotly.graph_objects as go

    look, curve = style.line(index), member.curve(metric, axis)
    if not len(curve.x):
        return []
    shared = {"legendgroup": member.label, "name": member.label}
    traces = []
    if len(member.runs) > 1:
        traces.append(
            go.Scatter(
                x=[*curve.x, *curve.x[::-1]], y=[*curve.high, *curve.low[::-1]], fill="toself",
                fillcolor=_pale(look.colour), line={"width": 0}, mode="lines", hoverinfo="skip", **shared,
            )
        )  # fmt: skip
    value = "%{y:.2%}" if share else "%{y:.4g}"
    traces.append(
        go.Scatter(
            x=[*curve.x], y=[*curve.mean], mode="lines",
            line={"color": look.colour, "width": 2.2, "dash": look.plotly_dash},
            hovertemplate=f"{member.label}<br>{style.AXIS_WORDS[axis]} %{{x:,}}<br>{value}<extra></extra>", **shared,
        )
    )  # fmt: skip
    if member.diverged is not None:
        traces.append(
            go.Scatter(
                x=[curve.x[-1]], y=[curve.mean[-1]], mode="markers", cliponaxis=False,
                marker={"symbol": "x", "size": 12, "color": look.colour},
                hovertemplate=f"{member.label}: {member.end}<extra></extra>", **shared,
            )
        )  # fmt: skip
    return traces


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _log_ticks(groups: Sequence[Group], metric: str) -> str | int:
    """Label every power of ten, and 2 and 5 between them where less than two decades are shown."""
    curves = [member.curve(metric) for member in groups]
    low, high = min(c.low.min() for c in curves), max(c.high.max() for c in curves)
    return "D2" if high / low < 100 else 1
