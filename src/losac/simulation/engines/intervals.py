"""The rounds where a run is evaluated, and the pieces between them, computed on demand: a run can have any number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

MOST_ROUNDS = 2**31 - 1
"""The largest round that the counter of a program holds."""


@dataclass(frozen=True)
class EvaluationRounds(Sequence[int]):
    """The start, the multiples of ``every`` after it, and the last round; only those from ``low`` to ``high``."""

    start: int
    last: int
    every: int
    low: int
    high: int

    def __len__(self) -> int:
        return max(0, self.high - self.low)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> EvaluationRounds: ...
    def __getitem__(self, index: int | slice) -> int | EvaluationRounds:
        """Return one of the rounds, or a stretch of them."""
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            if step != 1:
                raise ValueError("evaluation rounds are cut into stretches only")
            return EvaluationRounds(self.start, self.last, self.every, self.low + begin, self.low + max(begin, end))
        at = index + (len(self) if index < 0 else 0)
        if not 0 <= at < len(self):
            raise IndexError(f"there are {len(self)} evaluation rounds, and no number {index}")
        at += self.low
        return self.start if at == 0 else min(self.last, (self.start // self.every + at) * self.every)


def evaluation_rounds(start: int, rounds: int, every: int) -> EvaluationRounds:
    """Return the rounds to evaluate at: the start, the multiples of ``every`` after it, and the last.

    >>> list(evaluation_rounds(0, 10, 4))
    [0, 4, 8, 10]
    """
    last = start + rounds
    if last > MOST_ROUNDS:
        after = f" after {start}" if start else ""
        raise ValueError(f"rounds={rounds}{after} are too many: a run has at most {MOST_ROUNDS}")
    inner = (last - 1) // every - start // every if rounds else 0
    return EvaluationRounds(start, last, every, 0, inner + 2)


def longest_interval(start: int, stops: Sequence[int]) -> int:
    """Return the largest number of rounds between two stops, or from the start to the first; at least 1."""
    ends = [stops[:4], stops[-4:]] if isinstance(stops, EvaluationRounds) else [stops]  # in between all are alike
    return max(1, int(np.diff([start, *ends[0]]).max(initial=1)), *(int(np.diff(e).max(initial=1)) for e in ends))


class Piece(NamedTuple):
    """Some rounds of a run in one piece; ``stop``: it is evaluated after them."""

    first: int
    length: int
    stop: bool

    @property
    def last(self) -> int:
        """The round that it ends at."""
        return self.first + self.length


def pieces(start: int, stops: Sequence[int], most: int) -> Iterator[Piece]:
    """Cut a run at its stops, into pieces of limited length.

    >>> list(pieces(0, [0, 5], 3))
    [Piece(first=0, length=0, stop=True), Piece(first=0, length=3, stop=False), Piece(first=3, length=2, stop=True)]
    """
    for stop in stops:
        while stop - start > most:
            yield Piece(start, most, False)
            start += most
        yield Piece(start, stop - start, True)
        start = stop


def ends(parts: Sequence[Piece]) -> dict[str, Any]:
    """Return where some pieces end and which of them are evaluated, in the form of a measurement."""
    return {"rounds": np.array([p.last for p in parts]), "evaluated": np.array([p.stop for p in parts])}
