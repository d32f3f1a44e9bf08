"""What a study is: jobs that measure, and a conclusion drawn from what they measured.

A job is a function of this package with arguments that can be written down, so that its result can be stored, found
again after an interruption, and computed by another process. A conclusion is a pure function of the stored results:
tables, figures and verdicts can be made anew from ``results.json`` alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Verdict = Literal["holds", "holds only at equal step size", "holds in part", "fails", "not testable"]


class Options(NamedTuple):
    """How much to measure: which seeds, and whether in the short form."""

    seeds: tuple[int, ...] = (0, 1, 2)
    quick: bool = False


@dataclass(frozen=True)
class Job:
    """One measurement.

    Args:
      function: of a module of this package; takes the arguments by name and returns what JSON can hold.
      arguments: what JSON can hold.
      label: what the progress line says.
      cost: roughly how long it takes beside the others, for the estimate of the time left.
      version: raised whenever the function's meaning changes, so that old results are not taken for new ones.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    label: str
    cost: float = 1.0
    version: int = 1

    @property
    def digest(self) -> str:
        """The name of its result's file."""
        what = [self.function.__module__, self.function.__qualname__, self.version, dict(self.arguments)]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]


class Measured(NamedTuple):
    """A job's arguments, with what it found, how long that took, and on what."""

    label: str
    arguments: Mapping[str, Any]
    result: Any
    seconds: float
    device: str = ""


class Claim(NamedTuple):
    """A statement of the paper, our verdict, and the measured evidence for it."""

    text: str
    where: str
    verdict: Verdict
    evidence: str


class Table(NamedTuple):
    """A table: ``name`` is its file's, cells are text, numbers or None."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


class Figure(NamedTuple):
    """A figure: ``name`` is its file's; it is drawn when it is wanted."""

    name: str
    caption: str
    draw: Callable[[], Drawing]


class Findings(NamedTuple):
    """What a study found, in the order in which a reader wants it."""

    summary: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Study:
    """One part of the reproduction.

    Args:
      name: on the command line.
      title: what it reproduces.
      jobs: the measurements, for some options.
      conclude: the findings, from the results of these jobs in their order.
      data: the data sets that it reads.
    """

    name: str
    title: str
    jobs: Callable[[Options], Sequence[Job]]
    conclude: Callable[[Sequence[Measured], Options], Findings]
    data: tuple[str, ...] = ()


def select(measured: Sequence[Measured], **arguments: Any) -> Iterator[Measured]:
    """Return the results of the jobs with these arguments."""
    for one in measured:
        if all(one.arguments.get(name) == value for name, value in arguments.items()):
            yield one
