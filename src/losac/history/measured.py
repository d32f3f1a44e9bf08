"""What an engine hands to the record of a run: who took part in each round, and what was measured after them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np


class Participation(NamedTuple):
    """Who took part in some rounds: a client and a round for each visit."""

    ids: np.ndarray
    rounds: np.ndarray


NOBODY = Participation(np.zeros(0, int), np.zeros(0, int))


def participation_of(ids: np.ndarray, active: np.ndarray, first: int) -> Participation:
    """Return the visits of rounds from ``first`` on, given as ids [rounds, S] and the mask of those that take part.

    >>> participation_of(np.array([[2, 1], [3, 0]]), np.array([[True, True], [True, False]]), 5)
    Participation(ids=array([2, 1, 3]), rounds=array([5, 5, 6]))
    """
    return Participation(ids[active], first + np.nonzero(active)[0])


class Measurements(NamedTuple):
    """The outcome of one call of the program: the rounds where its pieces ended, the metrics there, and who took part.

    If an interval between evaluations went in several pieces, only the last one is ``evaluated``. ``whole`` are the
    metrics of all rows at once, where NaN means undefined and not diverged.
    """

    rounds: np.ndarray
    metrics: dict[str, np.ndarray]
    visits: list[Participation]  # for each piece, who took part in it
    broken: int
    evaluated: np.ndarray
    whole: Mapping[str, np.ndarray] = MappingProxyType({})
