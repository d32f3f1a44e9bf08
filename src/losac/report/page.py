"""One self-contained HTML page: charts, tables, configuration and who holds which data; it fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from losac import __version__
from losac.history import History
from losac.report import parts
from losac.report.entries import Entry, entry_labels, fate_of, from_histories, from_runs, status_notes
from losac.report.groups import Axis, Group, group_histories, headline_metric
from losac.report.notes import fairness_notes, step_sizes
from losac.report.payload import payload
from losac.report.plots import comparison_panels
from losac.report.style import css_colours, name_of
from losac.report.tables import comparison_rows

if TYPE_CHECKING:
    from losac.data import FederatedData
    from losac.runs import Clients, Run

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("format.js", "curves.js", "chart.js", "panels.js")
_NAV = {
    "curves": "Curves",
    "target": "Rounds to a target",
    "numbers": "Final values",
    "clients": "Who holds what",
    "configuration": "How the runs were made",
    "cite": "How to cite",
}


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
      target: value of the accuracy whose first round is reported; by default one that all reached.
      title: of the page.
      labels: one for each run.
    """
    entries = from_histories(histories)
    told = parts.facts("Problem", config or {}) + parts.group_settings(group_histories(histories, labels))
    held = [] if data is None else [(_clients_of(data), ())]
    return _write(path, _page(entries, labels, target, title, clients=held, config=told))


def write_report(
    runs: Sequence[Run], path: str | Path, *, target: float | None = None, title: str | None = None
) -> Path:
    """Write the page of run folders, finished or not; return its path.

    Args:
      runs: from :func:`losac.runs.find_runs`.
      path: of the file; its folder is made.
      target: value of the accuracy whose first round is reported; by default the runs' own, else one that all reached.
      title: of the page.
    """
    return _write(path, report_page(runs, target=target, title=title))


def report_page(runs: Sequence[Run], *, target: float | None = None, title: str | None = None) -> str:
    """Return the page of run folders as text; see :func:`write_report`."""
    runs = sorted(runs, key=lambda run: str(run.about.get("started", "")))
    entries = from_runs(runs)
    if not entries:
        raise ValueError(f"none of the {len(runs)} runs has measured anything yet; wait for a first evaluation")
    targets = {run.target for run in runs}
    target = next(iter(targets)) if target is None and len(targets) == 1 else target
    named = {entry.name for entry in entries}
    notes = status_notes(entries, [run.name for run in runs if run.name not in named])
    config = parts.run_configurations(runs)
    return _page(entries, entry_labels(entries), target, title, clients=_held(runs), config=config, notes=notes)


def asset(name: str, folder: Path = ASSETS) -> str:
    """Return a script or style sheet as text."""
    return (folder / name).read_text(encoding="utf-8")


def script_data(value: Any) -> str:
    """Return JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _write(path: str | Path, page: str) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _page(
    entries: Sequence[Entry],
    labels: Sequence[str] | None,
    target: float | None,
    title: str | None,
    *,
    clients: Sequence[tuple[Clients, Sequence[str]]],
    config: str,
    notes: Sequence[str] = (),
) -> str:
    histories = [entry.history for entry in entries]
    groups = group_histories(histories, labels)
    by_history = {id(entry.history): entry for entry in entries}
    fates = [fate_of([by_history[id(run)] for run in group.runs]) for group in groups]
    panels = comparison_panels(headline_metric(histories))
    shown = {name: words for name, words in _NAV.items() if name != "clients" or clients}
    return Template(asset("page.html", ASSETS.parent)).substitute(
        title=escape(title or _title(histories, groups)),
        lead=escape(_lead(histories, groups)),
        notes="".join(f"<p>{escape(note)}</p>" for note in (*notes, *fairness_notes(histories))),
        nav="".join(f'<a href="#{name}">{words}</a>' for name, words in shown.items()),
        bands="Bands and lines are drawn in the browser and need JavaScript.",
        figures="".join(_figure(name, axis) for name, axis in panels),
        table=parts.final_values(comparison_rows(histories, labels=labels), fates),
        caption=escape(_caption(groups, fates)),
        partition=parts.partitions(clients),
        config=config,
        cite=parts.citations(),
        version=__version__,
        css="\n".join([css_colours(), asset("base.css"), asset("report.css")]),
        data=script_data(payload(entries, labels, target)),
        script="\n".join(asset(name) for name in (*SCRIPTS, "report.js")),
    )


def _title(histories: Sequence[History], groups: Sequence[Group]) -> str:
    tasks = list(dict.fromkeys(run.task for run in histories))
    where = tasks[0] if len(tasks) == 1 else f"{len(tasks)} problems"
    return f"{groups[0].label} on {where}" if len(groups) == 1 else f"{len(groups)} algorithms on {where}"


def _lead(histories: Sequence[History], groups: Sequence[Group]) -> str:
    sizes = step_sizes(histories)
    rounds = max(int(run.rounds[-1]) for run in histories)
    seeds = max(len(group.runs) for group in groups)
    what = f"{len(groups)} algorithms" if len(groups) > 1 else "one algorithm"
    tasks = ", ".join(dict.fromkeys(run.task for run in histories))
    return (
        f"Federated optimisation on {tasks}: {what}, {rounds} rounds, "
        f"{f'{seeds} seeds' if seeds > 1 else 'one seed'}, at step size η = {', '.join(sizes)}. The same runs are "
        "shown over rounds, over what was sent, over the gradients computed and over wall time, because an algorithm "
        "that is fast in one may be slow in another."
    )


def _figure(metric: str, axis: Axis) -> str:
    said = escape(f"{name_of(metric)} over {name_of(axis)}{'s' if axis == 'rounds' else ''}".capitalize())
    return (
        f'<figure data-metric="{escape(metric)}" data-axis="{axis}"><figcaption>{said}</figcaption>'
        f'<div class="chart" role="img" aria-label="{said}"></div></figure>'
    )


def _caption(groups: Sequence[Group], fates: Sequence[str]) -> str:
    told = [
        "Final values are those of the last evaluation; bytes, gradients and seconds are totals over all clients.",
        "The seconds of an algorithm's first run include its compilation.",
    ]
    if any(len(group.runs) > 1 for group in groups):
        told.append("Numbers are mean ± standard deviation over the seeds that did not diverge.")
    if any(group.fate for group in groups):
        told.append(
            "Diverged runs left the finite numbers; the tables count them in no number, and their curves end in a ×."
        )
    if any("running" in fate or "killed" in fate or "failed" in fate for fate in fates):
        told.append("Of a run that has not ended, the last value so far counts.")
    return " ".join(told)


def _held(runs: Sequence[Run]) -> list[tuple[Clients, list[str]]]:
    """Return the different ways in which clients hold data, each with the runs it belongs to."""
    found: dict[Any, tuple[Clients, list[str]]] = {}
    for run in runs:
        clients = run.clients()
        if clients is not None:
            counts = b"" if clients.label_counts is None else clients.label_counts.tobytes()
            key = (clients.name, clients.sizes.tobytes(), counts)
            found.setdefault(key, (clients, []))[1].append(run.name)
    return list(found.values())


def _clients_of(data: FederatedData) -> Clients:
    from losac.runs import Clients

    counts = None if data.num_classes is None else data.label_counts()
    return Clients(data.name, data.sizes, counts, data.label_names)
