"""Fig. 4: MNIST with T = 2, 4, 6, 8 local steps, IID and sorted by label."""

from __future__ import annotations

from collections.abc import Sequence

from losac_reproduction.claims import JudgedClaim
from losac_reproduction.studies.mnist_panels import PARTITIONS, compare
from losac_reproduction.studies.sensitivity import (
    KEYS,
    MEMBERS,
    Case,
    Found,
    fedcm_hurt,
    fluctuates_more,
    job,
    more_helps,
)
from losac_reproduction.study import Job, Options, Study

SAMPLED, STEPS = 50, (2, 4, 6, 8)


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm and T; the short form has the two ends and few clients."""
    sampled, steps = (2, (2, 8)) if options.quick else (SAMPLED, STEPS)
    return [job("Fig. 4", "mnist", method, PARTITIONS, sampled, t, options) for method in MEMBERS for t in steps]


def claims(found: Found, series: Sequence[Sequence[Case]]) -> list[JudgedClaim]:
    """Judge what the paper says of T."""
    return [
        *more_helps(found, series, "A larger T leads to faster speed and better performance of LoSAC."),
        *fedcm_hurt(found, series[1]),
        *fluctuates_more(found, series[1]),
    ]


STUDY = Study(
    "fig4", "Fig. 4: local steps on MNIST", jobs,
    lambda frame, options: compare(frame, "fig4", "T", claims), ("mnist",), place=7, keys=KEYS,
)  # fmt: skip
