"""Trackers by name, as the command line makes them."""

from __future__ import annotations

import os
from pathlib import Path

from losac._settings import nearest
from losac.tracking.mlflow import MLflow
from losac.tracking.tensorboard import TensorBoard
from losac.tracking.tracker import Tracker
from losac.tracking.wandb import WandB

TRACKERS = ("tensorboard", "mlflow", "wandb")


def make_tracker(name: str, folder: Path | None, project: str = "losac") -> Tracker:
    """Return the tracker of a name, for a run with its results in a folder.

    TensorBoard's events go to ``folder/tensorboard``. MLflow logs to ``MLFLOW_TRACKING_URI`` or to
    ``folder/mlflow/mlflow.db``. Weights & Biases is in the mode ``WANDB_MODE``, offline by default, with its files in
    ``folder/wandb``. ``project`` names MLflow's experiment and W&B's project unless ``MLFLOW_EXPERIMENT_NAME`` and
    ``WANDB_PROJECT`` do.
    """
    if not isinstance(name, str) or name not in TRACKERS:
        raise ValueError(f"no tracker {name!r}{nearest(name, list(TRACKERS))}; there are {', '.join(TRACKERS)}")
    if name == "tensorboard":
        return TensorBoard(_needed(folder, name) / "tensorboard")
    if name == "mlflow":
        uri = None if "MLFLOW_TRACKING_URI" in os.environ else _database(_needed(folder, name) / "mlflow")
        own = None if folder is None else folder / "mlflow"
        return MLflow(os.environ.get("MLFLOW_EXPERIMENT_NAME", project), uri, folder=own)
    if "WANDB_MODE" not in os.environ:
        _needed(folder, name)
    mode = os.environ.get("WANDB_MODE", "offline")
    return WandB(os.environ.get("WANDB_PROJECT", project), mode, folder=folder)


def _needed(folder: Path | None, name: str) -> Path:
    if folder is None:
        instead = {"mlflow": ", or set MLFLOW_TRACKING_URI", "wandb": ", or set WANDB_MODE"}.get(name, "")
        raise ValueError(f"{name} needs a folder to write to: give --out DIR{instead}")
    return folder


def _database(folder: Path) -> str:
    return f"sqlite:///{folder.resolve() / 'mlflow.db'}"
