"""What a study is: jobs that measure, and a conclusion drawn from what they measured.

A job is a function of this package with arguments that can be written down, which lets its result be stored, found
again after an interruption, and computed by another process. A conclusion is a pure function of the stored results:
tables, figures and verdicts can be made again from them alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from losac_reproduction.claims import JudgedClaim

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing


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
      cost: roughly how long it takes relative to the others, for the estimate of the time left.
      version: raised whenever the function's meaning changes: old results are not taken for new ones.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    label: str
    cost: float = 1.0
    version: int = 1

    @property
    def digest(self) -> str:
        """The name of its result's file; the modules have the names that they had inside the library."""
        module = self.function.__module__.replace("losac_reproduction.studies", "losac.reproduce.parts")
        what = [module, self.function.__qualname__, self.version, dict(self.arguments)]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:20]


class JobResult(NamedTuple):
    """A job's arguments, with what it found, how long that took, and on what."""

    label: str
    arguments: Mapping[str, Any]
    result: Any
    seconds: float
    device: str = ""


class ResultTable(NamedTuple):
    """A table: ``name`` is its file's, cells are text, numbers or None.

    A page shows it where it is ``inline``, or by its length if that is None; else it links to the file.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    inline: bool | None = None


class Figure(NamedTuple):
    """A figure: ``name`` is its file's; it is drawn when it is wanted."""

    name: str
    caption: str
    draw: Callable[[], Drawing]


class Findings(NamedTuple):
    """What a study found, in a reader's order."""

    summary: str
    claims: Sequence[JudgedClaim] = ()
    tables: Sequence[ResultTable] = ()
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class Study:
    """One part of the reproduction.

    Args:
      name: on the command line.
      title: what it reproduces.
      jobs: the measurements, for some options.
      conclude: the findings, from the frame of these jobs' results.
      data: the data sets that it reads.
      place: among the studies, in the paper's order.
      keys: which entries of the jobs' results become columns of the frame; see :func:`losac_reproduction.frame.tidy`.
      reshape: what makes entries of a job's result that :func:`tidy` can read, where they are none as they are.
    """

    name: str
    title: str
    jobs: Callable[[Options], Sequence[Job]]
    conclude: Callable[[pd.DataFrame, Options], Findings]
    data: tuple[str, ...] = ()
    place: float = 99.0
    keys: Mapping[str, str] = field(default_factory=dict)
    reshape: Callable[[JobResult], JobResult] | None = None

    def frame(self, measured: Iterable[JobResult]) -> pd.DataFrame:
        """Return results of its jobs as one tidy frame."""
        from losac_reproduction.frame import tidy

        shaped = [one if self.reshape is None else self.reshape(one) for one in measured]
        return tidy(self.name, shaped, {"seed": "seed", **self.keys})

    def findings(self, measured: Iterable[JobResult], options: Options) -> Findings:
        """Return what follows from results of its jobs."""
        return self.conclude(self.frame(measured), options)
