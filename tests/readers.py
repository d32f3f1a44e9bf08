"""Reads the files of trackers that come without a reader of their own."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

_BLOCK, _HEADER = 32768, 7


def tensorboard_events(folder: Path) -> list[Any]:
    """All events of a folder as TensorBoard shows them: what comes before the start of a session is hidden by it."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    shown: list[Any] = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content = path.read_bytes()
        at = 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            at += 12 + length + 4
            if event.session_log.status == SessionLog.START:
                shown = [e for e in shown if e.step < event.step]
            shown.append(event)
    return shown


def wandb_records(path: Path) -> list[Any]:
    """The records of a W&B file, which is a log of LevelDB after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    content = path.read_bytes()
    assert content[:4] == b":W&B"
    at, parts, records = _HEADER, b"", []
    while at < len(content):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        parts += content[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length
        if kind in (1, 4):  # full, or the last part
            records.append(Record.FromString(parts))
            parts = b""
    return records


def wandb_items(items: Any) -> dict[str, Any]:
    """Names and values, written as JSON in W&B's records."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
