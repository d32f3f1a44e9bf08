"""What Figs. 3 and 4 share: MNIST, IID and sorted by label, over one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from losac.reproduce.parts import verdicts
from losac.reproduce.parts.curves import about, draw_panels
from losac.reproduce.parts.sensitivity import MEMBERS, Cells, Panel, cells_of, diverged, last, number, tables
from losac.reproduce.parts.verdicts import Series
from losac.reproduce.study import Claim, Figure, Findings, Measured

PARTITIONS = ("iid", "sorted")
Judge = Callable[[Cells, Sequence[Series]], list[Claim]]
"""Claims from the runs and the series of each partition, IID first."""


def compare(measured: Sequence[Measured], name: str, parameter: str, judge: Judge) -> Findings:
    """Return tables, figures and claims of the panels, which differ in one parameter and the partition."""
    cells, rounds = cells_of(measured)
    series = [
        sorted((p for p in cells if p.partition == part), key=lambda p: verdicts.value_of(p, parameter))
        for part in PARTITIONS
    ]

    def title(panel: Panel) -> str:
        return f"{verdicts.kind(panel)}, {parameter} = {verdicts.value_of(panel, parameter)}"

    def figure(metric: str) -> Figure:
        rows = [[(title(p), metric, rounds["mnist"], cells[p]) for p in row] for row in series]
        word = "Training loss" if metric == "loss" else "Test accuracy"
        fixed = f"T = {series[0][0].t}" if parameter == "S" else f"S = {series[0][0].s}"
        caption = about(f"{word} on MNIST for several {parameter}, IID above and sorted by label below, {fixed}")
        return Figure(f"{name}-{metric}", caption, lambda: draw_panels(rows))

    ordered = {panel: cells[panel] for row in series for panel in row}
    parts = [f"{title(row[-1])}: {ranking(cells[row[-1]])}" for row in series]
    return Findings(
        f"Last training losses, {'; '.join(parts)}.{diverged(ordered, title)}",
        [*judge(cells, series), *_common(cells, series)],
        tables(ordered, title),
        [figure("loss"), figure("accuracy")],
    )


def ranking(found: dict[str, list[dict[str, object]]]) -> str:
    """Return the last losses of a panel, the lowest first."""
    losses = sorted((last(runs), MEMBERS[method]) for method, runs in found.items())
    return ", ".join(f"{who} {number(loss)}" for loss, who in losses)


def _common(cells: Cells, series: Sequence[Series]) -> list[Claim]:
    """Judge what the paper says of both figures alike."""
    iid, skewed = series
    pairs, panels = list(zip(iid, skewed)), [*iid, *skewed]
    degraded = "Non-IID data significantly degrade the performance of FedAvg and MimeSVRG."
    return [
        verdicts.prominent(cells, panels),
        verdicts.beats(cells, skewed, "In the non-IID setting LoSAC outperforms SCAFFOLD."),
        verdicts.non_iid_degrades(cells, pairs, ("fedavg", "mime_svrg"), degraded),
        verdicts.non_iid_degrades(cells, pairs, ("fedcm",), "The non-IID case affects the performance of FedCM."),
        verdicts.saga_worse(cells, panels),
        verdicts.fluctuates(cells, pairs),
    ]
