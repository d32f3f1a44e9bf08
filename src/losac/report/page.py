"""One self-contained HTML page: charts, tables, configuration and who holds which data; it fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from losac import __version__
from losac._checks import check_list, check_path, described
from losac._files import write_whole
from losac.history import History
from losac.report import parts
from losac.report.entries import from_histories, from_runs, status_notes
from losac.report.groups import AxisName, RunGroup, group_entries, headline_metric
from losac.report.notes import notes_on, step_sizes
from losac.report.payload import payload
from losac.report.plots import comparison_panels
from losac.report.style import css_colours, name_of
from losac.report.tables import rows_of, seeds_told

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
      config: more facts on how the runs were made.
      target: value of the accuracy to report the first round of; by default one that all reached.
      title: of the page.
      labels: one for each run.
    """
    groups = group_entries(from_histories(histories), labels)
    told = parts.facts("Problem", config or {}) + parts.group_settings(groups)
    held = [] if data is None else [(_clients_of(data), ())]
    return _write(path, _page(groups, target, title, clients=held, config=told))


def write_report(
    runs: Sequence[Run], path: str | Path, *, target: float | None = None, title: str | None = None
) -> Path:
    """Write the page of run folders, finished or not; return its path.

    Args:
      runs: from :func:`losac.runs.find_runs`.
      path: of the file; its folder is made.
      target: value of the accuracy to report the first round of; by default the runs' own, else one that all reached.
      title: of the page.
    """
    path = check_path("path", path)
    return _write(path, report_page(runs, target=target, title=title))


def report_page(runs: Sequence[Run], *, target: float | None = None, title: str | None = None) -> str:
    """Return the page of run folders as text; see :func:`write_report`."""
    for run in check_list("runs", runs, "a list of runs, such as losac.runs.find_runs(folder)"):
        if not hasattr(run, "about"):
            raise TypeError(f"runs must be those of losac.runs.find_runs, not {described(run)}")
    runs = sorted(runs, key=lambda run: str(run.about.get("started", "")))
    entries = from_runs(runs)
    if not entries:
        raise ValueError(f"none of the {len(runs)} runs has measured anything yet; wait for a first evaluation")
    targets = {run.target for run in runs}
    target = next(iter(targets)) if target is None and len(targets) == 1 else target
    groups, named = group_entries(entries), {entry.name for entry in entries}
    repeats = [entry for group in groups for entry in group.repeats]
    notes = status_notes(entries, [run.name for run in runs if run.name not in named], repeats)
    config = parts.run_configurations(runs)
    return _page(groups, target, title, clients=_held(runs), config=config, notes=notes)


def asset(name: str, folder: Path = ASSETS) -> str:
    """Return a script or style sheet as text."""
    return (folder / name).read_text(encoding="utf-8")


def script_data(value: Any) -> str:
    """Return JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _write(path: str | Path, page: str) -> Path:
    path = check_path("path", path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page)
    return path


def _page(
    groups: Sequence[RunGroup],
    target: float | None,
    title: str | None,
    *,
    clients: Sequence[tuple[Clients, Sequence[str]]],
    config: str,
    notes: Sequence[str] = (),
) -> str:
    histories = [run for group in groups for run in group.runs]
    panels = comparison_panels(headline_metric(histories))
    shown = {name: words for name, words in _NAV.items() if name != "clients" or clients}
    return Template(asset("page.html", ASSETS.parent)).substitute(
        title=escape(title or _title(histories, groups)),
        lead=escape(_lead(histories, groups)),
        notes="".join(f"<p>{escape(note)}</p>" for note in (*notes, *notes_on(groups))),
        nav="".join(f'<a href="#{name}">{words}</a>' for name, words in shown.items()),
        bands="Bands and lines are drawn in the browser and need JavaScript.",
        figures="".join(_figure(name, axis) for name, axis in panels),
        table=parts.final_values(rows_of(groups)),
        caption=escape(_caption(groups)),
        partition=parts.partitions(clients),
        config=config,
        cite=parts.citations(),
        version=__version__,
        css="\n".join([css_colours(), asset("base.css"), asset("report.css")]),
        data=script_data(payload(groups, target)),
        script="\n".join(asset(name) for name in (*SCRIPTS, "report.js")),
    )


def _title(histories: Sequence[History], groups: Sequence[RunGroup]) -> str:
    tasks = list(dict.fromkeys(run.task for run in histories))
    where = tasks[0] if len(tasks) == 1 else f"{len(tasks)} problems"
    return f"{groups[0].label} on {where}" if len(groups) == 1 else f"{_how_many(groups)} on {where}"


def _how_many(groups: Sequence[RunGroup]) -> str:
    """Return the number of algorithms, and of their settings and conditions if these are more."""
    algorithms = len({group.runs[0].algorithm for group in groups})
    told = f"{algorithms} algorithms" if algorithms > 1 else "one algorithm"
    return told if algorithms == len(groups) else f"{told} in {len(groups)} ways"


def _lead(histories: Sequence[History], groups: Sequence[RunGroup]) -> str:
    sizes = step_sizes(histories)
    ends = [int(run.rounds[-1]) for run in histories if run.diverged is None] or [0]
    rounds = f"{ends[0]} rounds" if len(set(ends)) == 1 else f"{min(ends)} to {max(ends)} rounds"
    seeds = seeds_told([group.runs for group in groups]) or "one seed"
    tasks = ", ".join(dict.fromkeys(run.task for run in histories))
    return (
        f"Federated optimisation on {tasks}: {_how_many(groups)}, {rounds}, "
        f"{seeds}, at step size η = {', '.join(sizes)}. The same runs are "
        "shown over rounds, over what was sent, over the gradients computed and over wall time, because an algorithm "
        "that is fast in one may be slow in another."
    )


def _figure(metric: str, axis: AxisName) -> str:
    said = escape(f"{name_of(metric)} over {name_of(axis)}{'s' if axis == 'rounds' else ''}".capitalize())
    return (
        f'<figure data-metric="{escape(metric)}" data-axis="{axis}"><figcaption>{said}</figcaption>'
        f'<div class="chart" role="img" aria-label="{said}"></div></figure>'
    )


def _caption(groups: Sequence[RunGroup]) -> str:
    told = [
        "Final values are those of the last evaluation; bytes, gradients and seconds are totals over all clients.",
        "The seconds of an algorithm's first run include its compilation.",
    ]
    if any(len(group.runs) > 1 for group in groups):
        told.append(
            "Numbers are mean ± standard deviation over the seeds that were run to their end; if these are not all, "
            "their count follows."
        )
    if any(run.diverged is not None for group in groups for run in group.runs):
        told.append(
            "Diverged runs left the finite numbers; the tables count them in no number, and their curves end in a ×."
        )
    if any(group.going and not group.finished for group in groups):
        told.append(
            "Where no run has reached its end, the values are those of the last round that all have evaluated; "
            "the round follows."
        )
    return " ".join(told)


def _held(runs: Sequence[Run]) -> list[tuple[Clients, list[str]]]:
    """Return the different distributions of data to clients, each with the runs it belongs to."""
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
