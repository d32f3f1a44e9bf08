"""Comparison tables: one row per algorithm and settings, for the terminal, for pandas and for pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from losac._checks import check_path
from losac._costs import COSTS
from losac._files import write_whole
from losac.history import History
from losac.report.checks import check_target
from losac.report.groups import RunGroup, default_metrics, group_histories, headline_metric, latest
from losac.report.style import shown

if TYPE_CHECKING:
    from rich.table import Table

MISSING = "–"


@dataclass(frozen=True)
class TableRow:
    """What equal runs reached and cost, one value per completed seed.

    If none was completed, the values are those of the runs that have not diverged, at ``round``, the last that all
    evaluated.
    """

    label: str
    step_size: str
    seeds: tuple[int, ...]
    diverged: int
    unfinished: int
    round: int | None
    fate: str
    final: Mapping[str, tuple[float, ...]]
    to_target: tuple[int | None, ...] | None
    costs: Mapping[str, tuple[float, ...]]


def comparison_rows(
    histories: Sequence[History], *, target: float | None = None, labels: Sequence[str] | None = None
) -> list[TableRow]:
    """Return one row for each group of equal runs (:func:`losac.report.group_histories`).

    Args:
      histories: the runs.
      target: the value of the accuracy (or else of the last metric) to report the first round of.
      labels: one for each run.
    """
    check_target(target)
    return rows_of(group_histories(histories, labels), target)


def rows_of(groups: Sequence[RunGroup], target: float | None = None) -> list[TableRow]:
    """Return one row for each group."""
    metric = headline_metric(groups[0].runs)
    return [_row(group, metric, target) for group in groups]


def table_cells(rows: Sequence[TableRow], target: float | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the head and the body of the table as texts; numbers are mean ± standard deviation over the seeds.

    If not all seeds have reached the end, a number says how many seeds or which round it is of.
    """
    metrics = list(dict.fromkeys(name for row in rows for name in row.final))
    reach = [] if target is None else [f"rounds to {target:g}"]
    head = ["algorithm", "η", *metrics, *reach, *(cost.head for cost in COSTS.values()), "seconds"]
    return head, [_cells(row, metrics) for row in rows]


def comparison_table(
    histories: Sequence[History], *, target: float | None = None, labels: Sequence[str] | None = None
) -> Table:
    """Return the comparison as a rich table."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    rows = comparison_rows(histories, target=target, labels=labels)
    head, body = table_cells(rows, target)
    spread = f", mean ± standard deviation over {told}" if (told := seeds_told([row.seeds for row in rows])) else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"{histories[0].task}{spread}",
        title_justify="left",
        title_style="bold",
    )
    for index, name in enumerate(head):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=index > 0)
    for row, (label, *cells) in zip(rows, body):
        table.add_row(escape(label) + (f"\n[red]{escape(row.fate)}[/red]" if row.fate else ""), *cells)
    return table


def comparison_frame(
    histories: Sequence[History], *, target: float | None = None, labels: Sequence[str] | None = None
) -> Any:
    """Return the comparison as a pandas DataFrame: mean and standard deviation of everything."""
    import pandas as pd

    rows = comparison_rows(histories, target=target, labels=labels)
    return pd.DataFrame([_record(row, target) for row in rows])


def seeds_told(seeds: Sequence[Sequence[Any]]) -> str:
    """Return in words over how many seeds the means are; nothing if every row has only one.

    >>> seeds_told([(0, 1), (0,)]), seeds_told([(0, 1), (2, 3)]), seeds_told([(0,)])
    ('1 to 2 seeds', '2 seeds', '')
    """
    least, most = min(map(len, seeds)), max(map(len, seeds))
    if most < 2:
        return ""
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"


def write_csv(
    histories: Sequence[History],
    path: str | Path,
    *,
    target: float | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write the comparison as a CSV file; return its path."""
    path = check_path("path", path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, comparison_frame(histories, target=target, labels=labels).to_csv(index=False))
    return path


def _row(group: RunGroup, metric: str, target: float | None) -> TableRow:
    runs, last = latest(group)
    counted = [run if last is None else run.until(last) for run in runs]
    costs = {cost.column: tuple(cost.in_units(run.costs[name][-1]) for run in counted) for name, cost in COSTS.items()}
    return TableRow(
        label=group.label,
        step_size=", ".join(dict.fromkeys(shown(run.settings.get("step_size")) for run in group.runs)),
        seeds=tuple(run.seed for run in group.runs),
        diverged=sum(run.diverged is not None for run in group.runs),
        unfinished=len(group.going),
        round=last,
        fate=group.fate,
        final={name: tuple(run.final(name) for run in counted) for name in default_metrics(group.runs[0])},
        to_target=None if target is None else tuple(run.rounds_to(metric, target) for run in counted),
        costs=costs | {"seconds": tuple(float(run.seconds[-1]) for run in counted)},
    )


def _cells(row: TableRow, metrics: Sequence[str]) -> list[str]:
    values = {name: row.final.get(name, ()) for name in metrics}
    told = _of_how_many(row)
    final = [(_percent(v) if name == "accuracy" else _number(v)) + (told if v else "") for name, v in values.items()]
    reach = [] if row.to_target is None else [_reached(row.to_target)]
    return [row.label, row.step_size, *final, *reach, *(_plain(values) for values in row.costs.values())]


def _of_how_many(row: TableRow) -> str:
    """Return what follows a number that is not of all seeds at the end of their runs."""
    left_out = row.diverged + (row.unfinished if row.round is None else 0)
    some = [f"{len(row.seeds) - left_out} of {len(row.seeds)}"] if 0 < left_out < len(row.seeds) else []
    at = [] if row.round is None else [f"round {row.round}"]
    return f" ({', '.join([*some, *at])})" if some or at else ""


def _record(row: TableRow, target: float | None) -> dict[str, Any]:
    record: dict[str, Any] = {"algorithm": row.label, "step_size": row.step_size}
    record |= {"seeds": len(row.seeds), "seeds_diverged": row.diverged, "seeds_unfinished": row.unfinished}
    for name, values in {**row.final, **row.costs}.items():
        record |= {name: _mean(values), f"{name}_std": _spread(values)}
    if row.to_target is not None:
        reached = tuple(float(r) for r in row.to_target if r is not None)
        record |= {f"rounds_to_{target:g}": _mean(reached), "seeds_at_target": len(reached)}
    return record | {"round": row.round, "fate": row.fate}


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
    """Return the mean first round, and its number of seeds if others never got there."""
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
