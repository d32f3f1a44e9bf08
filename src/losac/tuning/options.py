"""How :func:`losac.tune` searches, and how it judges what it finds, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from losac._checks import check_count, check_flag, check_kind, check_number, is_number, nearest, shown
from losac._options import about
from losac.jobs.workers import Workers
from losac.simulation.options import SweepComputeKeywords, SweepRunKeywords

Search = Literal["grid", "refine", "random", "optuna"]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search, and how to judge; the fields are explained at :func:`losac.tune`.

    >>> SearchOptions(search="random", trials=16).widen
    True
    """

    search: Search = field(default="grid", metadata=about("How points are chosen: grid, refine, random or optuna."))
    trials: int | None = field(
        default=None, metadata=about("Points to try, except in a grid, which tries all.", min=1, default="32")
    )
    metric: str | None = field(default=None, metadata=about("Metric to score.", default="accuracy, else loss"))
    target: float | None = field(default=None, metadata=about("Seek the fewest rounds to this value of the metric."))
    sustained: int = field(default=1, metadata=about("Evaluations in a row that must be at the target.", min=1))
    validation: float | None = field(
        default=0.2,
        metadata=about(
            "Share of the clients' rows set aside to score on; 0: score on the training rows.", min=0, max=1
        ),
    )
    widen: bool = field(default=True, metadata=about("Extend a grid if its best point is at an edge."))
    most_widenings: int = field(default=4, metadata=about("How many times a grid is extended, at most.", min=0))
    batch: int = field(default=8, metadata=about("Points that refine and optuna choose at a time.", min=1))
    kept: str | None = field(
        default=None, metadata=about("Folder that keeps runs that have ended; the same search does not repeat them.")
    )
    on: Workers = field(default=Workers(), metadata=about("Where the runs are computed."))

    def __post_init__(self) -> None:
        known = get_args(Search)
        if self.search not in known:
            hint = nearest(self.search, known)
            raise ValueError(f"search={self.search!r} must be one of {', '.join(map(repr, known))}{hint}")
        if self.search == "grid" and self.trials is not None:
            raise ValueError(
                f"trials={self.trials} is for search='refine', 'random' and 'optuna'; a grid runs all its points"
            )
        for name in ("trials", "batch"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_flag("widen", self.widen)
        check_kind("on", self.on, Workers, "such as losac.jobs.Workers(on='ray', address='auto')")
        check_count("sustained", self.sustained)
        if self.sustained > 1 and self.target is None:
            raise ValueError(f"sustained={self.sustained} counts evaluations at a target; give target too")
        check_count("most_widenings", self.most_widenings, 0)
        if self.target is not None:
            check_number("target", self.target)
        share = self.validation
        if share is not None and not (is_number(share) and 0 < share < 1):
            raise ValueError(f"validation={shown(share)} must be a share between 0 and 1, such as 0.2, or None")


class TuneKeywords(SweepRunKeywords, SweepComputeKeywords, total=False):
    """The options of :func:`losac.tune` as keywords."""

    seed: int
    search: Search
    trials: int | None
    metric: str | None
    target: float | None
    sustained: int
    validation: float | None
    widen: bool
    most_widenings: int
    batch: int
    kept: str | None
    on: Workers
