"""The figures of Theorem 1's study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.reproduce.names import NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

TITLES = {"quadratic": "least squares", "a9a": "a9a", "w8a": "w8a"}
TITLED = NAMES | {"losac-exact": "LoSAC, exact, δ = 1", "losac-damped": "LoSAC, exact, δ = 0.1"}
COLOURED = ("losac", "losac-exact", "losac-damped", "scaffold", "fedavg", "mime_svrg", "local_svrg")
"""The methods with a colour of their own; the others are grey."""
KINDS = {"small": "at the smallest common η", "large": "at the largest common η", "best": "each at its best η"}
"""Which step size the rounds for different T, or S, are compared at."""


def draw_rates(rates: Mapping[tuple[str, str], Mapping[str, Any]]) -> Drawing:
    """Draw the distance over the rounds, each with its best step."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    from losac.reproduce.looks import line_of

    problems = list(dict.fromkeys(key[0] for key in rates))
    drawing = Drawing((3.6 * len(problems) + 1.6, 3.8), layout="constrained")
    panels = drawing.subplots(1, len(problems), squeeze=False, sharey=True)[0]
    for panel, problem in zip(panels, problems):
        for (name, member), result in rates.items():
            if name != problem or not result["curve"]:
                continue
            values = np.array(result["curve"]["distance"], float)
            if member not in COLOURED:
                panel.plot(result["curve"]["round"], values, color="0.8", linewidth=0.8, zorder=1)
                continue
            look = line_of(member.replace("-", "_"))
            panel.plot(result["curve"]["round"], values, label=TITLED[member], zorder=2, **look)
        panel.set(title=TITLES[problem], xlabel="round", yscale="log", ylim=(1e-16, 10))
    panels[0].set_ylabel("‖x − x*‖ / ‖x⁰ − x*‖")
    handles = {label: handle for p in panels for handle, label in zip(*p.get_legend_handles_labels())}
    if any(member not in COLOURED for _, member in rates):
        handles["other methods"] = Line2D([], [], color="0.8", linewidth=0.8)
    drawing.legend(handles.values(), handles.keys(), loc="outside right center")
    return drawing


def draw_sizes(fits: Mapping[tuple[str, str], Mapping[str, Any]]) -> Drawing:
    """Draw the rounds over T above and over S below, a column for each problem."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    from losac.report.style import style
    from losac.reproduce.looks import plain_log

    problems = list(dict.fromkeys(problem for problem, _ in fits))
    drawing = Drawing((max(2.9 * len(problems), 5.5) + 0.6, 5.4), layout="constrained")
    panels = drawing.subplots(2, max(1, len(problems)), squeeze=False, sharex="row", sharey="row")
    handles: dict[str, Any] = {}
    for row, (letter, title) in zip(panels, (("T", "local steps T"), ("S", "clients per round S"))):
        sizes: set[int] = set()
        for panel, problem in zip(row, problems):
            for index, (kind, said) in enumerate(KINDS.items()):
                found, look = fits[problem, letter][kind], style(index)
                (handles[said],) = panel.plot(
                    list(found), list(found.values()), color=look.colour, marker=look.marker, linestyle=look.dashes,
                    markersize=5,
                )  # fmt: skip
                if found:
                    guide = [found[min(found)] * min(found) / size for size in sorted(found)]
                    panel.plot(sorted(found), guide, color="0.75", linewidth=1, zorder=0)
                sizes |= set(found)
            panel.set(title=TITLES[problem], xlabel=title, xscale="log", yscale="log")
        for panel in row:
            panel.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
            panel.xaxis.minorticks_off()
        plain_log(row[0].yaxis)
        row[0].set_ylabel("rounds")
    handles["in proportion to 1/T or 1/S"] = Line2D([], [], color="0.75", linewidth=1)
    columns = 4 if len(problems) > 2 else 2
    drawing.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return drawing
