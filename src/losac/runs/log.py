"""The log of a run: losac's messages with their times."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from losac.runs.layout import LOG


class _File(logging.FileHandler):
    """A file that may fill the disk: a line that cannot be written is left out, since the metrics say so anyway."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        return


@contextlib.contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Write what this package says to the folder and nowhere else, and the library's warnings there as well."""
    file = _File(folder / LOG, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    library, runs = logging.getLogger("losac"), logging.getLogger("losac.runs")
    shown = [] if library.hasHandlers() or logging.lastResort is None else [logging.lastResort]
    before = runs.level, runs.propagate
    runs.setLevel(logging.INFO)
    runs.propagate = False
    added = [(runs, file), *((library, handler) for handler in (file, *shown))]
    for logger, handler in added:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger, handler in added:
            logger.removeHandler(handler)
        runs.level, runs.propagate = before
        file.close()
