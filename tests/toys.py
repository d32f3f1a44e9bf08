"""Measurements that cost nothing, and a study of them; workers of another process import them from here."""

from __future__ import annotations

import uuid
from pathlib import Path

from losac.reproduce import Claim, Findings, Job, Study, Table

NOW = [0.0]
"""A clock that only `wait` moves."""


def squared(folder: str, value: float) -> dict[str, float]:
    """Leave a trace for each call, and refuse what is negative."""
    (Path(folder) / f"{value}-{uuid.uuid4().hex}").touch()
    if value < 0:
        raise ValueError(f"{value} is negative")
    return {"square": value**2}


def wait(seconds: float) -> None:
    NOW[0] += seconds


def calls(folder: Path) -> list[float]:
    """The values that were asked for, in order."""
    return sorted(float(path.name.rpartition("-")[0]) for path in folder.iterdir())


def squares(folder: Path, values, version: int = 1) -> list[Job]:
    folder.mkdir(exist_ok=True)
    return [Job(squared, {"folder": str(folder), "value": v}, f"square of {v}", version=version) for v in values]


def conclude(measured, options) -> Findings:
    total = sum(one.result["square"] for one in measured)
    claims = [Claim("Squares add up to a <b>lot</b> | [bold].", "Sec. 1 & 2", "holds", f"The sum is {total:g} > 0.")]
    rows = [[one.arguments["value"], one.result["square"], None] for one in measured]
    return Findings(f"In all {total:g}, [red] & <i>.", claims, [Table("squares", "Squares", ("x", "x²", "–"), rows)])


def study(folder: Path, values=(1.0, 2.0), name: str = "squares", data: tuple[str, ...] = ()) -> Study:
    return Study(name, f"The {name} of numbers", lambda options: squares(folder, values), conclude, data)
