"""Jobs through submitit: with its local executor, and on Slurm where this machine can submit to one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import submitit

import losac.jobs.slurm
from errands import check, errands
from losac.jobs import Workers, open_engine
from losac.jobs.slurm import SlurmEngine


class OfThisMachine(submitit.LocalExecutor):
    def update_parameters(self, **_):
        """Names are for Slurm."""


class Here(SlurmEngine):
    """The engine with submitit's processes of this machine, and their states instead of a queue."""

    def _executor(self):
        return OfThisMachine(self.folder)

    def queue(self, ids):
        return {each: ("RUNNING" if _works(each) else "FAILED", "here") for each in ids}


def _works(process: str) -> bool:
    path = Path("/proc", process, "stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def slurm_answers() -> bool:
    return bool(shutil.which("sinfo")) and not subprocess.run(["sinfo"], capture_output=True).returncode


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_jobs_of_submitit_end_as_those_of_other_engines(tmp_path, monkeypatch):
    monkeypatch.setattr(losac.jobs.slurm, "_PATIENCE", 0.5)
    monkeypatch.setattr(losac.jobs.slurm, "_SECONDS_BETWEEN_QUEUES", 0.2)
    shared = tmp_path / "shared"
    with Here(Workers(on="slurm", shared=str(shared), jobs=2)) as engine:
        check(list(engine.run(errands(tmp_path))), tmp_path)
    logs = [path.name for path in shared.glob("*/*.err")]
    assert logs, "the logs of a lost job are kept"


def test_without_slurm_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=r"on='slurm': Could not detect .srun"):
        open_engine(Workers(on="slurm", shared=str(tmp_path)))
    assert not list(tmp_path.iterdir())


@pytest.mark.processes
@pytest.mark.skipif(not slurm_answers(), reason="no Slurm answers here: . benchmarks/slurm_here.sh start")
def test_jobs_on_slurm_end_as_those_of_other_engines(tmp_path):
    with open_engine(Workers(on="slurm", shared=str(tmp_path / "shared"), jobs=2)) as engine:
        check(list(engine.run(errands(tmp_path))), tmp_path)
