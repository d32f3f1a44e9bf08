"""docs/bench.md: the field's benchmarks as they were run, beside the published numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from losac.bench import Benchmark, BenchmarkRow, names, read_setting
from losac_reproduction.markdown import rows_of

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "bench.json"
HEAD = """# Published benchmarks, run again

Settings of other papers that `losac bench` runs by name, and how far our numbers are from the published ones. For
readers who want to know whether this library trains as the field does, or who need a known setting to start from.

```console
losac bench list
losac bench run {first} --rows IID --seeds 0,1,2 --json
```

A setting is a file in `src/losac/bench/settings`. A change of its numbers needs a new version, so results name it. The
runs below were made by the second command, for some rows and seeds at a time, on {device}, on {date}.
*Generated from `benchmarks/results/bench.json` by `docs/generate_results.py`.*
"""
MEASURES = {"rounds": "rounds to {metric} {target:g}", "best": "best {metric}", "last": "{metric} at the end"}
READING = """
## What the distances say

- With batches of 10 our clients need about half as many rounds as the paper's or fewer, in every row. The paper chooses
  a step for each cell and doesn't print it, so the columns can't be compared strictly. Both agree on what matters: more
  clients a round help little, and clients with two digits each need several times as many rounds.
- With whole clients as batches (B = ∞) a step of 0.1 is too short: runs end after 2,000 rounds, all but one without the
  target.
- On the two rows of NIID-Bench that have run, one with two seeds and one with a single seed, our accuracy is within 0.2
  points of the published one. That is too few seeds for more than a first impression.
"""


def bench_page() -> str:
    """Return the page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    settings = [read_setting(name) for name in names()]
    lines = [HEAD.format(first=next(iter(found["settings"])), device=found["device"], date=found["date"])]
    for setting in settings:
        lines += [*section(setting, found["settings"].get(setting.name, {})), ""]
    return "\n".join(lines).rstrip() + "\n" + READING


def section(setting: Benchmark, found: dict[str, object]) -> Iterator[str]:
    """Yield the lines on one setting: what it is, what was measured, and what was not run."""
    yield f"## {setting.title}\n"
    yield f"`{setting.name}`, version {setting.version}; {setting.paper}. {setting.differences}\n"
    if not found:
        yield "Not run in full yet."
        return
    assert found["version"] == setting.version, f"benchmarks/results/bench.json is of another version of {setting.name}"
    rows: dict[str, list[float | None]] = found["rows"]  # type: ignore[assignment]
    measure = MEASURES[setting.measure].format(metric=setting.metric, target=setting.target or 0)
    ran = [row for row in setting.rows if row.name in rows]
    head = ("row", f"published {measure}", "ours, seed by seed", "distance of the mean")
    yield from rows_of(head, [told(row, rows[row.name], setting.measure == "rounds") for row in ran])
    left = [row.name for row in setting.rows if row.name not in rows]
    if left:
        yield f"\nNot run in full yet: {'; '.join(left)}."


def told(row: BenchmarkRow, values: Sequence[float | None], rounds: bool) -> tuple[str, str, str, str]:
    """Return a row's cells; a run without the target is a dash, and its row has no mean."""

    def number(value: float) -> str:
        return f"{value:.0f}" if rounds else f"{value:.3f}"

    shown = ", ".join("–" if value is None else number(value) for value in values)
    reached = [value for value in values if value is not None]
    if row.published is None or len(reached) < len(values):
        return row.name, "" if row.published is None else number(row.published), shown, ""
    apart = sum(reached) / len(reached) - row.published
    return row.name, number(row.published), shown, ("+" if apart > 0 else "−") + number(abs(apart))
