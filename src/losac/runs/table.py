"""The metrics as files: a CSV that grows line by line, and a Parquet copy, rewritten as a whole."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from losac._costs import COSTS
from losac._files import write_whole
from losac.history import History
from losac.runs.layout import PARQUET, TABLE


class MetricsTable:
    """Writes the evaluations that a history has more than the time before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0

    def begin(self, history: History | None) -> None:
        """Replace the content by a history, for a run that continues from it; by nothing for a new one."""
        self.written = 0
        if history is None:
            (self.folder / TABLE).unlink(missing_ok=True)
            (self.folder / PARQUET).unlink(missing_ok=True)
            return
        write_whole(self.folder / TABLE, _text([_head(history), *_rows(history, 0)]))
        self.written = len(history.rounds)
        self.write_parquet(history)

    def add(self, history: History) -> None:
        """Append the new evaluations to the CSV."""
        lines = _rows(history, self.written)
        if self.written == 0:
            lines.insert(0, _head(history))
        with open(self.folder / TABLE, "a", encoding="utf-8", newline="") as file:
            file.write(_text(lines))
            file.flush()
            os.fsync(file.fileno())
        self.written = len(history.rounds)

    def write_parquet(self, history: History) -> None:
        """Replace the Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(pa.table(history.columns()), buffer)
        write_whole(self.folder / PARQUET, buffer.getvalue())


def read_table(folder: Path) -> dict[str, np.ndarray] | None:
    """Return the columns of the CSV; a last line that was cut off is left out. None if there is no line yet."""
    try:
        text = (folder / TABLE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ValueError(f"{folder / TABLE} is damaged: {error}") from None
    lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    if len(lines) < 2 or lines[0][0] != "round":
        return None
    needed = [*(name for name, cost in COSTS.items() if not cost.later), "seconds"]
    missing = [name for name in needed if name not in lines[0]]
    if missing:
        raise ValueError(f"{folder / TABLE} is damaged: it has no column {missing[0]!r}")
    whole = [line for line in lines[1:] if len(line) == len(lines[0])]
    columns = np.array([[float(cell or "nan") for cell in line] for line in whole]).reshape(-1, len(lines[0])).T
    return dict(zip(lines[0], columns)) if len(whole) else None


def _head(history: History) -> list[str]:
    return list(history.columns())


def _rows(history: History, first: int) -> list[list[Any]]:
    columns = [column[first:].tolist() for column in history.columns().values()]
    return [["" if value != value else value for value in row] for row in zip(*columns)]


def _text(lines: list[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    return buffer.getvalue()
