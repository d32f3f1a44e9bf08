"""The files in a run's folder."""

from __future__ import annotations

from losac._claim import EXPERIMENT as EXPERIMENT

DIGESTS = 2
"""How functions are compared; folders with another number were written by earlier versions."""
FORMAT = "losac run 1"
ABOUT = "run.json"
TABLE = "metrics.csv"
PARQUET = "metrics.parquet"
CHECKPOINTS = "checkpoints"
CLIENTS = "clients.json"
LOG = "log.txt"
HISTORY = "history.npz"
