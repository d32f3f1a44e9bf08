"""The check that a run continues as what it was: what its folder recorded of it, against what it would be now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from losac.algorithms.contract import Algorithm
from losac.history.conditions import OF_A_PART, conditions, of_algorithm
from losac.history.history import plain_settings
from losac.runs.layout import DIGESTS
from losac.runs.machine import versions
from losac.runs.run import Run
from losac.simulation.engines.resident import precision
from losac.simulation.options import SimulationOptions
from losac.task import Task

_OTHER = {
    "loss": "another loss",
    "test": "other test rows",
    "data": "other data",
    "frozen": "other frozen weights",
    "params": "other initial parameters",
    "metric_functions": "other metrics",
    "algorithm": "other code of the algorithm",
}
_DIGEST = "_digest"
_OF_ARRAYS = ("data_digest", "test_digest", "frozen_digest")
"""Digests that do not depend on how a version of Python compiles functions."""


def check_same(run: Run, task: Task, algorithm: Algorithm, options: SimulationOptions) -> None:
    """Refuse to continue a run with another problem, algorithm or simulation than it recorded; name what differs.

    It may only become longer.
    """
    with precision(options.dtype, options.compute.matmul):
        found = conditions(task, options.conditions()) | of_algorithm(algorithm)
    names = {"algorithm": algorithm.label, "task": task.name, "seed": options.seed}
    now = {**names, "settings": plain_settings(algorithm.settings()), "conditions": found}
    python = run.about.get("versions", {}).get("python")
    comparable = python == versions()["python"] and run.about.get("digests") == DIGESTS
    differences = [d for d in _differences(run.about, now) if comparable or not _is_of_functions(d[0])]
    for name, old, new in sorted(differences, key=lambda difference: difference[0].endswith(_DIGEST)):
        made = f"{name} = {old!r}, and now it is {new!r}"
        if name.endswith(_DIGEST):
            word = name.removesuffix(_DIGEST)
            made = _OTHER.get(word, f"another {word}")
        raise ValueError(
            f"the run in {run.folder} was made with {made}; leave that as it was, or begin another run in another "
            "folder"
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs, with both values, of all that the run recorded."""
    for part, new in now.items():
        if part not in before:
            continue  # of an earlier version
        old = before[part]
        if not isinstance(new, Mapping):
            if old != new:
                yield part, old, new
            continue
        for name in dict.fromkeys([*old, *new]):
            if name not in OF_A_PART and old.get(name) != new.get(name):
                yield name, old.get(name), new.get(name)


def _is_of_functions(name: str) -> bool:
    return name.endswith(_DIGEST) and name not in _OF_ARRAYS
