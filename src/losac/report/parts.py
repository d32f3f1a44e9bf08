"""The parts of a page below its charts, as HTML: final values, who holds what, configuration, citations."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.data.plot import DARK, plot_counts
from losac.report import cite
from losac.report.groups import RunGroup
from losac.report.style import shown
from losac.report.tables import TableRow, table_cells

if TYPE_CHECKING:
    from losac.runs import Clients, Run

_MOST_PICTURES = 4
_MOST_CLIENTS = 100


def final_values(rows: Sequence[TableRow]) -> str:
    """Return the table of results and costs."""
    head, body = table_cells(rows)
    lines = ["<thead><tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in head) + "</tr></thead><tbody>"]
    for row, (label, *cells) in zip(rows, body):
        told = f'<br><em class="{"fate" if row.diverged else "going"}">{escape(row.fate)}</em>' if row.fate else ""
        numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(label)}{told}</th>{numbers}</tr>')
    return "<table>" + "\n".join(lines) + "</tbody></table>"


def partitions(found: Sequence[tuple[Clients, Sequence[str]]]) -> str:
    """Return pictures of who holds what, each with the names of the runs it belongs to, and the same in numbers."""
    if not found:
        return ""
    parts = [_partition(clients, names if len(found) > 1 else ()) for clients, names in found[:_MOST_PICTURES]]
    more = len(found) - _MOST_PICTURES
    rest = f'<p class="caption">{more} more ways of parting the data are not shown.</p>' if more > 0 else ""
    return f'<section id="clients"><h2>Who holds what</h2>{"".join(parts)}{rest}</section>'


def facts(title: str, content: Mapping[str, Any]) -> str:
    """Return names and values as a list under a title; nothing if there are none."""
    return f"<div><h3>{escape(title)}</h3>{_list(content)}</div>" if content else ""


def group_settings(groups: Sequence[RunGroup]) -> str:
    """Return the settings of each algorithm that are set."""
    settings = {
        group.label: ", ".join(f"{k}={shown(v)}" for k, v in group.runs[0].settings.items() if v not in (None, ()))
        for group in groups
    }
    return facts("Algorithms", settings)


def run_configurations(runs: Sequence[Run]) -> str:
    """Return what all runs share, then each single run as its folder describes it."""
    told = [{**run.experiment, **{k: run.about.get(k) or {} for k in ("versions", "hardware")}} for run in runs]
    names = list(dict.fromkeys(name for sections in told for name in sections))
    common = {name: _common([sections.get(name) or {} for sections in told]) for name in names}
    lead = '<p class="caption">What all runs share; what differs stands with each run.</p>' if len(runs) > 1 else ""
    cards = "".join(facts(name.capitalize(), content) for name, content in common.items())
    each = "".join(_one_run(run, sections, common) for run, sections in zip(runs, told))
    title = "Each run" if len(runs) > 1 else "The run"
    return f'{lead}<div class="cards">{cards}</div><h3>{title}</h3><div class="runs">{each}</div>'


def citations() -> str:
    """Return the BibTeX entries with buttons that copy them."""
    entries = (("The paper", "cite-paper", cite.PAPER), ("The software", "cite-software", cite.software()))
    return "".join(
        f'<div class="head"><h3>{title}</h3><button type="button" data-copy="{name}" aria-live="polite">Copy BibTeX'
        f'</button></div><pre id="{name}" tabindex="0">{escape(text)}</pre>'
        for title, name, text in entries
    )


def _one_run(run: Run, told: Mapping[str, Any], common: Mapping[str, Mapping[str, Any]]) -> str:
    from losac.runs.sections import to_toml

    own = {k: v for name, part in told.items() for k, v in part.items() if k not in common[name]}
    about = {name: run.about.get(name) for name in ("started", "command")}
    about |= {"resumed": ", ".join(run.about.get("resumed") or []), "folder": str(run.folder)}
    return (
        f'<details class="run"><summary>{escape(run.name)} <span class="badge {run.status}">{run.status}</span>'
        f"</summary>"
        f"{_list(own | {k: v for k, v in about.items() if v})}"
        f'<pre tabindex="0">{escape(to_toml(run.experiment))}</pre></details>'
    )


def _list(content: Mapping[str, Any]) -> str:
    told = {str(name): shown(value) for name, value in content.items() if value is not None}
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in told.items())
    return f"<dl>{items}</dl>"


def _partition(clients: Clients, names: Sequence[str]) -> str:
    total = len(clients.sizes)
    said = escape(f"How the rows of {clients.name} lie with its {total} clients")
    whose = f'<p class="caption">{escape(", ".join(names))}</p>' if names else ""
    light, dark = _drawn(clients, {}), _drawn(clients, DARK)
    return (
        f'<picture class="picture"><source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{said}; the numbers are below" src="{light}"></picture>'
        f'{whose}<p class="caption">{escape(_in_words(clients))}</p><details><summary>Numbers</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{said}">{_counts(clients)}</div></details>'
    )


def _drawn(clients: Clients, look: dict[Any, str]) -> str:
    """Return the picture of who holds what as an address of its bytes."""
    from matplotlib import rc_context

    picture = io.BytesIO()
    with rc_context(look):
        figure = plot_counts(clients.sizes, clients.label_counts, clients.label_names, name=clients.name)
        figure.savefig(picture, format="png", dpi=160)
    return f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"


def _in_words(clients: Clients) -> str:
    sizes = clients.sizes
    words = f"Rows of a client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}."
    if clients.label_counts is None:
        return words
    held = (clients.label_counts > 0).sum(axis=1)
    return f"{words} Labels of a client: {held.min()} to {held.max()}, {held.mean():.1f} on average."


def _counts(clients: Clients) -> str:
    counts = clients.sizes[:, None] if clients.label_counts is None else clients.label_counts
    names = (
        ("rows",) if clients.label_counts is None else clients.label_names or tuple(map(str, range(counts.shape[1])))
    )
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("client", *names))
    body = "".join(
        f"<tr><th>{i}</th>{''.join(f'<td>{n}</td>' for n in row)}</tr>" for i, row in enumerate(counts[:_MOST_CLIENTS])
    )
    rest = len(counts) - _MOST_CLIENTS
    more = f'<p class="caption">{rest:,} more clients are not listed.</p>' if rest > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _common(configurations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = configurations
    return {k: v for k, v in first.items() if all(k in other and other[k] == v for other in others)}
