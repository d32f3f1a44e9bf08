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
        "edgecolor": "white",
        "linewidth": 0.4 if few else 0,
    }
    base = np.zeros(len(counts), dtype=np.int64)
    for label, column in enumerate(counts.T):
        ax.bar(clients, column, bottom=base, color=_COLOURS[label], **style)
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

    off_white = 0.2  # the palest colours would look like the white of an absent label
    image = ax.imshow(
        np.ma.masked_equal(counts.T, 0),
        aspect="auto",
        origin="lower",
        cmap=ListedColormap(colormaps["YlGnBu"](np.linspace(off_white, 1, 256))),
        interpolation="nearest",
        vmin=0,
    )
    ax.set_ylabel("label")
    if len(names) <= 20:
        ax.set_yticks(range(len(names)), names)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.colorbar(image, ax=ax, label="rows (white: none)")
