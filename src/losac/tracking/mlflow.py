"""Runs in MLflow."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from losac._extras import need
from losac.history.callbacks import End
from losac.tracking.tracker import Facts, MetricRow, Tracker

_BATCH = 1000  # metrics that MLflow takes in one call


class MLflow(Tracker):
    """Logs to MLflow: settings as parameters, metrics over rounds, the status as a tag and as MLflow's own.

    Args:
      experiment: the name of MLflow's experiment, made if missing.
      uri: of the tracking server or store (``sqlite:///runs.db``); by default MLflow's own setting
        (``MLFLOW_TRACKING_URI``).
      name: of the run; the algorithm's by default.
      folder: keeps the run's id in ``losac.json``; a continued run then continues the same run of MLflow.
    """

    def __init__(
        self,
        experiment: str = "losac",
        uri: str | None = None,
        *,
        name: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(None if folder is None else Path(folder) / "losac.json")
        self.experiment, self.uri, self.name = experiment, uri, name
        self.folder = None if folder is None else Path(folder)
        self._mlflow = need("mlflow", "tracking with MLflow", "tracking")
        self._client: Any = None

    def open(self, facts: Facts, run_id: str | None) -> str:
        """Make the run, or set it running again."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        if self._client is None:
            with _without_news():
                self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        if run_id is not None:
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        run: str = self._client.create_run(experiment, run_name=self.name or str(facts["algorithm"])).info.run_id
        entities = self._mlflow.entities
        self._client.log_batch(run, params=[entities.Param(name, str(value)) for name, value in facts.items()])
        return run

    def log(self, rows: Sequence[MetricRow]) -> None:
        """Log the metrics of all rows, in batches of the size that MLflow takes."""
        now = int(time.time() * 1000)
        metric = self._mlflow.entities.Metric
        metrics = [metric(name, value, now, row.round) for row in rows for name, value in row.values.items()]
        for first in range(0, len(metrics), _BATCH):
            self._client.log_batch(self.run_id, metrics=metrics[first : first + _BATCH])

    def close(self, end: End) -> None:
        """End the run as FINISHED or FAILED."""
        self._client.set_tag(self.run_id, "losac.status", end)
        self._client.set_terminated(self.run_id, "FINISHED" if end in ("finished", "stopped") else "FAILED")


@contextlib.contextmanager
def _without_news() -> Iterator[None]:
    """Silence MLflow's messages about the tables of a new database."""
    logger = logging.getLogger("mlflow")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
