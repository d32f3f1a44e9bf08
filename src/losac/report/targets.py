"""What it costs to reach a target: rounds, over the seeds of a group."""

from __future__ import annotations

from typing import NamedTuple

from losac.report.groups import Group


class Reached(NamedTuple):
    """The rounds at which the seeds that got there reached a target, and how many seeds there were."""

    rounds: tuple[int, ...]
    of: int

    @property
    def partly(self) -> bool:
        """Whether some seeds got there and some did not."""
        return 0 < len(self.rounds) < self.of


def reached(member: Group, metric: str, target: float) -> Reached:
    """Return the first rounds at which a metric was at the target; a run that diverged later does not count."""
    rounds = (run.rounds_to(metric, target) for run in member.finished)
    return Reached(tuple(r for r in rounds if r is not None), len(member.runs))
