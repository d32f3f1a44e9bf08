"""What the commands in the docs say, and the counts of the verdicts, as the numbers of :mod:`quotes`."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from losac_reproduction.answer import all_claims, counted, judged
from losac_reproduction.quoted import Numbers, Parts

RESULTS = Path(__file__).parent / "results"
COMMANDS = RESULTS / "commands.json"
"""The commands behind numbers that no study measures, with what they took: ``benchmarks/newcomer.py`` writes it."""


def verdicts(parts: Parts) -> Numbers:
    """Return how many claims were judged, and how."""
    claims = all_claims(parts)
    return {"claims": sum(judged(claims).values()), "counts": counted(claims)}


def demo(parts: Parts) -> Numbers:
    """Return the losses and accuracies of ``make demo``."""
    with (RESULTS / "demo" / "comparison.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    found = {"losac": "losac", "scaffold": "scaffold, server_step=1", "long": "scaffold, server_step=5"}
    return {
        f"{name}_{metric}": float(rows[key][metric]) for name, key in found.items() for metric in ("loss", "accuracy")
    }


def commands() -> Mapping[str, Mapping[str, Any]]:
    """Return the commands that were timed, by name."""
    return json.loads(COMMANDS.read_text(encoding="utf-8"))


def timed(name: str) -> Numbers:
    """Return how long a command took."""
    seconds = round(commands()[name]["seconds"])
    return {"time": duration(seconds), "minutes": round(seconds / 60)}


def duration(seconds: float) -> str:
    """Return a time as a reader wants it.

    >>> duration(131), duration(4200), duration(41.2)
    ('2 min 11 s', '70 min', '41 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{round(seconds / 60)} min" if minutes > 9 else f"{minutes} min {rest} s" if minutes else f"{rest} s"
