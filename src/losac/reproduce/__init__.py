"""The paper, reproduced and judged: every table, figure and claim as a study that one command runs.

>>> from losac.reproduce import STUDIES
>>> STUDIES["table2"].title
'Table 2: memory M and local steps T'
"""

from losac.reproduce.output import read_results, write_results
from losac.reproduce.parts import STUDIES
from losac.reproduce.runner import JobsFailedError, Progress, run_jobs
from losac.reproduce.study import Claim, Figure, Findings, Job, Measured, Options, Study, Table

__all__ = [
    "STUDIES",
    "Claim",
    "Figure",
    "Findings",
    "Job",
    "JobsFailedError",
    "Measured",
    "Options",
    "Progress",
    "Study",
    "Table",
    "read_results",
    "run_jobs",
    "write_results",
]
