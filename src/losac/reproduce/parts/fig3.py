"""Fig. 3: MNIST with S = 10, 30, 50, 100 clients a round, IID and sorted by label."""

from __future__ import annotations

from collections.abc import Sequence

from losac.reproduce.parts import verdicts
from losac.reproduce.parts.mnist_panels import PARTITIONS, compare
from losac.reproduce.parts.sensitivity import MEMBERS, Cells, job
from losac.reproduce.parts.verdicts import Series
from losac.reproduce.study import Claim, Findings, Job, Measured, Options, Study

SAMPLED, STEPS = (10, 30, 50, 100), 5


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm and S; the short form has two small S, one of them with a job of Fig. 4."""
    sampled, steps = ((2, 5), 2) if options.quick else (SAMPLED, STEPS)
    return [job("Fig. 3", "mnist", method, PARTITIONS, s, steps, options) for method in MEMBERS for s in sampled]


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Compare the algorithms over S."""
    return compare(measured, "fig3", "S", _claims)


def _claims(cells: Cells, series: Sequence[Series]) -> list[Claim]:
    more = "A larger S leads to faster speed and better performance of LoSAC."
    return [
        verdicts.more_helps(cells, series, "S", "losac", more),
        verdicts.more_helps(cells, series, "S", "fedcm", "More clients lead to a higher performance of FedCM."),
    ]


STUDY = Study("fig3", "Fig. 3: clients per round on MNIST", jobs, conclude, ("mnist",))
