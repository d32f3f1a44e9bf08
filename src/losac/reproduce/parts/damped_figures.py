"""The figures of the study of the damped correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.reproduce.parts.damped_maps import CEILING, RULES, USUAL, Map, regret
from losac.tuning.steps import LENGTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def selected(maps: Sequence[Map]) -> list[Map]:
    """Return the maps that the figure shows: the base setting of each data set, IID data, and some S, T and N."""
    if len(maps) <= 9:
        return list(maps)
    wanted: Sequence[Mapping[str, Any]] = ({}, {"partition": "iid"}, {"sampled": 100}, {"steps": 2}, {"clients": 300})
    found: list[Map] = []
    for changes in wanted:
        setting = {"partition": "sorted", **USUAL, **changes}
        found += [one for one in maps if all(one.setting[k] == value for k, value in setting.items())]
    return found[:9]


def draw_maps(maps: Sequence[Map]) -> Drawing:
    """Draw the losses over δ and length, one panel for each setting."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure as Drawing

    across = min(3, max(1, len(maps)))
    down = max(1, -(-len(maps) // across))
    drawing = Drawing((3.1 * across + 1, 2.5 * down + 0.5), layout="constrained")
    panels = drawing.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    image = None
    for panel, one in zip(panels.ravel(), maps):
        shown = np.where(one.loss >= CEILING, np.nan, one.loss / one.loss.min())
        image = panel.imshow(shown, origin="lower", aspect="auto", cmap="viridis_r", norm=LogNorm(1, 20))
        panel.set_facecolor("0.85")
        panel.set_xticks(range(len(one.deltas)), [f"{d:g}" for d in one.deltas], fontsize=8)
        panel.set_yticks(range(len(one.lengths)), [f"{v:g}" for v in one.lengths], fontsize=8)
        rows, columns = np.log(one.lengths), np.log(np.maximum(one.deltas, 0.005))
        x = np.interp(np.log(RULES["√(S/N)/5, the default"](one)), columns, range(len(columns)))
        y = np.interp(np.log(LENGTH), rows, range(len(rows)))
        best = np.unravel_index(one.loss.argmin(), one.loss.shape)
        panel.plot(x, y, "o", markerfacecolor="none", markeredgecolor="#D55E00", markersize=10, markeredgewidth=2)
        panel.plot(best[1], best[0], "*", color="white", markeredgecolor="black", markersize=11)
        panel.set_title(one.short, fontsize=9)
        panel.grid(visible=False)
    for panel in panels.ravel()[len(maps) :]:
        panel.set_axis_off()
    for panel in panels[-1]:
        panel.set_xlabel("δ")
    for panel in panels[:, 0]:
        panel.set_ylabel("length γηTL")
    if image is not None:
        bar = drawing.colorbar(image, ax=panels, extend="max", shrink=0.6, label="loss over the best of the map")
        bar.set_ticks([1, 2, 5, 10, 20], labels=["1", "2", "5", "10", "20"])
        bar.ax.minorticks_off()
    return drawing


def draw_deltas(maps: Sequence[Map]) -> Drawing:
    """Draw the good range of δ, the best and the rule's, one row for each setting."""
    from matplotlib.figure import Figure as Drawing

    from losac.report.style import style
    from losac.reproduce.looks import plain_log

    drawing = Drawing((7.5, 1.1 + 0.22 * len(maps)), layout="constrained")
    panel = drawing.subplots()
    fine = np.geomspace(0.01, 1, 60)
    for place, one in enumerate(maps[::-1]):
        ratios = np.array([min(regret(one, length, delta) for length in one.lengths) for delta in fine])
        good = fine[ratios <= 1.2]
        if len(good):
            panel.plot([good.min(), good.max()], [place, place], color=style(0).colour, linewidth=5, alpha=0.4,
                       solid_capstyle="butt", label="within 20 % of the best loss")  # fmt: skip
        panel.plot(fine[ratios.argmin()], place, style(0).marker, color=style(0).colour, markersize=4, label="best δ")
        panel.plot(RULES["√(S/N)/5, the default"](one), place, style(1).marker, color=style(1).colour, markersize=5,
                   label="the rule, δ = √(S/N)/5")  # fmt: skip
    panel.set(xscale="log", xlabel="δ", xlim=(0.008, 1.2), ylim=(-0.7, len(maps) - 0.3))
    plain_log(panel.xaxis)
    panel.set_yticks(range(len(maps)), [one.short for one in maps[::-1]], fontsize=8)
    handles = {label: handle for handle, label in zip(*panel.get_legend_handles_labels())}
    drawing.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    return drawing
