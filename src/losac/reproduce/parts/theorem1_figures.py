"""The figures of Theorem 1's study."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

TITLES = {"quadratic": "least squares", "a9a": "a9a", "w8a": "w8a"}
NAMES = {
    "losac": "LoSAC",
    "losac-exact": "LoSAC, exact, δ = 1",
    "losac-damped": "LoSAC, exact, δ = 0.1",
    "scaffold": "SCAFFOLD",
    "fedavg": "FedAvg",
    "mime_svrg": "MimeSVRG",
    "local_svrg": "S-Local-SVRG",
}
"""The methods with a colour of their own, of which there are seven."""
KINDS = {"small": "at the smallest common η", "large": "at the largest common η", "best": "each at its best η"}
"""Which step size the rounds for different T, or S, are compared at."""


def draw_rates(rates: Mapping[tuple[str, str], Mapping[str, Any]]) -> Drawing:
    """Draw the distance over the rounds, each with its best step."""
    from matplotlib.figure import Figure as Drawing

    from losac.report.style import style

    problems = list(dict.fromkeys(key[0] for key in rates))
    drawing = Drawing((3.6 * len(problems) + 1.6, 3.8), layout="constrained")
    panels = drawing.subplots(1, len(problems), squeeze=False, sharey=True)[0]
    for panel, problem in zip(panels, problems):
        for (name, member), result in rates.items():
            if name != problem or not result["curve"]:
                continue
            values = np.array(result["curve"]["distance"], float)
            if member not in NAMES:
                panel.plot(result["curve"]["round"], values, color="0.8", linewidth=0.8, zorder=1)
                continue
            look = style(list(NAMES).index(member))
            panel.plot(
                result["curve"]["round"],
                values,
                color=look.colour,
                linestyle=look.dashes,
                label=NAMES[member],
                zorder=2,
            )
        panel.set(title=TITLES[problem], xlabel="round", yscale="log", ylim=(1e-16, 10))
    panels[0].set_ylabel("‖x − x*‖ / ‖x⁰ − x*‖")
    handles = {label: handle for p in panels for handle, label in zip(*p.get_legend_handles_labels())}
    drawing.legend(handles.values(), handles.keys(), loc="outside right center")
    return drawing


def draw_sizes(fits: Mapping[tuple[str, str], Mapping[str, Any]]) -> Drawing:
    """Draw the rounds over T and over S."""
    from matplotlib.figure import Figure as Drawing

    from losac.report.style import style

    drawing = Drawing((7.5, 4.2), layout="constrained")
    panels = drawing.subplots(1, 2, sharey=True)
    problems = list(dict.fromkeys(problem for problem, _ in fits))
    for panel, letter in zip(panels, ("T", "S")):
        sizes: set[int] = set()
        for problem, (kind, title) in itertools.product(problems, KINDS.items()):
            found = fits[problem, letter][kind]
            colour, shape = style(problems.index(problem)), style(list(KINDS).index(kind))
            panel.plot(
                list(found), list(found.values()), color=colour.colour, marker=shape.marker, linestyle=shape.dashes,
                label=f"{TITLES[problem]}, {title}",
            )  # fmt: skip
            if found:
                guide = [found[min(found)] * min(found) / size for size in sorted(found)]
                panel.plot(sorted(found), guide, color="0.8", linewidth=1, zorder=0)
            sizes |= set(found)
        panel.set(xlabel=letter, xscale="log", yscale="log")
        panel.set_xticks(sorted(sizes), [str(size) for size in sorted(sizes)])
        panel.minorticks_off()
    panels[0].set_ylabel("rounds")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=max(1, len(problems)))
    return drawing
