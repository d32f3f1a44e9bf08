"""One look for all figures and pages: colours that are distinct with every common colour vision, and line styles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from losac._costs import AXES


class Style(NamedTuple):
    """A colour, the marker and dashes of matplotlib, and the dashes of SVG."""

    colour: str
    marker: str
    dashes: Any
    svg_dash: str


# Okabe and Ito's palette without its yellow, which is too pale for a line on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# The same hues, lighter where they would drown on a dark page.
_DARK = ("#2E9BE6", "#F0803C", "#1DBF91", "#E29BC3", "#9AD4F7", "#F2B632", "#F2F2F2")
_DASHES: tuple[tuple[Any, str], ...] = (
    ("-", ""),
    ((0, (5, 2)), "8 3"),
    ((0, (5, 1.5, 1, 1.5)), "8 3 2 3"),
    ((0, (1.2, 1.2)), "2 2"),
    ((0, (8, 2, 1, 2, 1, 2)), "12 3 2 3 2 3"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "*")
_NAMES = {
    "loss": "training loss",
    "test_loss": "test loss",
    "accuracy": "test accuracy",
    **{name: axis.title for name, axis in AXES.items()},
}


def style(index: int) -> Style:
    """Return the look of the index-th line; colours repeat after 7, whole looks only after 35.

    >>> style(0) != style(7)
    True
    """
    return Style(_COLOURS[index % len(_COLOURS)], _MARKERS[index % len(_MARKERS)], *_DASHES[index % len(_DASHES)])


def colour_place(index: int) -> int:
    """Return which of the colours the index-th line has."""
    return index % len(_COLOURS)


def css_colours() -> str:
    """Return the colours as variables of a style sheet, for light pages and paper, and for dark ones."""
    light, dark = ("".join(f"--c{i}: {c}; " for i, c in enumerate(colours)) for colours in (_COLOURS, _DARK))
    return f":root {{ {light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}"


def shown(value: Any) -> str:
    """Return a setting's value as a user would write it, without the last bits of its numbers.

    >>> shown(0.7 + (0.7 - 0.5)), shown((0.1 + 0.2, 1)), shown({"share": 1 - 0.1}), shown(1_234_567)
    ('0.9', '[0.3, 1]', '{share: 0.9}', '1234567')
    """
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, bool | str) or value is None:
        return str(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {shown(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    if getattr(value, "ndim", 1) == 0:
        value = value.item()
    return f"{value:g}" if isinstance(value, float) else str(value)


def name_of(quantity: str) -> str:
    """Return what an axis calls a metric or an axis."""
    return _NAMES.get(quantity, quantity.replace("_", " "))
