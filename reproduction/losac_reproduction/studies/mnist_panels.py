"""What Figs. 3 and 4 share: MNIST, IID and sorted by label, over one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from losac_reproduction.claims import JudgedClaim
from losac_reproduction.studies import sensitivity as s
from losac_reproduction.studies.sensitivity import Case, Found
from losac_reproduction.study import Findings

if TYPE_CHECKING:
    import pandas as pd

PARTITIONS = ("iid", "sorted")
Judge = Callable[[Found, Sequence[Sequence[Case]]], list[JudgedClaim]]
"""Claims from the runs and the series of each partition, IID first."""


def compare(frame: pd.DataFrame, name: str, parameter: str, judge: Judge) -> Findings:
    """Return tables, figures and claims of the cases, which differ in one parameter and the partition."""
    found, rounds = s.runs_of(frame)
    series = [
        sorted((c for c in found if c.partition == part), key=lambda c: c.value(parameter)) for part in PARTITIONS
    ]
    fixed = f"T = {series[0][0].t}" if parameter == "S" else f"S = {series[0][0].s}"

    def title(case: Case) -> str:
        return f"{case.kind}, {parameter} = {case.value(parameter)}"

    figures = [
        s.figure(
            f"{name}-{metric}",
            f"{word} on MNIST for several {parameter}, IID above and sorted by label below, {fixed}",
            [[(title(case), metric, rounds["mnist"], found[case]) for case in row] for row in series],
        )
        for metric, word in (("loss", "Training loss"), ("accuracy", "Test accuracy"))
    ]
    ordered = {case: found[case] for row in series for case in row}
    parts = "; ".join(f"{title(row[-1])}: {s.ranking(found[row[-1]])}" for row in series)
    summary = f"Last training losses, {parts}.{s.diverged(ordered, title)}"
    return Findings(summary, [*judge(found, series), *s.compared(found, *series)], s.tables(ordered, title), figures)
