"""The claims of the section on parameter sensitivity, judged for one figure's panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from losac.reproduce.parts.sensitivity import BLOCKS, LONG, MEMBERS, PAPER, Cells, Panel, last, mean, number
from losac.reproduce.study import Claim, Verdict

WHERE = "Parameter sensitivity"
DEGRADED, CLEARLY, MOST = 1.5, 0.95, 0.75
"""The ratio of losses that counts as degraded, the one that counts as clearly lower, and the share that is most."""

Series = Sequence[Panel]
"""Panels that differ in one parameter only, in its order."""


def share(right: int, of: int) -> Verdict:
    """Return the verdict on a claim that is right in some of so many cases.

    >>> share(4, 4), share(3, 4), share(2, 4), share(0, 4)
    ('holds', 'holds', 'holds in part', 'fails')
    """
    return "holds" if right >= MOST * of else "holds in part" if right else "fails"


def value_of(panel: Panel, parameter: str) -> int:
    """Return S or T of a panel."""
    return panel.s if parameter == "S" else panel.t


def kind(panel: Panel) -> str:
    """Return what the paper calls a partition."""
    return "IID" if panel.partition == "iid" else "non-IID"


def trail(cells: Cells, series: Series, method: str, parameter: str) -> str:
    """Return a method's last losses along a series."""
    losses = ", ".join(number(last(cells[panel][method])) for panel in series)
    return f"{kind(series[0])} {losses} ({parameter} = {', '.join(str(value_of(p, parameter)) for p in series)})"


def varied(panels: Sequence[Panel]) -> str:
    """Return which values the parameter that differs between the panels has.

    >>> varied([Panel("mnist", "iid", 10, 5), Panel("mnist", "iid", 30, 5)])
    'S = 10, 30'
    """
    parameter = "T" if len({panel.t for panel in panels}) > 1 else "S"
    return f"{parameter} = {', '.join(str(value_of(panel, parameter)) for panel in panels)}"


def more_helps(cells: Cells, all_series: Sequence[Series], parameter: str, method: str, text: str) -> Claim:
    """Judge that a larger S or T lowers a method's loss: clearly from the least to the greatest."""
    ends = [(last(cells[series[0]][method]), last(cells[series[-1]][method])) for series in all_series]
    falls = sum(end < CLEARLY * begin for begin, end in ends)
    trails = "; ".join(trail(cells, series, method, parameter) for series in all_series)
    named = f"{MEMBERS[method]}'s last loss" if len({series[0].data for series in all_series}) == 1 else "Last loss"
    return Claim(text, WHERE, "holds" if falls == len(ends) else share(falls, len(ends)), f"{named}: {trails}.")


def more_hurts(cells: Cells, series: Series, parameter: str, method: str, text: str) -> Claim:
    """Judge that a larger S or T raises a method's loss: from the least to the greatest, and step by step."""
    losses = [last(cells[panel][method]) for panel in series]
    rises = sum(b > a for a, b in pairwise(losses))
    whole = losses[-1] > losses[0] / CLEARLY
    verdict: Verdict = "holds" if whole and rises == len(losses) - 1 else "holds in part" if whole or rises else "fails"
    return Claim(text, WHERE, verdict, f"{MEMBERS[method]}'s last loss: {trail(cells, series, method, parameter)}.")


def non_iid_degrades(cells: Cells, pairs: Sequence[tuple[Panel, Panel]], methods: Sequence[str], text: str) -> Claim:
    """Judge that sorted data raise the losses of these methods, against the same setting with IID data."""
    parts, degraded = [], 0
    for method in methods:
        ratios = [over(last(cells[bad][method]), last(cells[good][method])) for good, bad in pairs]
        degraded += sum(ratio >= DEGRADED for ratio in ratios)
        parts.append(f"{MEMBERS[method]} {', '.join(number(ratio, '{:.2f}') for ratio in ratios)}")
    return Claim(
        text,
        WHERE,
        share(degraded, len(methods) * len(pairs)),
        f"Last loss non-IID over IID for {varied([bad for _, bad in pairs])}: {'; '.join(parts)} (degraded: "
        f"{DEGRADED:g} or more).",
    )


def over(above: float, below: float) -> float:
    """Return a ratio of losses; infinity where the lower one diverged."""
    return above / below if math.isfinite(below) and below > 0 else math.inf


def saga_worse(cells: Cells, panels: Sequence[Panel]) -> Claim:
    """Judge FedSaga against FedAvg."""
    pairs = [(last(cells[panel]["fedsaga"]), last(cells[panel]["fedavg"])) for panel in panels]
    worse, clearly = sum(saga > avg for saga, avg in pairs), sum(CLEARLY * saga > avg for saga, avg in pairs)
    shown = []
    for word in dict.fromkeys(map(kind, panels)):
        mine = [panel for panel in panels if kind(panel) == word]
        saga, avg = (", ".join(number(last(cells[p][m])) for p in mine) for m in ("fedsaga", "fedavg"))
        shown.append(f"{word}, {varied(mine)}: {saga} against {avg}")
    return Claim(
        "FedSaga performs worse than FedAvg.",
        WHERE,
        "holds" if clearly >= MOST * len(pairs) else "holds in part" if worse > len(pairs) / 2 else "fails",
        f"FedSaga's last loss is higher than FedAvg's in {worse} of {len(pairs)} settings, by more than 5 % in "
        f"{clearly}. {'; '.join(shown)}.",
    )


def beats(cells: Cells, panels: Sequence[Panel], text: str, rival: str = "scaffold") -> Claim:
    """Judge LoSAC against SCAFFOLD at equal η, and against SCAFFOLD with steps as long as LoSAC's."""
    equal = sum(last(cells[p]["losac"]) < CLEARLY * last(cells[p][rival]) for p in panels)
    fair = sum(last(cells[p]["losac"]) < CLEARLY * last(cells[p][LONG]) for p in panels)
    return Claim(
        text,
        WHERE,
        at_equal_step(equal, fair, len(panels)),
        f"LoSAC's last loss is lower by more than 5 % in {equal} of {len(panels)} settings at equal η, and in {fair} "
        f"with SCAFFOLD's server step at M = {BLOCKS}, which makes the steps equally long.",
    )


def at_equal_step(equal: int, fair: int, of: int) -> Verdict:
    """Return the verdict on LoSAC's lead from how often it leads at equal η and with equally long steps.

    >>> at_equal_step(8, 7, 8), at_equal_step(8, 1, 8), at_equal_step(3, 1, 8), at_equal_step(0, 0, 8)
    ('holds', 'holds only at equal step size', 'holds in part', 'fails')
    """
    if equal >= MOST * of:
        return "holds" if fair >= MOST * of else "holds only at equal step size"
    return "holds in part" if equal else "fails"


def prominent(cells: Cells, panels: Sequence[Panel]) -> Claim:
    """Judge that LoSAC is the best of the paper's algorithms."""
    best = [min((m for m in PAPER if m in cells[p]), key=lambda m: last(cells[p][m])) for p in panels]
    fair = [min(cells[p], key=lambda m: last(cells[p][m])) for p in panels]
    wins, fair_wins = best.count("losac"), fair.count("losac")
    others = ", ".join(sorted({MEMBERS[m] for m in best if m != "losac"}))
    return Claim(
        "LoSAC exhibits prominent performance improvements over the others.",
        WHERE,
        at_equal_step(wins, fair_wins, len(panels)),
        f"It has the lowest loss of the paper's algorithms in {wins} of {len(panels)} settings"
        + (f" (else {others})" if others else "")
        + f", and in {fair_wins} when SCAFFOLD with equally long steps takes part.",
    )


def fluctuates(cells: Cells, pairs: Sequence[tuple[Panel, Panel]]) -> Claim:
    """Judge MimeSVRG's fluctuations on sorted data against those on IID data and those of LoSAC and SCAFFOLD."""
    found = [
        (mean(cells[bad]["mime_svrg"], "late"), mean(cells[good]["mime_svrg"], "late"),
         max(mean(cells[bad][method], "late") for method in ("losac", "scaffold")))
        for good, bad in pairs
    ]  # fmt: skip
    right = sum(own > 2 * iid and own > 2 * rivals for own, iid, rivals in found)
    own, iid, rivals = (", ".join(map(points, column)) for column in zip(*found))
    return Claim(
        "MimeSVRG shows large fluctuations in the non-IID setting.",
        WHERE,
        share(right, len(pairs)),
        f"Back and forth of the accuracy in the second half, points per round, for {varied([p for _, p in pairs])}: "
        f"MimeSVRG {own} non-IID and {iid} IID; the larger of LoSAC's and SCAFFOLD's {rivals} non-IID. Large (twice "
        f"both others) in {right} of {len(pairs)}.",
    )


def fluctuates_more(cells: Cells, series: Series) -> Claim:
    """Judge that MimeSVRG's fluctuations on sorted data grow with the local steps."""
    found = [mean(cells[panel]["mime_svrg"], "late") for panel in series]
    grows = sum(b > a for a, b in pairwise(found))
    whole = found[-1] > found[0]
    return Claim(
        "More local iterations lead to larger fluctuations of MimeSVRG.",
        WHERE,
        "holds" if grows == len(found) - 1 else "holds in part" if whole else "fails",
        f"Back and forth of its accuracy in the second half, points per round, for {varied(series)}: "
        f"{', '.join(map(points, found))}.",
    )


def points(value: float) -> str:
    """Return an accuracy in points, or that there is none.

    >>> points(0.0123), points(float("inf"))
    ('1.23', 'diverged')
    """
    return number(100 * value, "{:.2f}")
