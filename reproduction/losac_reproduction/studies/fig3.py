"""Fig. 3: MNIST with S = 10, 30, 50, 100 clients a round, IID and sorted by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from losac_reproduction.claims import JudgedClaim, Statement, judge
from losac_reproduction.studies.mnist_panels import PARTITIONS, compare
from losac_reproduction.studies.sensitivity import (
    KEYS,
    LONG_SGD,
    MEMBERS,
    SGD,
    SINGLE,
    Case,
    Found,
    fedcm_helped,
    job,
    more_helps,
    sustained,
)
from losac_reproduction.study import Job, Options, Study
from losac_reproduction.words import told

SAMPLED, STEPS, DEFAULT = (10, 30, 50, 100), 5, 50


def jobs(options: Options) -> list[Job]:
    """Return one job for each algorithm and S, and FedSGD's at the default S.

    The short form has two small S, one of them with a job of Fig. 4.
    """
    sampled, steps = ((2, 5), 2) if options.quick else (SAMPLED, STEPS)
    pairs = [(method, s) for method in MEMBERS for s in sampled]
    pairs += [(method, 5 if options.quick else DEFAULT) for method in SINGLE]
    return [job("Fig. 3", "mnist", method, PARTITIONS, s, steps, options) for method, s in pairs]


SINGLE_STEPS = Statement(
    "FedAvg improves the communication efficiency compared with FedSGD.", "Compared algorithms",
    "not testable if not there | holds if equal == of and fair == of | holds only at equal step size if equal == of | "
    "holds in part if equal or fair | fails",
    "Sustained rounds to 85 % (FedSGD takes one step with all of a client's rows): {shown}.",
    "Holds if FedAvg stays at 85 % in fewer rounds than FedSGD, with IID and with non-IID data, at the same step size "
    "and also where FedSGD's one step is as long as FedAvg's T.",
)  # fmt: skip


def claims(found: Found, series: Sequence[Sequence[Case]]) -> list[JudgedClaim]:
    """Judge what the paper says of S."""
    return [
        *more_helps(found, series, "A larger S leads to faster speed and better performance of LoSAC."),
        *fedcm_helped(found, series),
        *judge([SINGLE_STEPS], _single(found, series)),
    ]


def _single(found: Found, series: Sequence[Sequence[Case]]) -> dict[str, Any]:
    """Compare FedAvg with FedSGD in the settings where it ran; a run that never gets there loses to one that does."""
    cases = [case for row in series for case in row if SGD in found[case] and LONG_SGD in found[case]]
    rounds = {case: [sustained(found[case][m]) for m in ("fedavg", SGD, LONG_SGD)] for case in cases}
    parts = [
        f"{case.kind}, S = {case.s}: FedAvg {told(a, '.0f|never')}, FedSGD {told(b, '.0f|never')} at the same η and "
        f"{told(c, '.0f|never')} with equally long rounds"
        for case, (a, b, c) in rounds.items()
    ]
    return {
        "there": any(np.isfinite(row).any() for row in rounds.values()), "of": len(cases), "shown": "; ".join(parts),
        "equal": sum(a < b for a, b, _ in rounds.values()), "fair": sum(a < c for a, _, c in rounds.values()),
    }  # fmt: skip


STUDY = Study(
    "fig3", "Fig. 3: clients per round on MNIST", jobs,
    lambda frame, options: compare(frame, "fig3", "S", claims), ("mnist",), place=6, keys=KEYS,
)  # fmt: skip
