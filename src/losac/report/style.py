"""One look for all figures: colours that every common colour vision tells apart, and a line style besides."""

from __future__ import annotations

from typing import Any, NamedTuple


class Style(NamedTuple):
    """A colour, the marker and dashes of matplotlib, and the dashes of plotly."""

    colour: str
    marker: str
    dashes: Any
    plotly_dash: str


# Okabe and Ito's palette without its yellow, which is too pale for a line on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES: tuple[tuple[Any, str], ...] = (
    ("-", "solid"),
    ((0, (5, 2)), "8px,3px"),
    ((0, (5, 1.5, 1, 1.5)), "8px,3px,2px,3px"),
    ((0, (1.2, 1.2)), "2px,2px"),
    ((0, (8, 2, 1, 2, 1, 2)), "12px,3px,2px,3px,2px,3px"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "*")
_NAMES = {
    "loss": "training loss",
    "test_loss": "test loss",
    "accuracy": "test accuracy",
    "rounds": "round",
    "bytes": "bytes sent, up and down",
    "gradients": "single-sample gradients",
}


def style(index: int) -> Style:
    """Return the look of the index-th line; colours repeat after 7, whole looks only after 35.

    >>> style(0) != style(7)
    True
    """
    return Style(_COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)], *_DASHES[index % len(_DASHES)])


def name_of(quantity: str) -> str:
    """Return what an axis calls a metric or an axis."""
    return _NAMES.get(quantity, quantity.replace("_", " "))
