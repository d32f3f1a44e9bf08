"""Fig. 4: MNIST with T = 2, 4, 6, 8 local steps, IID and sorted by label."""

from __future__ import annotations

from collections.abc import Sequence

from losac.reproduce.parts import verdicts
from losac.reproduce.parts.mnist_panels import PARTITIONS, compare
from losac.reproduce.parts.sensitivity import MEMBERS, Cells, job
from losac.reproduce.parts.verdicts import Series
from losac.reproduce.study import Claim, Findings, Job, Measured, Options, Study

SAMPLED, STEPS = 50, (2, 4, 6, 8)


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm and T; the short form has the two ends and few clients."""
    sampled, steps = (2, (2, 8)) if options.quick else (SAMPLED, STEPS)
    return [job("Fig. 4", "mnist", method, PARTITIONS, sampled, t, options) for method in MEMBERS for t in steps]


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Compare the algorithms over T."""
    return compare(measured, "fig4", "T", _claims)


def _claims(cells: Cells, series: Sequence[Series]) -> list[Claim]:
    more = "A larger T leads to faster speed and better performance of LoSAC."
    worse = "In the non-IID case more local steps degrade the performance of FedCM."
    return [
        verdicts.more_helps(cells, series, "T", "losac", more),
        verdicts.more_hurts(cells, series[1], "T", "fedcm", worse),
        verdicts.fluctuates_more(cells, series[1]),
    ]


STUDY = Study("fig4", "Fig. 4: local steps on MNIST", jobs, conclude, ("mnist",))
