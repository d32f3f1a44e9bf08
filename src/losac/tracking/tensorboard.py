"""Runs in TensorBoard: scalars over rounds, and the settings in its table of hyper-parameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from losac._extras import need
from losac.history.callbacks import End
from losac.tracking.tracker import Facts, MetricRow, Tracker

_VERSION = 0  # of what the table of hyper-parameters reads


class TensorBoard(Tracker):
    """Writes TensorBoard's event files to a folder, with tensorboardX: ``tensorboard --logdir FOLDER``.

    One folder is one run: a new run in it replaces the earlier one in TensorBoard. A continued run
    adds another file. TensorBoard keeps numbers in single precision.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(Path(folder) / "losac.json")
        self.folder = Path(folder)
        self._events = need("tensorboardX.event_file_writer", "tracking with TensorBoard", "tracking")
        self._protos = need("tensorboardX.proto.event_pb2", "tracking with TensorBoard", "tracking")
        self._writer: Any = None

    def open(self, facts: Facts, run_id: str | None) -> str:
        """Open a new file; a new run hides what the folder held before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._writer = self._events.EventsWriter(str(self.folder / "events"), f".{time.time_ns()}")
        if run_id is None:
            start = self._protos.SessionLog(status=self._protos.SessionLog.START)
            self._write(step=0, session_log=start)
        self._write(summary=_session_start(facts))
        self._writer.flush()
        return run_id or self.folder.name

    def log(self, rows: Sequence[MetricRow]) -> None:
        """Write one event per evaluation."""
        for row in rows:
            values = [{"tag": name, "simple_value": value} for name, value in row.values.items()]
            self._write(step=row.round, summary={"value": values})
        self._writer.flush()

    def close(self, end: End) -> None:
        """Write the status, for the table of hyper-parameters and as a text, and close the file."""
        self._write(summary=_session_end(end in ("finished", "stopped")))
        self._write(summary=_text("status", end))
        self._writer.close()

    def _write(self, **content: Any) -> None:
        self._writer.write_event(self._protos.Event(wall_time=time.time(), **content))


def _session_start(facts: Facts) -> Any:
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionStartInfo

    info = SessionStartInfo(start_time_secs=time.time())
    for name, value in facts.items():
        if isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = str(value)
    return _hparams("start", HParamsPluginData(version=_VERSION, session_start_info=info))


def _session_end(good: bool) -> Any:
    from tensorboardX.proto import api_pb2
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo

    status = api_pb2.Status.Value("STATUS_SUCCESS" if good else "STATUS_FAILURE")
    info = SessionEndInfo(status=status, end_time_secs=time.time())
    return _hparams("end", HParamsPluginData(version=_VERSION, session_end_info=info))


def _hparams(which: str, data: Any) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata

    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    tag = f"_hparams_/session_{which}_info"
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))])


def _text(tag: str, text: str) -> Any:
    from tensorboardX.summary import text as summary

    return summary(tag, text)
