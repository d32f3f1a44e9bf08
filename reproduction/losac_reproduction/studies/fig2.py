"""Fig. 2: data heterogeneity. A share c of MNIST is sorted by label before it is dealt, the rest is dealt at random.

An algorithm *suffers* from it by the excess of its last training loss with c = 1 over that with c = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.studies import sensitivity as shared
from losac_reproduction.studies.sensitivity import KEYS, MEAN_SAGA, MEMBERS, PAPER, Case, job, last, losses
from losac_reproduction.study import Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import told

if TYPE_CHECKING:
    import pandas as pd

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SAMPLED, STEPS = 50, 5
SHARED = (shared.saga_worse, shared.second_best, shared.comparable)
"""The claims that other figures judge too."""
LOCAL, SAGAS = ("fedavg", "fedsaga", MEAN_SAGA), ("fedsaga", MEAN_SAGA)
GLOBAL = ("scaffold", "mime_svrg", "losac")
"""The methods that reduce no variance or that of the local gradient, and those with a global correction."""
WHERE = "Data heterogeneity, Fig. 2"
CLAIMS = (
    Statement(
        "FedAvg and FedSaga suffer more seriously as the data are more heterogeneous.", WHERE,
        "holds if suffering == of | holds in part if suffering | fails",
        "The last loss with c = 1 exceeds that with c = 0 by {local}. From one c to the next it rises {rises}. "
        "Accuracy lost: {local_lost} points.",
        "Holds if the last loss rises in four of five steps of c, and from c = 0 to c = 1 by more than the spread of "
        "the seeds, for FedAvg and for FedSaga with 1/N and with 1/S.",
    ),
    Statement(
        "Heterogeneity has little impact on SCAFFOLD, MimeSVRG and LoSAC.", WHERE,
        "holds if robust == 3 | holds in part if robust | fails",
        "The last loss with c = 1 exceeds that with c = 0 by {others}, FedAvg's by {average:.0%|diverged}. Accuracy "
        "lost: {lost} points, FedAvg {average_lost:.1f}.",
        "Little: the excess of the loss is less than half of FedAvg's.",
        Headline(
            "little impact of heterogeneity on LoSAC", "little", "loss +{ours:.0%|diverged}, accuracy −{ours_lost:.1f} "
            "points (FedAvg +{average:.0%|diverged}, −{average_lost:.1f})",
        ),
    ),
    Statement(
        "Global variance reduction is much more robust to heterogeneity than local one.", WHERE,
        "holds if max(corrected) < min(sagas) / 2 | holds in part if max(corrected) < max(sagas) / 2 | fails",
        "FedSaga, which reduces the local variance, exceeds its loss at c = 0 by {saga}; the methods with a global "
        "correction by {others}.",
        "Much: all of their excesses are less than half of FedSaga's, with 1/N and with 1/S; in part with one of the "
        "two. Heterogeneity causes the excess over the loss at c = 0; the ratios, which start at 1, "
        "are not compared.",
    ),
    Statement(
        "FedCM suffers too, but less seriously than FedAvg and FedSaga.", WHERE,
        "holds if affected and fedcm < min(average, *sagas) | holds in part if affected and fedcm < average | fails",
        "The last loss with c = 1 exceeds that with c = 0 by {three}. With c = 1 the lowest loss of the paper's six at "
        "this η is that of {best}.",
        "Holds if FedCM's loss rises by more than the spread of the seeds, and its excess is less than FedAvg's and "
        "FedSaga's, with 1/N and with 1/S; in part if less than FedAvg's.",
    ),
)  # fmt: skip


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm, with all shares; the short form has the two ends."""
    partitions = [f"mixture:{c:g}" for c in (SHARES[::5] if options.quick else SHARES)]
    sampled = 5 if options.quick else SAMPLED
    return [job("Fig. 2", "mnist", method, partitions, sampled, STEPS, options) for method in MEMBERS]


def share(case: Case) -> float:
    """Return c."""
    return float(case.partition.split(":")[1])


def title(case: Case) -> str:
    """Return what a case is called."""
    return f"c = {100 * share(case):.0f} %"


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare the algorithms over the shares."""
    unordered, rounds = shared.runs_of(frame)
    found = {case: unordered[case] for case in sorted(unordered, key=share)}
    cases = list(found)
    first, end = found[cases[0]], found[cases[-1]]
    loss = {method: losses(found, cases, method) for method in first}
    excess = {m: row[-1] / row[0] - 1 if math.isfinite(row[0]) else math.inf for m, row in loss.items()}
    rises = {m: sum(b > a for a, b in pairwise(row)) for m, row in loss.items()}
    lost = {m: 100 * (last(first[m], "accuracy") - last(end[m], "accuracy")) for m in first}
    harmed = {m: shared.beyond(end[m]["loss"][:, -1], first[m]["loss"][:, -1]) for m in first}
    steps = len(cases) - 1

    def say(methods: Sequence[str]) -> str:
        return ", ".join(f"{MEMBERS[m]} {told(excess[m], '.0%|diverged')}" for m in methods)

    def points(methods: Sequence[str]) -> str:
        return ", ".join(f"{MEMBERS[m]} {lost[m]:.1f}" for m in methods)

    numbers = {
        "local": say(LOCAL), "others": say(GLOBAL), "three": say(("fedcm", *LOCAL)), "saga": say(SAGAS),
        "rises": ", ".join(f"{rises[m]} times of {steps} ({MEMBERS[m]})" for m in LOCAL),
        "suffering": sum(harmed[m] and rises[m] >= 0.8 * steps for m in LOCAL), "of": len(LOCAL),
        "robust": sum(excess[m] < excess["fedavg"] / 2 for m in GLOBAL),
        "lost": points(GLOBAL), "local_lost": points(LOCAL), "average_lost": lost["fedavg"],
        "ours": excess["losac"], "ours_lost": lost["losac"],
        "corrected": [excess[m] for m in GLOBAL], "sagas": [excess[m] for m in SAGAS], "average": excess["fedavg"],
        "fedcm": excess["fedcm"], "affected": harmed["fedcm"],
        "best": MEMBERS[min(PAPER, key=lambda m: loss[m][-1])],
    }  # fmt: skip
    half = -(-len(cases) // 2)
    figures = []
    for metric, word in (("loss", "Training loss"), ("accuracy", "Test accuracy")):
        entries = [(title(case), metric, rounds[case.data], found[case]) for case in cases]
        about = f"{word} on MNIST when a share c of the data is sorted by label, S = {cases[0].s}, T = {cases[0].t}"
        rows = [entries[:half], entries[half:]] if len(entries) > 3 else [entries]
        figures.append(shared.figure(f"fig2-{metric}", about, rows))
    ordered = sorted(excess, key=lambda m: excess[m])
    summary = (
        f"By how much the last training loss with all data sorted by label exceeds that with none: {say(ordered)}."
        f"{shared.diverged(found, title)}"
    )
    columns = ("algorithm", "excess loss at c = 1", "steps in c that raise the loss", "accuracy lost, points")
    table = [[MEMBERS[m], told(excess[m], ".1%|diverged"), f"{rises[m]} of {steps}", round(lost[m], 2)] for m in excess]
    cost = ResultTable("heterogeneity", "What heterogeneity costs", columns, table)
    between = cases[1:-1] or cases
    """Without c = 0 and c = 1, which are settings of Fig. 3 (S = 50) and count there."""
    claims = judge(CLAIMS, numbers)
    claims += [each for judged in SHARED for each in judged(found, between)]
    return Findings(summary, claims, [cost, *shared.tables(found, title)], figures)


STUDY = Study("fig2", "Fig. 2: data heterogeneity", jobs, conclude, ("mnist",), place=5, keys=KEYS)
