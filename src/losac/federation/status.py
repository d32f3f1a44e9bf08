"""How a run stands, in one small file next to its checkpoint: for ``losac deploy status`` and for monitoring.

The server writes it after every attempt at a round. It contains nothing that the checkpoint does not.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from losac._files import write_whole
from losac.federation.drive import Driver
from losac.federation.logs import LOG, fields_of, time_of
from losac.federation.versions import versions

STATUS = "status.json"
KEPT = 20
"""The number of refusals that are kept; equal ones count as one."""
LONGEST = 300


class Refusals(logging.Handler):
    """The last refusals: every line that is an error, with its time, round and client, and how often it came."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.total = 0
        self.recent: dict[tuple[str, str], dict[str, Any]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; one that came before moves to the end."""
        self.total += 1
        about, why = fields_of(record), record.getMessage()[:LONGEST]
        key = str(about.get("client", "")), why
        times = self.recent.pop(key, {"times": 0})["times"] + 1
        self.recent[key] = {"time": time_of(record), **about, "why": why, "times": times}
        while len(self.recent) > KEPT:
            del self.recent[next(iter(self.recent))]


class Reporter:
    """Keeps the status of a run up to date; as a context manager it also says how the run ended.

    Args:
      out: the folder of the results; None keeps nothing.
      about: what does not change, such as the algorithm and the number of rounds.
    """

    def __init__(self, out: Path | None, about: Mapping[str, Any]) -> None:
        self.out, self.refusals = out, Refusals()
        self.told: dict[str, Any] = {**about, **versions(), "state": "waiting for clients", "pid": os.getpid()}
        self.answered: dict[str, int] = {}

    def __enter__(self) -> Self:
        LOG.addHandler(self.refusals)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        LOG.removeHandler(self.refusals)
        self.write(state="finished" if error is None else f"ended by {type(error).__name__}: {error}"[:LONGEST])

    def write(self, **changes: Any) -> None:
        """Write the file, with some things changed."""
        self.told |= changes
        if self.out is not None:
            told = {**self.told, "written": time.time(), "refused": self.refusals.total}
            content = json.dumps(_finite({**told, "refusals": list(self.refusals.recent.values())}), indent=1)
            write_whole(self.out / STATUS, content + "\n", private=True)

    def follow(self, driver: Driver, log: Sequence[Mapping[str, Any]]) -> None:
        """Write where a server is now, by its book and the log of its attempts."""
        last = log[-1] if log else {}
        for line in log if not self.answered else [last]:
            self.answered |= dict.fromkeys(line.get("answered", []), line.get("round", 0))
        members = {
            name: {
                "place": member.client, "rows": member.rows, "present": name in driver.present,
                "answered": self.answered.get(name), "losac": driver.releases.get(name, ""),
            }
            for name, member in driver.book.members.items()
        }  # fmt: skip
        metrics: dict[str, float] = next((line["metrics"] for line in reversed(log) if "metrics" in line), {})
        costs = {name: value for name, value in last.items() if isinstance(value, float | int) and name != "round"}
        self.write(
            state="running", run=driver.book.run, round=driver.book.round, attempts=max(len(log) - 1, 0),
            void=sum(bool(line["void"]) for line in log), last_void=last.get("void", ""), asked=last.get("asked", []),
            answered=last.get("answered", []), metrics=metrics, costs=costs, members=members,
        )  # fmt: skip


def read_status(out: Path) -> dict[str, Any] | None:
    """Return how the run with this folder of results stands; None if its server has not said so."""
    try:
        found = json.loads((out / STATUS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise ValueError(f"{out / STATUS} is damaged; the server writes it again after its next round") from None
    return found if isinstance(found, dict) else None


def _finite(value: Any) -> Any:
    """Return a value with None for numbers that JSON does not know."""
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
