"""The parts of a page below its charts, as HTML: final values, who holds what, configuration, citations."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from losac.data.plot import plot_counts
from losac.report import cite
from losac.report.groups import Group, shown
from losac.report.tables import Row, table_cells

if TYPE_CHECKING:
    from losac.runs import Clients, Run

_MOST_PICTURES = 4
_MOST_CLIENTS = 100


def final_values(rows: Sequence[Row], fates: Sequence[str]) -> str:
    """Return the table of what was reached and spent."""
    head, body = table_cells(rows)
    lines = ["<thead><tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in head) + "</tr></thead><tbody>"]
    for fate, (label, *cells) in zip(fates, body):
        told = f'<br><em class="{"fate" if "diverged" in fate else "going"}">{escape(fate)}</em>' if fate else ""
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
    """Return names and values as a list."""
    items = "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(shown(v))}</dd>" for k, v in content.items())
    return f"<h3>{escape(title)}</h3><dl>{items}</dl>" if items else ""


def group_settings(groups: Sequence[Group]) -> str:
    """Return the settings of each algorithm that are set."""
    settings = {
        group.label: ", ".join(f"{k}={shown(v)}" for k, v in group.runs[0].settings.items() if v not in (None, ()))
        for group in groups
    }
    return facts("Algorithms", settings)


def run_configurations(runs: Sequence[Run]) -> str:
    """Return what all runs share, then each run by itself as its folder tells it."""
    flat = [_flat(run.experiment) for run in runs]
    made = [_flat({name: run.about.get(name) or {} for name in ("versions", "hardware")}) for run in runs]
    lead = "Common to all runs" if len(runs) > 1 else "Configuration"
    return (
        facts(lead, _common(flat))
        + facts("Versions and hardware", _common(made))
        + f"<h3>{'Each run' if len(runs) > 1 else 'The run'}</h3>"
        + "".join(_one_run(run, tables, _common(made)) for run, tables in zip(runs, made))
    )


def citations() -> str:
    """Return the BibTeX entries with buttons that copy them."""
    entries = (("The paper", "cite-paper", cite.PAPER), ("The software", "cite-software", cite.software()))
    return "".join(
        f'<div class="head"><h3>{title}</h3><button type="button" data-copy="{name}" aria-live="polite">Copy BibTeX'
        f'</button></div><pre id="{name}" tabindex="0">{escape(text)}</pre>'
        for title, name, text in entries
    )


def _one_run(run: Run, made: Mapping[str, Any], common: Mapping[str, Any]) -> str:
    from losac.runs.sections import to_toml

    own = {k: v for k, v in made.items() if k not in common}
    told = {"folder": str(run.folder), "started": run.about.get("started"), "command": run.about.get("command")}
    told |= {"resumed": ", ".join(run.about["resumed"])} if run.about.get("resumed") else {}
    lines = facts("", {k: v for k, v in (told | own).items() if v}).replace("<h3></h3>", "")
    return (
        f'<details class="run"><summary>{escape(run.name)} <span class="badge {run.status}">{run.status}</span></summary>'
        f'{lines}<pre tabindex="0">{escape(to_toml(run.experiment))}</pre></details>'
    )


def _partition(clients: Clients, names: Sequence[str]) -> str:
    picture = io.BytesIO()
    figure = plot_counts(clients.sizes, clients.label_counts, clients.label_names, name=clients.name)
    figure.savefig(picture, format="png", dpi=160)
    code = base64.b64encode(picture.getvalue()).decode()
    total = len(clients.sizes)
    said = escape(f"How the rows of {clients.name} lie with its {total} clients")
    whose = f'<p class="caption">{escape(", ".join(names))}</p>' if names else ""
    return (
        f'<div class="picture"><img alt="{said}; the numbers are below" src="data:image/png;base64,{code}"></div>{whose}'
        f'<p class="caption">{escape(_in_words(clients))}</p><details><summary>Numbers</summary>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{said}">{_counts(clients)}</div></details>'
    )


def _in_words(clients: Clients) -> str:
    sizes = clients.sizes
    words = f"Rows of a client: {sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}."
    if clients.label_counts is None:
        return words
    held = (clients.label_counts > 0).sum(axis=1)
    return f"{words} Labels of a client: {held.min()} to {held.max()}, {held.mean():.1f} on average."


def _counts(clients: Clients) -> str:
    counts = clients.sizes[:, None] if clients.label_counts is None else clients.label_counts
    names = ("rows",) if clients.label_counts is None else clients.label_names or tuple(map(str, range(counts.shape[1])))
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("client", *names))
    body = "".join(
        f"<tr><th>{i}</th>{''.join(f'<td>{n}</td>' for n in row)}</tr>" for i, row in enumerate(counts[:_MOST_CLIENTS])
    )
    rest = len(counts) - _MOST_CLIENTS
    more = f'<p class="caption">{rest:,} more clients are not listed.</p>' if rest > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{section}.{name}": value
        for section, part in sections.items()
        for name, value in (part.items() if isinstance(part, Mapping) else [("", part)])
    }


def _common(configurations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = configurations
    return {k: v for k, v in first.items() if all(k in other and other[k] == v for other in others)}
