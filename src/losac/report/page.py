"""One self-contained HTML page: charts, table, configuration and who holds which data; it fetches nothing."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from losac.history import History
from losac.report.groups import Axis, Group, group_histories, headline_metric, shown
from losac.report.interactive import chart
from losac.report.notes import fairness_notes, step_sizes
from losac.report.plots import comparison_panels
from losac.report.style import name_of, style
from losac.report.tables import comparison_rows, table_cells

if TYPE_CHECKING:
    from losac.data import FederatedData


def write_page(
    histories: Sequence[History],
    path: str | Path,
    *,
    data: FederatedData | None = None,
    config: Mapping[str, Any] | None = None,
    target: float | None = None,
    title: str | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write a comparison as one HTML file that needs no network; return its path.

    Args:
      histories: the runs.
      path: of the file; its folder is made.
      data: the clients' data, for the picture of who holds what.
      config: what else to tell about how the runs were made.
      target: value of the accuracy whose first round is reported.
      title: of the page.
      labels: one for each run.
    """
    from plotly.offline import get_plotlyjs

    groups = group_histories(histories, labels)
    metric = headline_metric(histories)
    panels = comparison_panels(metric)
    charts = [chart(groups, name, axis, target if name == metric else None) for name, axis in panels]
    page = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title or f"{len(groups)} algorithms on {histories[0].task}"),
        lead=_lead(histories, groups),
        notes="".join(f"<p>{escape(note)}</p>" for note in fairness_notes(histories)),
        legend="".join(_entry(index, group) for index, group in enumerate(groups)),
        figures="".join(_figure(name, axis) for name, axis in panels),
        table=_table(histories, target, labels),
        caption=_caption(groups, target, metric),
        partition="" if data is None else _partition(data),
        config=_configuration(groups, config or {}),
        charts=json.dumps(charts).replace("</", "<\\/"),
        plotly=get_plotlyjs(),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _lead(histories: Sequence[History], groups: Sequence[Group]) -> str:
    seeds = max(len(group.runs) for group in groups)
    sizes = step_sizes(histories)
    rounds = max(int(run.rounds[-1]) for run in histories)
    runs = f"Lines are means over {seeds} seeds, bands reach from the least to the greatest value." if seeds > 1 else ""
    return escape(
        f"Federated optimisation on {histories[0].task}: {len(groups)} algorithms, {rounds} rounds, at step size "
        f"η = {', '.join(sizes)}. {runs} The same run is shown over rounds, over what was sent, and over the gradients "
        "computed, because an algorithm that is fast in one may be slow in another."
    )


def _entry(index: int, group: Group) -> str:
    look = style(index)
    dashes = "" if look.plotly_dash == "solid" else look.plotly_dash.replace("px", "").replace(",", " ")
    fate = f' <em class="fate">{escape(group.fate)}</em>' if group.fate else ""
    return (
        f'<label><input type="checkbox" checked data-group="{index}">'
        f'<svg width="38" height="10" aria-hidden="true"><line x1="0" x2="38" y1="5" y2="5" stroke="{look.colour}" '
        f'stroke-width="2.6" stroke-dasharray="{dashes}"/></svg>{escape(group.label)}{fate}</label>'
    )


def _figure(metric: str, axis: Axis) -> str:
    said = escape(f"{name_of(metric)} over {name_of(axis)}{'s' if axis == 'rounds' else ''}".capitalize())
    return f'<figure><figcaption>{said}</figcaption><div class="chart" role="img" aria-label="{said}"></div></figure>'


def _table(histories: Sequence[History], target: float | None, labels: Sequence[str] | None) -> str:
    rows = comparison_rows(histories, target=target, labels=labels)
    head, body = table_cells(rows, target)
    lines = ["<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in head) + "</tr>"]
    for row, (label, *cells) in zip(rows, body):
        fate = f'<br><em class="fate">{escape(row.fate)}</em>' if row.fate else ""
        numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(label)}{fate}</th>{numbers}</tr>')
    return "<table>" + "\n".join(lines) + "</table>"


def _caption(groups: Sequence[Group], target: float | None, metric: str) -> str:
    parts = [
        "Final values are those of the last evaluation; bytes, gradients and seconds are totals over all clients.",
        "The seconds of an algorithm's first run include its compilation.",
    ]
    if target is not None:
        parts.append(f"Rounds to {target:g}: the first evaluated round whose {name_of(metric)} reaches it.")
    if any(len(group.runs) > 1 for group in groups):
        parts.append("Numbers are mean ± standard deviation over the seeds that did not diverge.")
    if any(group.fate for group in groups):
        parts.append(
            "Diverged runs left the finite numbers; the table counts them in no number, and their curves end in a ×."
        )
    return escape(" ".join(parts))


def _partition(data: FederatedData) -> str:
    picture = io.BytesIO()
    data.plot().savefig(picture, format="png", dpi=160)
    code = base64.b64encode(picture.getvalue()).decode()
    said = escape(f"How the labels of {data.name} lie with its {data.num_clients} clients")
    return f'<section><h2>Who holds what</h2><img alt="{said}" src="data:image/png;base64,{code}"></section>'


def _configuration(groups: Sequence[Group], config: Mapping[str, Any]) -> str:
    """List the common facts, then each algorithm with the settings that are set."""
    facts = {str(name): shown(value) for name, value in config.items()}
    facts |= {
        group.label: ", ".join(f"{k}={shown(v)}" for k, v in group.runs[0].settings.items() if v not in (None, ()))
        for group in groups
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
