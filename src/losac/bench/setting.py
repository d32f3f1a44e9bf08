"""A benchmark's setting as a TOML file: what all of its rows share, and each row with what a paper reports for it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from losac._settings import nearest

FOLDER = Path(__file__).with_name("settings")
Measure = Literal["rounds", "best", "last"]


@dataclass(frozen=True)
class BenchmarkRow:
    """One row of a table: an algorithm on a problem, and the published number; None if there is none to cite."""

    name: str
    algorithm: str
    published: float | None
    problem: Mapping[str, Any] = field(default_factory=dict)
    simulation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A named setting.

    Attributes:
      name, version: a change of numbers needs a new version.
      title, paper: what it is, and where it is from.
      differences: in what it cannot be the paper's, and what the paper does not say.
      metric: what is reported.
      target: the value to reach; None: no rounds are counted.
      measure: the first round at the target (``rounds``), or the ``best`` or ``last`` value.
      rows: of the table.
    """

    name: str
    version: int
    title: str
    paper: str
    differences: str
    metric: str
    target: float | None
    measure: Measure
    rows: tuple[BenchmarkRow, ...]


def names() -> list[str]:
    """Return the names of the settings."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_setting(name: str) -> Benchmark:
    """Return a setting by its name.

    >>> read_setting("fedavg_mnist_2nn").rows[0].published
    1474.0
    """
    if name not in names():
        raise ValueError(f"unknown benchmark {name!r}{nearest(name, names())}; known are {', '.join(names())}")
    content = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    shared = {section: content.get(section, {}) for section in ("problem", "simulation")}
    rows = tuple(
        BenchmarkRow(
            row["name"],
            row.get("algorithm", content["bench"].get("algorithm", "fedavg")),
            None if row.get("published") is None else float(row["published"]),
            shared["problem"] | row.get("problem", {}),
            shared["simulation"] | row.get("simulation", {}),
        )
        for row in content["rows"]
    )
    about = content["bench"]
    told = {key: about[key] for key in ("version", "title", "paper", "differences", "metric", "measure")}
    return Benchmark(name=name, target=about.get("target"), rows=rows, **told)
