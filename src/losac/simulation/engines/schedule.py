"""The schedule of a run: which clients take part in each round, and how many rounds go in one call of the program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from losac.history.history import History
from losac.history.measured import Participation, participation_of
from losac.simulation.engines.intervals import Piece, longest_interval, pieces
from losac.simulation.program.state import Schedule
from losac.simulation.sampling import Sampler, draw_clients

CALL_SECONDS = 1.0
"""Seconds that a call of the program should take."""
MOST_INTERVALS = 64
LARGEST_SCHEDULE = 2**24
"""The largest number of entries of a schedule."""
SMALL_SCHEDULE = 2**16
"""Schedules are rounded up only if they stay within this many entries, at five bytes each."""


class Calls:
    """The pieces of a run that go in each call of the program; a call takes about a second.

    Args:
      start: the round to begin after.
      stops: the rounds to evaluate at.
      width: clients per round, of all runs at once.
      alone: one evaluation per call, for metrics of all rows at once, or for a run that may end at any.
      live: one piece per call, for a sampler that looks at the history.
    """

    def __init__(self, start: int, stops: Sequence[int], width: int, *, alone: bool, live: bool = False) -> None:
        self.longest, most = schedule_size(start, stops, width)
        self.most = 1 if alone else min(most, MOST_INTERVALS)
        self.live, self._take = live, 1
        self._pieces = pieces(start, stops, self.longest)
        self._part: list[Piece] = []

    def __iter__(self) -> Iterator[list[Piece]]:
        """Yield the pieces of the next call; :meth:`took` receives how long the one before took."""
        while part := list(itertools.islice(self._pieces, self._take)):
            self._part = part
            yield part

    def took(self, seconds: float) -> None:
        """Choose the size of the next call; the first one compiles, so the size grows step by step."""
        if not self.live:
            wanted = CALL_SECONDS / seconds * len(self._part)
            self._take = int(np.clip(wanted, 1, min(self.most, 4 * self._take)))

    def blank(self, sampled: int) -> Schedule:
        """Return an empty schedule with room for a call."""
        return blank_schedule(self.most, self.longest, sampled)


def fill(
    schedule: Schedule, part: Sequence[Piece], sampler: Sampler, seed: int, clients: int, history: History | None = None
) -> list[Participation]:
    """Draw the clients of some pieces into a schedule; return who takes part in each.

    Args:
      schedule: empty, of arrays [evaluations, rounds, S].
      part: the pieces.
      sampler, seed: draw the clients.
      clients: N.
      history: what a sampler sees of the run so far.
    """
    visits, sampled = [], schedule.ids.shape[2]
    for e, (first, length, _) in enumerate(part):
        ids, active = draw_clients(sampler, seed, first, length, clients, sampled, history)
        schedule.ids[e, :length], schedule.active[e, :length] = ids, active
        schedule.lengths[e] = length
        visits.append(participation_of(ids, active, first))
    return visits


def empty_schedule(evaluations: int, rounds: int, sampled: int) -> Schedule:
    """Return an empty schedule of this size."""
    shape = evaluations, rounds, sampled
    return Schedule(np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(evaluations, np.int32))


def blank_schedule(evaluations: int, rounds: int, sampled: int) -> Schedule:
    """Return an empty schedule of at least this size.

    A small one is rounded up: a run of another length, or the rest of a run, then finds its program compiled.
    """
    roomy = (MOST_INTERVALS, max(8, 1 << (rounds - 1).bit_length()), sampled)
    return empty_schedule(*(roomy if math.prod(roomy) <= SMALL_SCHEDULE else (evaluations, rounds, sampled)))


def schedule_size(start: int, stops: Sequence[int], width: int) -> tuple[int, int]:
    """Return the length of the longest piece, and how many pieces go at a time; ``width``: clients per round."""
    longest = min(longest_interval(start, stops), max(1, LARGEST_SCHEDULE // width))
    return longest, min(len(stops), MOST_INTERVALS, max(1, LARGEST_SCHEDULE // (longest * width)))
