"""Independent jobs on this machine, on a Ray cluster or on Slurm: submit calls, receive what is finished."""

from losac.jobs.engine import JobCall, JobEngine, JobError, JobOutcome, JobsFailedError, LostJobError, open_engine
from losac.jobs.workers import Workers

__all__ = [
    "JobCall",
    "JobEngine",
    "JobError",
    "JobOutcome",
    "JobsFailedError",
    "LostJobError",
    "Workers",
    "open_engine",
]
