"""One look for each method in the figures of all studies, and ticks that read as plain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from losac.report.style import Style, style

if TYPE_CHECKING:
    from matplotlib.axis import Axis

_DASHED, _DOTTED, _CHAIN = (0, (5, 2)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5))
_LOOKS: dict[str, Style] = {
    **{
        name: style(index)
        for index, name in enumerate(
            ("losac", "scaffold", "mime_svrg", "fedcm", "fedavg", "fedsaga", "scaffold_long")
        )
    },
    "losac_exact": Style("#332288", "X", _DASHED, "8px,3px"),
    "losac_damped": Style("#8B6FD6", "p", _CHAIN, "8px,3px,2px,3px"),
    "losac_printed": Style("#8B6FD6", "p", _DASHED, "8px,3px"),
    "local_svrg": Style("#8C564B", ">", _CHAIN, "8px,3px,2px,3px"),
    "fedprox": Style("#999999", "<", _DOTTED, "2px,2px"),
    "dsgd": Style("#555555", "d", "-", "solid"),
    "feddualavg": Style("#882255", "h", _DOTTED, "2px,2px"),
    "feddyn": Style("#AA4499", "v", _CHAIN, "8px,3px,2px,3px"),
    "fedadmm": Style("#999933", "H", "-", "solid"),
    "fedadmm_exact": Style("#999933", "H", _DASHED, "8px,3px"),
}  # fmt: skip


def look_of(method: str) -> Style:
    """Return the look of a method or of a variant of it, the same in every figure.

    >>> look_of("losac") == look_of("losac"), look_of("losac") == look_of("scaffold")
    (True, False)
    """
    return _LOOKS[method]


def plain_log(axis: Axis, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Label a logarithmic axis at 1, 2 and 5 of each decade, as 0.05 rather than 5 × 10⁻²."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def line_of(method: str, **changes: Any) -> dict[str, Any]:
    """Return the look of a method's line, as the keywords of matplotlib's plot."""
    look = look_of(method)
    return {"color": look.colour, "linestyle": look.dashes} | changes
