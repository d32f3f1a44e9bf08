"""Real rows next to those that attacks recovered, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.attacks.attack import Data
from losac.attacks.measures import decibels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COLUMNS = 12
"""How many images of a client are shown."""


def draw(pictures: Mapping[str, np.ndarray], data: Data) -> Figure:
    """Return a figure of rows, the real ones first: images, one on each place, or else maps of rows and features.

    Each is labelled with the median over its rows of their peak signal-to-noise ratio.

    Args:
      pictures: of :class:`losac.attacks.Audit`.
      data: what is known of the data: whether rows are images, and their range.
    """
    real = pictures["real"]
    low, high = data.box or (float(real.min()), float(real.max()))
    labels = {
        name: name
        if name == "real"
        else f"{name}\n{np.median(decibels(((rows - real) ** 2).mean(1), high - low)):.1f} dB"
        for name, rows in pictures.items()
    }
    shades: dict[str, Any] = {"vmin": low, "vmax": high, "interpolation": "nearest"}
    if data.image is None:
        return _maps(pictures, labels, shades)
    return _images(pictures, labels, data.image, shades)


def _images(
    pictures: Mapping[str, np.ndarray], labels: Mapping[str, str], shape: tuple[int, int], shades: dict[str, Any]
) -> Figure:
    from matplotlib.figure import Figure

    columns = min(len(pictures["real"]), MOST_COLUMNS)
    figure = Figure(figsize=(2.2 + 0.95 * columns, 0.95 * len(pictures)), layout="constrained")
    grid = figure.subplots(len(pictures), columns, squeeze=False)
    for line, (name, rows) in zip(grid, pictures.items()):
        for panel, row in zip(line, rows):
            panel.imshow(row.reshape(shape), cmap="gray", **shades)
            panel.set(xticks=[], yticks=[])
        line[0].set_ylabel(labels[name], rotation=0, ha="right", va="center", fontsize=9)
    return figure


def _maps(pictures: Mapping[str, np.ndarray], labels: Mapping[str, str], shades: dict[str, Any]) -> Figure:
    from matplotlib.figure import Figure

    rows = len(pictures["real"])
    height = max(0.7, min(0.16 * rows, 2.5))
    figure = Figure(figsize=(9, 0.6 + height * len(pictures)), layout="constrained")
    grid = figure.subplots(len(pictures), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (name, found) in zip(grid, pictures.items()):
        shown = panel.imshow(found, aspect="auto", cmap="viridis", **shades)
        panel.set(yticks=[])
        panel.set_ylabel(labels[name], rotation=0, ha="right", va="center", fontsize=9)
    grid[-1].set_xlabel("feature")
    figure.colorbar(shown, ax=list(grid), shrink=0.8)
    return figure
