"""Measurements that cost nothing, and a study of them; workers of another process import them from here."""

from __future__ import annotations

import uuid
from pathlib import Path

from losac_reproduction import Findings, Job, ResultTable, Statement, Study, judge

NOW = [0.0]
"""A clock that only `wait` moves."""


def squared(folder: str, number: float) -> dict[str, float]:
    """Leave a trace for each call, and refuse what is negative."""
    (Path(folder) / f"{number}-{uuid.uuid4().hex}").touch()
    if number < 0:
        raise ValueError(f"{number} is negative")
    return {"square": number**2}


def wait(seconds: float) -> None:
    NOW[0] += seconds


def calls(folder: Path) -> list[float]:
    """The values that were asked for, in order."""
    return sorted(float(path.name.rpartition("-")[0]) for path in folder.iterdir())


def squares(folder: Path, values, version: int = 1) -> list[Job]:
    folder.mkdir(exist_ok=True)
    return [Job(squared, {"folder": str(folder), "number": v}, f"square of {v}", version=version) for v in values]


def conclude(frame, options) -> Findings:
    total = frame["value"].sum()
    claims = judge([CLAIM], {"total": total})
    rows = [[number, square, None] for number, square in zip(frame["number"], frame["value"])]
    return Findings(
        f"In all {total:g}, [red] & <i>.", claims, [ResultTable("squares", "Squares", ("x", "x²", "–"), rows)]
    )


CLAIM = Statement(
    "Squares add up to a <b>lot</b> | [bold].", "Sec. 1 & 2", "holds if total > 0 | fails", "The sum is {total:g} > 0."
)


def study(folder: Path, values=(1.0, 2.0), name: str = "squares", data: tuple[str, ...] = ()) -> Study:
    return Study(name, f"The {name} of numbers", lambda options: squares(folder, values), conclude, data)
