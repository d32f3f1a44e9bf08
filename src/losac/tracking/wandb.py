"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from losac._extras import need
from losac.history.callbacks import End
from losac.tracking.tracker import Facts, MetricRow, Tracker


class WandB(Tracker):
    """Logs to Weights & Biases: settings as its config, metrics over rounds, the status in its summary.

    Args:
      project: the name of its project.
      mode: ``"offline"`` writes files that ``wandb sync`` uploads; ``"online"`` uploads at once.
      folder: where its files go (a folder ``wandb`` in it), with the run's id in ``wandb/losac.json``: a
        continued run then extends the same run; the present folder, without the id, by default.
      options: anything else that ``wandb.init`` takes (``name``, ``group``, ``tags``, …).
    """

    def __init__(
        self,
        project: str = "losac",
        mode: str = "offline",
        *,
        folder: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(None if folder is None else Path(folder) / "wandb" / "losac.json")
        self.project, self.mode, self.options = project, mode, options
        self.folder = None if folder is None else Path(folder)
        self._wandb = need("wandb", "tracking with Weights & Biases", "tracking")
        self._run: Any = None

    def open(self, facts: Facts, run_id: str | None) -> str:
        """Begin a separate run, even if this process has other runs open."""
        if self.folder is not None:
            (self.folder / "wandb").mkdir(parents=True, exist_ok=True)
        options = {"name": facts["algorithm"], "settings": self._wandb.Settings(console="off")} | self.options
        self._run = self._wandb.init(
            project=self.project,
            mode=self.mode,
            dir=self.folder,
            config=dict(facts),
            id=run_id,
            resume=None if run_id is None else "allow",
            reinit="create_new",
            **options,
        )
        return str(self._run.id)

    def log(self, rows: Sequence[MetricRow]) -> None:
        """Log each row at its round."""
        for row in rows:
            self._run.log(row.values, step=row.round, commit=True)

    def close(self, end: End) -> None:
        """Finish the run with an exit code: 0 if it finished or was stopped, else 1."""
        self._run.summary["status"] = end
        self._run.finish(exit_code=0 if end in ("finished", "stopped") else 1)
