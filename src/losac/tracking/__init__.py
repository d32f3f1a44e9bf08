"""Runs in the tools people track theirs with: ``pip install 'losac[tracking]'``.

Each is a :class:`losac.Callback`, to be given to :func:`losac.simulate` as one of its ``callbacks``.
"""

from losac.tracking.mlflow import MLflow
from losac.tracking.names import TRACKERS, make_tracker
from losac.tracking.tensorboard import TensorBoard
from losac.tracking.tracker import MetricRow, Tracker
from losac.tracking.wandb import WandB

__all__ = ["TRACKERS", "MLflow", "MetricRow", "TensorBoard", "Tracker", "WandB", "make_tracker"]

Row = MetricRow
"""An earlier name."""
