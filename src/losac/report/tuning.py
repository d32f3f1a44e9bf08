"""The results of a search for settings: a figure of its space, and a table of its best trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac._units import tidy
from losac.metrics import falls
from losac.report.style import shown, style
from losac.tuning import Range, Trial, Tuning
from losac.tuning.space import Axis, is_log, is_ordered
from losac.tuning.trials import ranked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

_SYMBOLS = {"step_size": "step size η", "server_step": "server step γ", "alpha": "α", "rho": "ρ", "mu": "μ"}
_POINT, _BEST, _DIVERGED = style(0).colour, style(1).colour, "0.55"


def plot_tuning(tuning: Tuning) -> Figure:
    """Draw a grid of two axes as a map, and any other search as the score over each axis.

    The best trial is ringed, and trials that diverged are crosses. Points are means over the seeds, with their standard
    deviation as bars. With a target, the rounds to it are drawn instead of the score.

    Args:
      tuning: the search.
    """
    from matplotlib.figure import Figure

    two = [axis for axis in tuning.space.values() if not isinstance(axis, Range)]
    as_map = tuning.search == "grid" and len(two) == len(tuning.space) == 2
    count = 1 if as_map else len(tuning.space)
    size = _map_size(two) if as_map else (max(5.6, 4.6 * count), 3.9)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    panels = list(np.ravel(figure.subplots(1, count, sharey=True)))
    if as_map:
        _draw_map(figure, panels[0], tuning)
    else:
        for panel, name in zip(panels, tuning.space):
            _draw_axis(panel, tuning, name)
        panels[0].set_ylabel(_quantity(tuning))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(_title(tuning), fontsize="medium", x=0.01, ha="left")
    return figure


def tuning_table(tuning: Tuning, most: int = 10) -> Table:
    """Return the best trials as a rich table.

    Args:
      tuning: the search.
      most: how many trials are listed.
    """
    from rich import box
    from rich.table import Table

    title = _title(tuning)
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "min_width": len(title)}
    table = Table(**look, title=title, title_justify="left", title_style="bold")
    for name in tuning.space:
        table.add_column(name, justify="right")
    table.add_column(tuning.measured, justify="right")
    if tuning.target is not None:
        table.add_column(f"rounds to {tuning.target:g}", justify="right")
    for trial in ranked(tuning.trials)[:most]:
        reach = [] if tuning.target is None else ["never" if trial.rounds_to is None else f"{trial.rounds_to:.0f}"]
        table.add_row(*(shown(trial.settings[name]) for name in tuning.space), _scored(tuning, trial), *reach)
    return table


def edge_notes(tuning: Tuning) -> list[str]:
    """Return one sentence for each axis with the best value at its edge.

    >>> import losac
    >>> task = losac.regression(losac.models.linear(4), losac.data.quadratic(clients=4, samples=8, dim=4, seed=0))
    >>> fedavg = losac.algorithms.fedavg(step_size=1.0, local_steps=2, blocks=2)
    >>> edge_notes(losac.tune(task, fedavg, {"step_size": [1e-5, 1e-4]}, rounds=2, widen=False))
    ['step_size: the best value, 0.0001, is the largest that was tried; larger ones may be better']
    """
    words = {"low": ("smallest", "smaller"), "high": ("largest", "larger")}
    notes = []
    for name, end in tuning.edges.items():
        side, _, limit = end.partition(" ")
        if side not in words:
            continue
        extreme, more = words[side]
        value = shown(tuning.best[name])
        ranged = isinstance(tuning.space[name], Range)
        where = f"lies near the {side} end of its range" if ranged else f"is the {extreme} that was tried"
        beyond = "a further step would leave what the setting allows" if limit else f"{more} ones may be better"
        notes.append(f"{name}: the best value, {value}, {where}; {beyond}")
    return notes


def cliff_notes(tuning: Tuning) -> list[str]:
    """Return one sentence for each axis on which a value next to the best one diverged.

    >>> import losac
    >>> task = losac.regression(losac.models.linear(4), losac.data.quadratic(clients=4, samples=8, dim=4, seed=0))
    >>> fedavg = losac.algorithms.fedavg(step_size=1.0, local_steps=20, blocks=1)
    >>> cliff_notes(losac.tune(task, fedavg, {"step_size": [0.1, 1e30]}, rounds=20, widen=False))
    ['step_size: the value next to the best one, 1e+30, diverged; with other seeds or in a longer run 0.1 may too']
    """
    best, notes = tuning.best, []
    for name, values in tuning.space.items():
        if isinstance(values, Range) or not is_ordered(values):
            continue
        others = {k: v for k, v in best.items() if k != name}
        line = {t.settings[name]: t for t in tuning.trials if others.items() <= t.settings.items()}
        tried = sorted(line)
        at = tried.index(best[name])
        for value in (*tried[max(0, at - 1) : at], *tried[at + 1 : at + 2]):
            if line[value].diverged is not None:
                notes.append(
                    f"{name}: the value next to the best one, {shown(value)}, diverged; with other seeds or in a "
                    f"longer run {shown(best[name])} may too"
                )
    return notes


def _title(tuning: Tuning) -> str:
    trials = f"{len(tuning.trials)} trials" + (f", {tuning.diverged} diverged" if tuning.diverged else "")
    seeds = f"; mean of {len(tuning.seeds)} seeds" if len(tuning.seeds) > 1 else ""
    return f"{tuning.start.label} on {tuning.task}, {tuning.rounds} rounds: {tuning.search} search, {trials}{seeds}"


def _quantity(tuning: Tuning) -> str:
    if tuning.target is None:
        return tuning.measured
    return f"rounds to a {tuning.measured} of {shown(tuning.target)}"


def _less_is_better(tuning: Tuning) -> bool:
    return falls(tuning.metric) or tuning.target is not None


def _value(tuning: Tuning, trial: Trial) -> float:
    """Return what the figure shows of a trial; NaN if it diverged or never reached the target."""
    if tuning.target is None:
        return trial.score
    return math.nan if trial.rounds_to is None else trial.rounds_to


def _scored(tuning: Tuning, trial: Trial) -> str:
    if trial.diverged is not None:
        return f"diverged at round {trial.diverged}"
    several = len(trial.values) > 1
    if tuning.metric == "accuracy":
        return f"{100 * trial.score:.1f}" + (f" ± {100 * trial.spread:.1f}" if several else "") + " %"
    return f"{trial.score:.4g}" + (f" ± {trial.spread:.2g}" if several else "")


def _cell(tuning: Tuning, trial: Trial) -> str:
    if trial.diverged is not None:
        return "×"
    if tuning.target is not None:
        return "never" if trial.rounds_to is None else f"{trial.rounds_to:.0f}"
    return f"{100 * trial.score:.1f}" if tuning.metric == "accuracy" else f"{trial.score:.3g}"


def _map_size(axes: Sequence[tuple[Any, ...]]) -> tuple[float, float]:
    across, up = sorted((len(axis) for axis in axes), reverse=True)
    return max(6.2, 0.72 * across + 2.4), max(3.2, 0.5 * up + 1.6)


def _draw_map(figure: Figure, panel: Axes, tuning: Tuning) -> None:
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import PercentFormatter

    across, up = sorted(tuning.space, key=lambda name: -len(_listed(tuning.space[name])))
    columns, rows = (_listed(tuning.space[name]) for name in (across, up))
    values = np.full((len(rows), len(columns)), math.nan)
    cells = [(rows.index(t.settings[up]), columns.index(t.settings[across])) for t in tuning.trials]
    for cell, trial in zip(cells, tuning.trials):
        values[cell] = _value(tuning, trial)
    less_is_better = _less_is_better(tuning)
    low, high = _colour_range(values, less_is_better)
    wide = less_is_better and 0 < 10 * low < high
    norm = LogNorm(low, high) if wide else Normalize(low, high)
    image = panel.imshow(
        values,
        origin="lower",
        aspect="auto",
        cmap="viridis_r" if less_is_better else "viridis",
        norm=norm,
        interpolation="nearest",
    )
    panel.set_facecolor("0.93")
    for cell, trial in zip(cells, tuning.trials):
        drawn = math.isfinite(values[cell])
        dark = drawn and sum(w * c for w, c in zip((0.3, 0.59, 0.11), image.cmap(image.norm(values[cell])))) < 0.5
        panel.text(
            cell[1],
            cell[0],
            _cell(tuning, trial),
            ha="center",
            va="center",
            fontsize=8.5,
            color="white" if dark else "0.15" if drawn else "0.45",
            weight="bold" if trial is tuning.best_trial else None,
        )
        if trial is tuning.best_trial:
            panel.add_patch(_frame(cell))
    panel.set_xticks(range(len(columns)), [shown(_short(v)) for v in columns])
    panel.set_yticks(range(len(rows)), [shown(_short(v)) for v in rows])
    panel.tick_params(length=0)
    panel.set_xlabel(_SYMBOLS.get(across, across))
    panel.set_ylabel(_SYMBOLS.get(up, up))
    percent = tuning.metric == "accuracy" and tuning.target is None
    extend: Any = "max" if (values > high).any() else "min" if (values < low).any() else "neither"
    look: dict[str, Any] = {
        "format": PercentFormatter(1, decimals=0) if percent else None,
        "extend": extend,
        "pad": 0.02,
    }
    bar = figure.colorbar(image, ax=panel, **look)
    bar.set_label(_quantity(tuning))
    bar.outline.set_visible(False)
    panel.spines[:].set_visible(False)
    notes = ["framed: the best"] + (["×: diverged"] if tuning.diverged else [])
    panel.set_title("; ".join(notes), fontsize="small", color="0.35", loc="left")


def _colour_range(values: np.ndarray, less_is_better: bool) -> tuple[float, float]:
    """Return the values between which colours change: the worst fifth share a colour, to make the others differ."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.quantile(finite, (0, 0.8) if less_is_better else (0.2, 1))
    return float(low), float(high) if high > low else float(low) + 1e-9


def _frame(cell: tuple[int, int]) -> Any:
    from matplotlib.patches import Rectangle

    corner = (cell[1] - 0.47, cell[0] - 0.47)
    return Rectangle(corner, 0.94, 0.94, fill=False, edgecolor=_BEST, linewidth=2.6, clip_on=False, zorder=4)


def _draw_axis(panel: Axes, tuning: Tuning, name: str) -> None:
    from matplotlib.ticker import PercentFormatter

    axis = tuning.space[name]
    ordered = is_ordered(axis)

    def there(trial: Trial) -> Any:
        return trial.settings[name] if ordered else _listed(axis).index(trial.settings[name])

    trials = sorted(tuning.trials, key=there)
    good = [trial for trial in trials if math.isfinite(_value(tuning, trial))]
    lost = [trial for trial in trials if trial not in good]
    spread = [trial.spread for trial in good] if tuning.target is None else None
    panel.errorbar(
        [there(t) for t in good],
        [_value(tuning, t) for t in good],
        spread if len(tuning.seeds) > 1 else None,
        fmt="o-" if tuning.search == "grid" and len(tuning.space) == 1 and ordered else "o",
        color=_POINT,
        markersize=5.5,
        linewidth=1.2,
        elinewidth=1,
        alpha=0.85,
        label="trial",
    )
    best = tuning.best_trial
    if best in good:
        look: dict[str, Any] = {"marker": "o", "markersize": 12, "markerfacecolor": "none", "markeredgewidth": 2.2}
        panel.plot(there(best), _value(tuning, best), linestyle="none", color=_BEST, label="best", **look)
    if lost:
        worst = 0.97 if _less_is_better(tuning) else 0.03
        look = {"marker": "x", "markersize": 7, "clip_on": False, "transform": panel.get_xaxis_transform()}
        word = "diverged" if tuning.target is None else "diverged, or never there"
        x = [there(trial) for trial in lost]
        panel.plot(x, [worst] * len(lost), linestyle="none", color=_DIVERGED, label=word, **look)
    if ordered and (axis.log if isinstance(axis, Range) else is_log(axis)):
        panel.set_xscale("log")
    if not ordered:
        panel.set_xticks(range(len(_listed(axis))), [shown(v) for v in _listed(axis)])
    if tuning.target is None and falls(tuning.metric):
        panel.set_yscale("log")
    elif tuning.target is None and tuning.metric == "accuracy":
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.set_xlabel(_SYMBOLS.get(name, name))
    panel.margins(x=0.06, y=0.12)
    panel.grid(True, color="0.9", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _listed(axis: Axis) -> tuple[Any, ...]:
    return () if isinstance(axis, Range) else axis


def _short(value: Any) -> Any:
    return tidy(value, 2) if isinstance(value, float) else value
