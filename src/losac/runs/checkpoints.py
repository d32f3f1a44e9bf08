"""Checkpoints of a run, by orbax: the state of server and clients, the random key, and the record so far."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from losac.history import History
from losac.runs.layout import CHECKPOINTS
from losac.simulation.engines.flat import flatten

LOG = logging.getLogger("losac.runs")
_ORBAX = logging.getLogger("absl")
KEPT = 2
"""How many: if one is damaged, another is left."""


class Checkpoint(NamedTuple):
    """What a run continues from: its state as arrays by name, and its record."""

    state: Mapping[str, np.ndarray]
    record: Mapping[str, Any]


class Checkpoints:
    """The checkpoints in a run's folder; each appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        import orbax.checkpoint as ocp

        self._said = _ORBAX.level
        _ORBAX.setLevel(logging.CRITICAL)  # raises its errors too
        options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager((folder / CHECKPOINTS).absolute(), options=options)

    def save(self, history: History, state: Any) -> None:
        """Keep a run's state and record at the round that was evaluated last."""
        import orbax.checkpoint as ocp

        parts = {"state": flatten(state), "record": _record(history)}
        saved = {name: ocp.args.StandardSave(part) for name, part in parts.items()}
        usual, sys.unraisablehook = sys.unraisablehook, _ignore_closed_loops
        self._manager.save(int(history.rounds[-1]), args=ocp.args.Composite(**saved), force=True)
        sys.unraisablehook = usual

    def latest(self) -> Checkpoint | None:
        """Return the last readable checkpoint; damaged ones are logged and skipped."""
        import orbax.checkpoint as ocp

        for step in sorted(self._manager.all_steps(), reverse=True):
            wanted = ocp.args.Composite(state=ocp.args.StandardRestore(), record=ocp.args.StandardRestore())
            try:
                found = self._manager.restore(step, args=wanted)
                return Checkpoint(found.state, found.record)
            except Exception as error:
                LOG.warning("the checkpoint of round %d is damaged and left out: %s", step, error)
                self._manager.delete(step)
        return None

    def close(self) -> None:
        """Release the folder."""
        self._manager.close()
        _ORBAX.setLevel(self._said)


def _ignore_closed_loops(problem: sys.UnraisableHookArgs) -> None:
    """Ignore writes that end after a failed save has given them up: its own error gives the reason.

    The hook stays in place after a failure, since some end later still.
    """
    if not (isinstance(problem.exc_value, RuntimeError) and "loop is closed" in str(problem.exc_value)):
        sys.__unraisablehook__(problem)


def _record(history: History) -> dict[str, Any]:
    return {"metrics": dict(history.metrics), "rounds": history.rounds, **history.costs, "seconds": history.seconds}
