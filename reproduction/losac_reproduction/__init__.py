"""The paper, reproduced and judged: every table, figure and claim as a study that one command runs.

>>> from losac_reproduction import STUDIES
>>> STUDIES["table2"].title
'Table 2: memory M and local steps T'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from losac.jobs import JobsFailedError
    from losac_reproduction.claims import Headline, JudgedClaim, Statement, judge, pool
    from losac_reproduction.results import read_results, write_results
    from losac_reproduction.runner import Progress, run_jobs
    from losac_reproduction.studies import STUDIES
    from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study

_WHERE = {
    "claims": ("Headline", "JudgedClaim", "Statement", "judge", "pool"),
    "results": ("read_results", "write_results"),
    "runner": ("JobsFailedError", "Progress", "run_jobs"),
    "studies": ("STUDIES",),
    "study": ("Figure", "Findings", "Job", "JobResult", "Options", "ResultTable", "Study"),
}

__all__ = [
    "STUDIES",
    "Figure",
    "Findings",
    "Headline",
    "Job",
    "JobResult",
    "JobsFailedError",
    "JudgedClaim",
    "Options",
    "Progress",
    "ResultTable",
    "Statement",
    "Study",
    "judge",
    "pool",
    "read_results",
    "run_jobs",
    "write_results",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is: the command line lists its commands without jax."""
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
