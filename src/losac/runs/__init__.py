"""Runs as folders: written during the run, opened at any time, continued after an interruption or a crash."""

from losac.runs.clients import Clients
from losac.runs.keeper import FolderError
from losac.runs.record import check, record
from losac.runs.run import Run, find_runs, open_run

__all__ = ["Clients", "FolderError", "Run", "check", "find_runs", "open_run", "record"]
