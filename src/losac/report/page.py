"""One self-contained HTML page about a comparison: it needs no network and no other file."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from losac.data import FederatedData
from losac.history import History
from losac.report import style
from losac.report.groups import Group, group, main_metric
from losac.report.interactive import interactive_figure
from losac.report.notes import comparison_notes
from losac.report.plots import comparison_views, plot_comparison
from losac.report.tables import comparison_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_page(
    histories: Sequence[History],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    metric: str | None = None,
    target: float | None = None,
    data: FederatedData | None = None,
    config: Mapping[str, Any] | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write a page with interactive figures, the table, the partition and the configuration.

    Args:
      histories: the runs.
      path: the file to write.
      title: by default the task's name.
      metric, target: see :func:`losac.report.comparison_rows`.
      data: draws who holds which labels.
      config: names and values to list.
      labels: see :func:`losac.report.group`.
    """
    groups = group(histories, labels)
    metric = metric or main_metric(groups)
    title = title or f"Federated optimisation on {histories[0].task}"
    static = plot_comparison(histories, metric=metric, target=target, labels=labels)
    parts = {
        "title": escape(title),
        "lead": _lead(groups, histories, metric),
        "notes": "".join(f"<p>{escape(note)}</p>" for note in comparison_notes(histories, labels)),
        "legend": "".join(_legend_entry(member, index) for index, member in enumerate(groups)),
        "figures": _figures(groups, metric, target),
        "picture": _picture(static, "the comparison as a picture"),
        "table": _table(*comparison_cells(histories, metric=metric, target=target, labels=labels)),
        "partition": _partition(data),
        "config": _config(config or {}),
    }
    template = Template((files("losac.report") / "page.html").read_text(encoding="utf-8"))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.substitute(parts), encoding="utf-8")
    return path


def _lead(groups: Sequence[Group], histories: Sequence[History], metric: str) -> str:
    seeds = len({history.seed for history in histories})
    judged = "the training loss" if metric == "loss" else f"the training loss and {style.metric_words(metric)}"
    over = f", each over {seeds} seeds: {style.seeds_words(groups)}" if seeds > 1 else ""
    return escape(
        f"{len(groups)} algorithms solve the same task, {histories[0].task}, for {max(h.rounds[-1] for h in histories)} "
        f"rounds{over}. Shown are {judged} against rounds, bytes sent and gradients computed."
        if len(groups) > 1
        else f"{groups[0].label} on {histories[0].task}, {max(h.rounds[-1] for h in histories)} rounds{over}."
    )


def _figures(groups: Sequence[Group], metric: str, target: float | None) -> str:
    """Return the plots; the first brings plotly's program with it, once for all."""
    cells = []
    for index, (name, axis) in enumerate(comparison_views(metric)):
        figure = interactive_figure(groups, name, axis, target if name == metric else None)
        html = figure.to_html(
            full_html=False, include_plotlyjs=index == 0, include_mathjax=False,
            config={"responsive": True, "displaylogo": False, "displayModeBar": False},
        )  # fmt: skip
        caption = f"{style.metric_words(name)} against {style.AXIS_WORDS[axis]}"
        cells.append(f"<figure>{html}<figcaption>{escape(caption)}</figcaption></figure>")
    return "\n".join(cells)


def _legend_entry(member: Group, index: int) -> str:
    look = style.line(index)
    dashes = {"solid": "", "dash": "9 4", "dot": "2 4", "dashdot": "9 4 2 4", "longdash": "14 4"}
    dash = dashes.get(look.plotly_dash, "14 4 2 4")
    end = f": {member.end}" if member.end else ""
    return (
        f'<li><svg width="44" height="10" aria-hidden="true"><line x1="1" y1="5" x2="43" y2="5" stroke="{look.colour}" '
        f'stroke-width="3" stroke-dasharray="{dash}"/></svg>{escape(member.label + end)}</li>'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(c)}</td>" for c in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _partition(data: FederatedData | None) -> str:
    if data is None:
        return ""
    how = data.info.get("partition")
    words = f"Each client holds its own rows, dealt by the partition {how}." if how else "Each client holds its own rows."
    return f"<section><h2>Who holds what</h2><p>{escape(words)}</p>{_picture(data.plot(), 'rows by client and label')}</section>"


def _config(config: Mapping[str, Any]) -> str:
    if not config:
        return ""
    rows = "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>" for k, v in config.items())
    return f"<section><h2>Configuration</h2><dl>{rows}</dl></section>"


def _picture(figure: Figure, words: str) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    encoded = base64.b64encode(stream.getvalue()).decode()
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{encoded}">'
