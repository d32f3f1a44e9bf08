"""Figures: one function draws all of them, from panels that are lists of marks; and one look for each method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from losac.report.style import Style, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

_DASHED, _DOTTED, _CHAIN = (0, (5, 2)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5))
_LOOKS: dict[str, Style] = {
    **{
        name: style(index)
        for index, name in enumerate(
            ("losac", "scaffold", "mime_svrg", "fedcm", "fedavg", "fedsaga", "scaffold_long")
        )
    },
    "fedsaga_mean": Style(style(5).colour, "v", _DOTTED, "2px,2px"),
    "fedsaga_printed": Style(style(5).colour, "v", _DASHED, "8px,3px"),
    "losac_exact": Style("#332288", "X", _DASHED, "8px,3px"),
    "losac_damped": Style("#8B6FD6", "p", _CHAIN, "8px,3px,2px,3px"),
    "losac_printed": Style("#8B6FD6", "p", _DASHED, "8px,3px"),
    "local_svrg": Style("#8C564B", ">", _CHAIN, "8px,3px,2px,3px"),
    "fedprox": Style("#999999", "<", _DOTTED, "2px,2px"),
    "dsgd": Style("#555555", "d", "-", "solid"),
    "feddualavg": Style("#882255", "h", _DOTTED, "2px,2px"),
    "fedmid": Style("#44AA99", "P", _DASHED, "8px,3px"),
    "feddyn": Style("#AA4499", "v", _CHAIN, "8px,3px,2px,3px"),
    "fedadmm": Style("#999933", "H", "-", "solid"),
    "fedadmm_exact": Style("#999933", "H", _DASHED, "8px,3px"),
}  # fmt: skip

Mark = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of matplotlib's axes, and its arguments."""


class Panel(NamedTuple):
    """One pair of axes.

    Args:
      marks: what is drawn, in this order.
      axes: what ``Axes.set`` takes.
      plain: for which axes (``x``, ``y``) a logarithmic scale is has plain numbers, and at which of each decade.
      finish: what else is done to the axes.
    """

    marks: Sequence[Mark] = ()
    axes: Mapping[str, Any] = {}
    plain: Mapping[str, tuple[float, ...]] = {}
    finish: Callable[[Axes], None] | None = None


def mark(kind: str, *arguments: Any, **look: Any) -> Mark:
    """Return a mark: ``plot``, ``errorbar``, ``axhline``, ``imshow`` and so on."""
    return kind, arguments, look


def draw(
    rows: Sequence[Sequence[Panel]],
    size: tuple[float, float],
    *,
    legend: Mapping[str, Any] | None = None,
    handles: Mapping[str, Any] | None = None,
    finish: Callable[[Drawing], object] | None = None,
    layout: Literal["constrained", "compressed", "tight"] | None = "constrained",
    **grid: Any,
) -> Drawing:
    """Return a figure of panels in rows.

    Args:
      rows: the panels; a row may be shorter than the first.
      size: in inches.
      legend: what ``Figure.legend`` takes, for one legend of all labels; none by default.
      handles: what else the legend has, or has instead under the same label.
      finish: what else is done to the figure.
      layout: matplotlib's.
      grid: what ``Figure.subplots`` takes, such as ``sharey``.
    """
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(size, layout=layout)
    drawn = drawing.subplots(len(rows), len(rows[0]), squeeze=False, **grid)
    pairs = [(axes, panel) for line, row in zip(drawn, rows) for axes, panel in zip(line, row)]
    for axes, panel in pairs:
        for kind, arguments, look in panel.marks:
            getattr(axes, kind)(*arguments, **look)
    for axes, panel in pairs:
        axes.set(**panel.axes)
    for axes, panel in pairs:
        for axis, subs in panel.plain.items():
            plain_log(getattr(axes, f"{axis}axis"), subs)
        if panel.finish is not None:
            panel.finish(axes)
    for axes in (axes for line, row in zip(drawn, rows) for axes in line[len(row) :]):
        axes.set_axis_off()
    if legend is not None:
        found = {label: handle for axes in drawing.axes for handle, label in zip(*axes.get_legend_handles_labels())}
        found |= handles or {}
        drawing.legend(list(found.values()), list(found), **legend)
    if finish is not None:
        finish(drawing)
    return drawing


def look_of(method: str) -> Style:
    """Return the look of a method or of a variant of it, the same in every figure.

    >>> look_of("losac") == look_of("losac"), look_of("losac") == look_of("scaffold")
    (True, False)
    """
    return _LOOKS[method]


def line_of(look: str | int, *, marker: bool = False, **changes: Any) -> dict[str, Any]:
    """Return the look of a method's line, or of the index-th line, as the keywords of matplotlib's plot."""
    found = style(look) if isinstance(look, int) else look_of(look)
    keywords = {"color": found.colour, "linestyle": found.dashes}
    return keywords | ({"marker": found.marker, "markersize": 4} if marker else {}) | changes


def handle(**look: Any) -> Any:
    """Return a line for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **look)


DECADE = (1.0, 2.0, 5.0)


def plain_log(axis: Axis, subs: tuple[float, ...] = DECADE) -> None:
    """Label a logarithmic axis at 1, 2 and 5 of each decade, as 0.05 rather than 5 × 10⁻²."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
