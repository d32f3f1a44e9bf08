"""A plot of the clients' rows by label."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from losac.data.federated import FederatedData

_MOST_BARS = 40
# Paul Tol's "muted" scheme: distinct with every common colour vision, in print and on screen.
_COLOURS = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933",
    "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
# The same with its darkest colours lighter, for a dark background.
_ON_DARK = ("#7C6BE0", *_COLOURS[1:3], "#2FA35B", *_COLOURS[4:7], "#B0306A", "#D08CE0", _COLOURS[9])
_DARK_INK, _DARK_PAPER = "#e8ebee", "#12161b"
DARK: dict[Any, str] = {
    **{f"{part}.facecolor": _DARK_PAPER for part in ("figure", "axes", "savefig")},
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _DARK_INK),
}
"""matplotlib's settings for a picture on a dark page."""


def plot_clients(data: "FederatedData", ax: "Axes | None" = None) -> "Figure":
    """Draw how the rows of each label are spread over the clients; for data without labels, draw the client sizes."""
    counts = None if data.num_classes is None else data.label_counts()
    return plot_counts(data.sizes, counts, data.label_names, name=data.name, ax=ax)


def plot_counts(
    sizes: NDArray[np.int64],
    label_counts: NDArray[np.int64] | None = None,
    label_names: tuple[str, ...] | None = None,
    *,
    name: str,
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw the clients' rows from counts alone: few clients as stacked bars, many as a map of counts.

    Args:
      sizes: rows of each client, [N].
      label_counts: rows of each client with each label, [N, classes]; without it the sizes are drawn.
      label_names: of the labels; their numbers by default.
      name: of the data, for the title.
      ax: where to draw; a new figure by default.
    """
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if ax is None:
        ax = Figure(figsize=(8, 4), layout="constrained").subplots()
        assert isinstance(ax, Axes)
    if label_counts is None:
        _bars(ax, sizes[:, None], ())
    else:
        names = label_names or tuple(str(label) for label in range(label_counts.shape[1]))
        many = len(sizes) > _MOST_BARS or label_counts.shape[1] > len(_COLOURS)
        (_map if many else _bars)(ax, label_counts, names)
    ax.set_title(f"{name}: {int(sizes.sum()):,} rows at {len(sizes):,} clients", loc="left")
    ax.set_xlabel("client")
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def _bars(ax: "Axes", counts: NDArray[np.int64], names: tuple[str, ...]) -> None:
    from matplotlib.ticker import MaxNLocator

    clients = np.arange(len(counts))
    few = len(counts) <= _MOST_BARS
    style: dict[str, Any] = {
        "width": 0.8 if few else 1.0,
        "edgecolor": ax.get_facecolor(),
        "linewidth": 0.4 if few else 0,
    }
    colours = _ON_DARK if _is_dark(ax) else _COLOURS
    base = np.zeros(len(counts), dtype=np.int64)
    for label, column in enumerate(counts.T):
        ax.bar(clients, column, bottom=base, color=colours[label], **style)
        base += column
    ax.set_ylabel("rows")
    ax.set_xlim(-0.6, len(counts) - 0.4)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    if names:
        handles = [container[0] for container in ax.containers]
        ax.legend(handles[::-1], names[::-1], title="label", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _map(ax: "Axes", counts: NDArray[np.int64], names: tuple[str, ...]) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.ticker import MaxNLocator

    colours = colormaps["YlGnBu_r" if _is_dark(ax) else "YlGnBu"]
    off_paper = 0.2  # colours near the background would look like an absent label
    image = ax.imshow(
        np.ma.masked_equal(counts.T, 0),
        aspect="auto",
        origin="lower",
        cmap=ListedColormap(colours(np.linspace(off_paper, 1, 256))),
        interpolation="nearest",
        vmin=0,
    )
    ax.set_ylabel("label")
    if len(names) <= 20:
        ax.set_yticks(range(len(names)), names)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.colorbar(image, ax=ax, label="rows (blank: none)")


def _is_dark(ax: "Axes") -> bool:
    from matplotlib.colors import to_rgb

    return sum(to_rgb(ax.get_facecolor())) < 1.5
