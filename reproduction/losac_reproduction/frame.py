"""Results as one tidy pandas frame: a row for each number, with study, data, method, seed, metric, round and value.

What else tells measurements apart (a partition, S and T, a step size) has its own column behind these seven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from losac_reproduction.study import JobResult

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("study", "data", "method", "seed", "metric", "round", "value")
_SYNONYMS = {"problem": "data", "member": "method", "name": "method"}
"""Arguments of jobs that are data sets and methods."""

Cells = dict[Any, list[Any]]
"""Values by what tells them apart, in the order of measurement; NaN where there is none."""


def tidy(study: str, measured: Sequence[JobResult], keys: Mapping[str, str]) -> pd.DataFrame:
    """Return the results of jobs as a frame.

    Args:
      study: its name.
      measured: the results; of a job's arguments the numbers and texts become columns.
      keys: which entries of a result are no metrics but tell them apart, and the columns for them: the keys of such an
        entry where it is a dictionary, else its value. A list ``round`` belongs to the lists near it; where
        ``round`` is one of the keys, the place in a list is its ``step``.

    >>> one = JobResult("", {"member": "losac"}, [{"seed": 0, "loss": [2, 1], "round": [0, 5], "end": {"a": 3}}], 1.0)
    >>> tidy("fig0", [one], {"seed": "seed"})[["method", "seed", "metric", "round", "value"]].values.tolist()
    [['losac', 0, 'loss', 0.0, 2.0], ['losac', 0, 'loss', 5.0, 1.0], ['losac', 0, 'end a', nan, 3.0]]
    """
    import pandas as pd

    rows = []
    for one in measured:
        own = {_SYNONYMS.get(k, k): v for k, v in one.arguments.items() if not isinstance(v, list | dict)}
        rows += [{"study": study, **own, **row} for row in _walk(one.result, {}, "", keys, None)]
    frame = pd.DataFrame(rows)
    frame["value"] = _numbers(frame["value"])
    first = [name for name in COLUMNS if name in frame]
    return frame[[*first, *(name for name in frame if name not in COLUMNS)]]


def _walk(
    entry: Any, where: dict[str, Any], metric: str, keys: Mapping[str, str], at: list[int] | None
) -> Iterator[dict[str, Any]]:
    if isinstance(entry, list):
        for each in entry:
            yield from _walk(each, where, metric, keys, at)
    elif not isinstance(entry, Mapping):
        yield {"round": None} | where | {"metric": metric, "value": entry}
    else:
        where = where | {keys[k]: v for k, v in entry.items() if k in keys and not isinstance(v, Mapping | list)}
        at = entry["round"] if isinstance(entry.get("round"), list) else at
        for name, part in entry.items():
            path = f"{metric} {name}".strip()
            if isinstance(part, list) and part and not isinstance(part[0], Mapping | list):
                rounds = at if at is not None and len(at) == len(part) else range(len(part))
                axis = "step" if "round" in where else "round"
                for when, value in zip(rounds, part if name != "round" else []):
                    yield where | {"metric": path, axis: when, "value": value}
            elif name in keys and isinstance(part, Mapping):
                for key, each in part.items():
                    own = where | {keys[name]: int(key) if key.isdigit() else key}
                    yield from _walk(each, own, metric if isinstance(each, Mapping | list) else path, keys, at)
            elif name not in keys or isinstance(part, list):
                yield from _walk(part, where, path if name not in keys else metric, keys, at)


def _numbers(values: Sequence[Any]) -> list[Any]:
    """Return values as numbers, NaN for None; what is no number stays a text."""

    def number(value: Any) -> Any:
        try:
            return math.nan if value is None else float(value)
        except ValueError:
            return value

    return [number(value) for value in values]


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV, compressed where the name says so."""
    frame.to_csv(path, index=False, compression={"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None)


def read_frame(path: Path) -> pd.DataFrame:
    """Read a frame back."""
    import pandas as pd

    frame = pd.read_csv(path, dtype={"value": str}, low_memory=False)
    frame["value"] = _numbers(frame["value"])
    return frame


def cells(frame: pd.DataFrame, metric: str, by: Sequence[str], **where: Any) -> Cells:
    """Return a metric's values by some columns (None where a frame has none), for the rows where others have values.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"metric": ["loss"] * 3, "method": ["a", "b", "a"], "seed": 0, "value": [3.0, 2.0, 1.0]})
    >>> cells(frame, "loss", ["method"], seed=0)
    {'a': [3.0, 1.0], 'b': [2.0]}
    """
    here = frame["metric"] == metric
    for name, value in where.items():
        column = frame.get(name)
        here &= (column is None or column.isna()) if value is None else column == value
    rows, found = frame[here].reindex(columns=[*by, "value"]), Cells()
    for *key, value in zip(*(rows[name] for name in by), rows["value"]):
        plain = tuple(map(_plain, key))
        found.setdefault(plain if len(by) > 1 else plain[0], []).append(value)
    return found


def _plain(key: Any) -> Any:
    """Return what tells measurements apart as it was before other rows of its column had none of it."""
    if isinstance(key, float):
        return None if math.isnan(key) else int(key) if key.is_integer() else key
    return key.item() if hasattr(key, "item") else key
