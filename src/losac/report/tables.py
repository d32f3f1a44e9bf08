"""Comparison tables: one row per algorithm and settings, for the terminal, for pandas and for pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.history import History
from losac.report.groups import Group, default_metrics, group_histories, headline_metric, shown

if TYPE_CHECKING:
    from rich.table import Table

MISSING = "–"


@dataclass(frozen=True)
class Row:
    """What one algorithm reached and what it cost, one value per run that did not diverge."""

    label: str
    step_size: str
    seeds: tuple[int, ...]
    diverged: int
    fate: str
    final: Mapping[str, tuple[float, ...]]
    to_target: tuple[int | None, ...] | None
    costs: Mapping[str, tuple[float, ...]]


def comparison_rows(
    histories: Sequence[History], *, target: float | None = None, labels: Sequence[str] | None = None
) -> list[Row]:
    """Return one row for each group of runs that differ in the seed only.

    Args:
      histories: the runs.
      target: the value of the accuracy (or else of the last metric) whose first round is reported.
      labels: one for each run.
    """
    metric = headline_metric(histories)
    return [_row(group, metric, target) for group in group_histories(histories, labels)]


def table_cells(rows: Sequence[Row], target: float | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the head and the body of the table as texts; numbers are mean ± standard deviation over the seeds left."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.final))
    reach = [] if target is None else [f"rounds to {target:g}"]
    head = ["algorithm", "η", *metrics, *reach, "MB up", "MB down", "gradients", "seconds"]
    return head, [_cells(row, metrics) for row in rows]


def comparison_table(
    histories: Sequence[History], *, target: float | None = None, labels: Sequence[str] | None = None
) -> Table:
    """Return the comparison as a rich table."""
    from rich import box
    from rich.table import Table

    rows = comparison_rows(histories, target=target, labels=labels)
    head, body = table_cells(rows, target)
    seeds = max(len(row.seeds) for row in rows)
    spread = f", mean ± standard deviation over {seeds} seeds" if seeds > 1 else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"{histories[0].task}{spread}",
        title_justify="left",
        title_style="bold",
    )
    for index, name in enumerate(head):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=index > 0)
    for row, cells in zip(rows, body):
        table.add_row(*([f"{cells[0]}\n[red]{row.fate}[/red]", *cells[1:]] if row.fate else cells))
    return table


def comparison_frame(
    histories: Sequence[History], *, target: float | None = None, labels: Sequence[str] | None = None
) -> Any:
    """Return the comparison as a pandas DataFrame: mean and standard deviation of everything."""
    import pandas as pd

    rows = comparison_rows(histories, target=target, labels=labels)
    return pd.DataFrame([_record(row, target) for row in rows])


def write_csv(
    histories: Sequence[History],
    path: str | Path,
    *,
    target: float | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write the comparison as a CSV file; return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    comparison_frame(histories, target=target, labels=labels).to_csv(path, index=False)
    return path


def _row(group: Group, metric: str, target: float | None) -> Row:
    costs: dict[str, Callable[[History], float]] = {
        "megabytes_up": lambda run: float(run.bytes_up[-1]) / 1e6,
        "megabytes_down": lambda run: float(run.bytes_down[-1]) / 1e6,
        "gradients": lambda run: float(run.gradients[-1]),
        "seconds": lambda run: float(run.seconds[-1]),
    }
    return Row(
        label=group.label,
        step_size=shown(group.runs[0].settings.get("step_size")),
        seeds=tuple(run.seed for run in group.runs),
        diverged=len(group.runs) - len(group.finished),
        fate=group.fate,
        final={name: tuple(run.final(name) for run in group.finished) for name in default_metrics(group.runs[0])},
        to_target=None if target is None else tuple(run.rounds_to(metric, target) for run in group.finished),
        costs={name: tuple(cost(run) for run in group.finished) for name, cost in costs.items()},
    )


def _cells(row: Row, metrics: Sequence[str]) -> list[str]:
    values = {name: row.final.get(name, ()) for name in metrics}
    final = [_percent(v) if name == "accuracy" else _number(v) for name, v in values.items()]
    reach = [] if row.to_target is None else [_reached(row.to_target)]
    return [row.label, row.step_size, *final, *reach, *(_plain(values) for values in row.costs.values())]


def _record(row: Row, target: float | None) -> dict[str, Any]:
    record: dict[str, Any] = {"algorithm": row.label, "step_size": row.step_size}
    record |= {"seeds": len(row.seeds), "seeds_diverged": row.diverged}
    for name, values in {**row.final, **row.costs}.items():
        record |= {name: _mean(values), f"{name}_std": _spread(values)}
    if row.to_target is not None:
        reached = tuple(float(r) for r in row.to_target if r is not None)
        record |= {f"rounds_to_{target:g}": _mean(reached), "seeds_at_target": len(reached)}
    return record | {"diverged": row.fate}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _number(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    mean = _mean(values)
    digits = max(0, 3 - math.floor(math.log10(abs(mean)))) if mean and math.isfinite(mean) else 0
    if digits > 8 or abs(mean) >= 1e6:
        return f"{mean:.3e}" + (f" ± {_spread(values):.1e}" if len(values) > 1 else "")
    return f"{mean:.{digits}f}" + (f" ± {_spread(values):.{digits}f}" if len(values) > 1 else "")


def _percent(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    return f"{100 * _mean(values):.1f}" + (f" ± {100 * _spread(values):.1f}" if len(values) > 1 else "") + " %"


def _reached(rounds: Sequence[int | None]) -> str:
    """Return the mean first round, and of how many seeds it is where others never got there."""
    if not rounds:
        return MISSING
    reached = [float(r) for r in rounds if r is not None]
    if not reached:
        return "never"
    some = f" ({len(reached)} of {len(rounds)})" if len(reached) < len(rounds) else ""
    return f"{_mean(reached):.0f}" + (f" ± {_spread(reached):.0f}" if len(reached) > 1 else "") + some


def _plain(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    mean = _mean(values)
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.3g}"
