"""What lies where in a run's folder."""

from __future__ import annotations

FORMAT = "losac run 1"
EXPERIMENT = "experiment.toml"
ABOUT = "run.json"
TABLE = "metrics.csv"
PARQUET = "metrics.parquet"
CHECKPOINTS = "checkpoints"
CLIENTS = "clients.json"
LOG = "log.txt"
HISTORY = "history.npz"
LOCK = "lock"

FILES = (EXPERIMENT, ABOUT, TABLE, PARQUET, CLIENTS, LOG, HISTORY)
