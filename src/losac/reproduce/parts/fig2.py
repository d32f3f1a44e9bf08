"""Fig. 2: data heterogeneity. A share c of MNIST is sorted by label before it is dealt, the rest is dealt at random.

An algorithm *suffers* from it by the ratio of its last training losses with c = 1 and c = 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from losac.reproduce.parts.curves import about, draw_panels
from losac.reproduce.parts.sensitivity import MEMBERS, PAPER, Cells, Panel, cells_of, diverged, job, last, tables
from losac.reproduce.study import Claim, Figure, Findings, Job, Measured, Options, Study, Table, Verdict

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SAMPLED, STEPS = 50, 5
SUFFERS = 1.5
"""The ratio of losses from which an algorithm counts as suffering."""
LOCAL, GLOBAL = ("fedavg", "fedsaga"), ("scaffold", "mime_svrg", "losac")


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm, with all shares; the short form has the two ends."""
    partitions = [f"mixture:{c:g}" for c in (SHARES[::5] if options.quick else SHARES)]
    sampled = 5 if options.quick else SAMPLED
    return [job("Fig. 2", "mnist", method, partitions, sampled, STEPS, options) for method in MEMBERS]


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Compare the algorithms over the shares."""
    cells, rounds = cells_of(measured)
    panels = sorted(cells, key=_share)
    half = -(-len(panels) // 2)

    def figure(metric: str) -> Figure:
        entries = [(_name(panel), metric, rounds[panel.data], cells[panel]) for panel in panels]
        rows = [entries[:half], entries[half:]] if len(entries) > 3 else [entries]
        word = "Training loss" if metric == "loss" else "Test accuracy"
        s, t = panels[0].s, panels[0].t
        caption = about(f"{word} on MNIST when a share c of the data is sorted by label, S = {s}, T = {t}")
        return Figure(f"fig2-{metric}", caption, lambda: draw_panels(rows))

    ratios = {method: ratio(cells, panels, method) for method in cells[panels[0]]}
    ordered = sorted(ratios, key=lambda method: ratios[method])
    text = ", ".join(f"{MEMBERS[method]} {_times(ratios[method])}" for method in ordered)
    summary = (
        f"Last training loss with all data sorted by label over that with none: {text}. An algorithm counts as "
        f"suffering from {SUFFERS:g} on.{diverged(cells, _name)}"
    )
    found = [_ratio_table(cells, panels, ratios), *tables({panel: cells[panel] for panel in panels}, _name)]
    return Findings(summary, claims(cells, panels, ratios), found, [figure("loss"), figure("accuracy")])


def _share(panel: Panel) -> float:
    return float(panel.partition.split(":")[1])


def _name(panel: Panel) -> str:
    return f"c = {100 * _share(panel):.0f} %"


def ratio(cells: Cells, panels: Sequence[Panel], method: str) -> float:
    """Return the last loss at the greatest share over that at the least; infinity where the former diverged."""
    least, greatest = (last(cells[panel][method]) for panel in (panels[0], panels[-1]))
    return greatest / least if math.isfinite(least) else math.inf


def _times(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "diverged"


def _rises(cells: Cells, panels: Sequence[Panel], method: str) -> int:
    """Return from how many shares to the next the last loss rises."""
    losses = [last(cells[panel][method]) for panel in panels]
    return sum(b > a for a, b in pairwise(losses))


def _ratio_table(cells: Cells, panels: Sequence[Panel], ratios: Mapping[str, float]) -> Table:
    rows = [
        [
            MEMBERS[method],
            _times(ratios[method]),
            f"{_rises(cells, panels, method)} of {len(panels) - 1}",
            round(100 * (_accuracy(cells, panels[0], method) - _accuracy(cells, panels[-1], method)), 2),
        ]
        for method in ratios
    ]
    columns = ("algorithm", "loss, c = 1 over c = 0", "steps in c that raise the loss", "accuracy lost, points")
    return Table("heterogeneity", "What heterogeneity costs", columns, rows)


def _accuracy(cells: Cells, panel: Panel, method: str) -> float:
    return last(cells[panel][method], "accuracy")


def claims(cells: Cells, panels: Sequence[Panel], ratios: Mapping[str, float]) -> list[Claim]:
    """Judge the section on data heterogeneity."""
    steps = len(panels) - 1
    rising = {method: _rises(cells, panels, method) for method in LOCAL}
    suffering = [method for method in LOCAL if ratios[method] >= SUFFERS and rising[method] >= 0.8 * steps]
    robust = [method for method in GLOBAL if ratios[method] < SUFFERS]
    worst = max(ratios[method] for method in GLOBAL)
    between = SUFFERS <= ratios["fedcm"] < min(ratios[method] for method in LOCAL)
    mild = ratios["fedcm"] < min(ratios[method] for method in LOCAL)

    def say(names: Sequence[str]) -> str:
        return ", ".join(f"{MEMBERS[m]} {_times(ratios[m])}" for m in names)

    where = "Data heterogeneity"
    best = min(PAPER, key=lambda method: last(cells[panels[-1]][method]))
    return [
        Claim(
            "FedAvg and FedSaga suffer more seriously as the data are more heterogeneous.",
            where,
            _share_of(len(suffering), len(LOCAL)),
            f"Loss with c = 1 over c = 0: {say(LOCAL)}. From one c to the next it rises "
            + " and ".join(f"{rising[m]} times of {steps} ({MEMBERS[m]})" for m in LOCAL) + ".",
        ),
        Claim(
            "Heterogeneity has little impact on SCAFFOLD, MimeSVRG and LoSAC.",
            where,
            _share_of(len(robust), len(GLOBAL)),
            f"Loss with c = 1 over c = 0: {say(GLOBAL)} (little: below {SUFFERS:g}). Accuracy lost: "
            + ", ".join(
                f"{MEMBERS[m]} {100 * (_accuracy(cells, panels[0], m) - _accuracy(cells, panels[-1], m)):.1f}"
                for m in GLOBAL
            )
            + " points.",
        ),
        Claim(
            "Global variance reduction is much more robust to heterogeneity than local one.",
            where,
            "holds" if worst < ratios["fedsaga"] / 2 else "holds in part" if np.median(
                [ratios[method] for method in GLOBAL]) < ratios["fedsaga"] / 2 else "fails",
            f"The ratio of FedSaga, which reduces the local variance, is {_times(ratios['fedsaga'])}; those of the "
            f"methods with a global correction are {say(GLOBAL)} (much: less than half).",
        ),
        Claim(
            "FedCM suffers too, but less seriously than FedAvg and FedSaga.",
            where,
            "holds" if between else "holds in part" if mild else "fails",
            f"Loss with c = 1 over c = 0: {say(('fedcm', *LOCAL))}. With c = 1 the lowest loss of the paper's six "
            f"at this η is that of {MEMBERS[best]}.",
        ),
    ]  # fmt: skip


def _share_of(right: int, of: int) -> Verdict:
    return "holds" if right == of else "holds in part" if right else "fails"


STUDY = Study("fig2", "Fig. 2: data heterogeneity", jobs, conclude, ("mnist",))
