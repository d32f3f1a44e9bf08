"""The log of a run: what losac says while it goes on, with the time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from losac.runs.layout import LOG


class _Quiet(logging.FileHandler):
    """A file that may fill the disk: a line that cannot be written is left out, since the metrics say so anyway."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        return


@contextlib.contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Write the library's log to the folder, beside wherever else it goes."""
    logger = logging.getLogger("losac")
    file = _Quiet(folder / LOG, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    file.setLevel(logging.INFO)
    others = [] if logger.hasHandlers() or logging.lastResort is None else [logging.lastResort]
    before = logger.level
    logger.setLevel(logging.INFO)
    for handler in (file, *others):
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in (file, *others):
            logger.removeHandler(handler)
        logger.setLevel(before)
        file.close()
