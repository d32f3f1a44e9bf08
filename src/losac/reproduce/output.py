"""What a study leaves behind: results.json, a CSV file per table, figures as PNG and SVG, and a page with all of it."""

from __future__ import annotations

import base64
import csv
import json
import platform
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any, get_args

from losac.reproduce.study import Claim, Findings, Measured, Options, Study, Table, Verdict

FORMAT = "losac results 1"
WIDEST = 24
"""Letters of a cell from which it may be broken into lines."""
LONGEST = 20
"""Rows of a table that a Markdown page shows; longer ones are linked."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "losac",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.frameon": False,
}


def write_results(study: Study, measured: Sequence[Measured], options: Options, folder: Path) -> tuple[Findings, Path]:
    """Write everything that a study found; return the findings and the path of its page."""
    folder.mkdir(parents=True, exist_ok=True)
    findings = study.conclude(measured, options)
    content = {
        "format": FORMAT,
        "study": study.name,
        "title": study.title,
        "command": command(study.name, options),
        "quick": options.quick,
        "seeds": list(options.seeds),
        "versions": {"losac": version("losac"), "jax": version("jax"), "python": platform.python_version()},
        "summary": findings.summary,
        "claims": [claim._asdict() for claim in findings.claims],
    }
    (folder / "results.json").write_text(_one_per_line(content, measured), encoding="utf-8")
    write_tables(findings, folder)
    write_figures(findings, folder)
    page = folder / "report.html"
    page.write_text(render_page(study, findings, options, folder), encoding="utf-8")
    return findings, page


def _one_per_line(content: Mapping[str, Any], measured: Sequence[Measured]) -> str:
    """Return JSON with every measurement on a line of its own, so that files stay small and differences readable."""
    head = json.dumps(content, ensure_ascii=False, indent=1).rstrip("}\n")
    lines = (json.dumps(one._asdict() | {"arguments": dict(one.arguments)}, ensure_ascii=False) for one in measured)
    return head + ',\n "measured": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def read_results(folder: Path) -> tuple[list[Measured], Options]:
    """Read back what was measured, to conclude from it anew."""
    path = folder / "results.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} does not hold results of this version ({FORMAT!r})")
    return [Measured(**one) for one in content["measured"]], Options(tuple(content["seeds"]), content["quick"])


def command(name: str, options: Options) -> str:
    """Return the command that makes these results."""
    seeds = ",".join(map(str, options.seeds))
    return f"losac reproduce {name} --seeds {seeds}{' --quick' if options.quick else ''}"


def write_figures(findings: Findings, folder: Path, *, svg: bool = True) -> None:
    """Write every figure as PNG, and as SVG unless told otherwise."""
    import matplotlib as mpl

    for figure in findings.figures:
        with mpl.rc_context(STYLE):
            drawing = figure.draw()
            drawing.savefig(folder / f"{figure.name}.png", dpi=130)
            if svg:
                drawing.savefig(folder / f"{figure.name}.svg", metadata={"Date": None})


def write_tables(findings: Findings, folder: Path) -> None:
    """Write every table as CSV."""
    for table in findings.tables:
        with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table.columns)
            writer.writerows([["" if cell is None else cell for cell in row] for row in table.rows])


def shown(cell: Any) -> str:
    """Return a cell as a reader wants it.

    >>> shown(0.123456), shown(None), shown(12), shown("57 ± 3")
    ('0.123', '–', '12', '57 ± 3')
    """
    if cell is None:
        return "–"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def markdown(study: Study, findings: Findings, options: Options, pictures: str) -> str:
    """Return the findings as a section of a Markdown page, whose pictures lie in a folder."""
    lines = [f"## {study.title}", "", f"`{command(study.name, options)}`", "", findings.summary, ""]
    if findings.claims:
        lines += ["| the paper says | verdict | measured |", "|---|---|---|"]
        rows = ((f"{c.text} ({c.where})", f"**{c.verdict}**", c.evidence) for c in findings.claims)
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows] + [""]
    for figure in findings.figures:
        lines += [f"![{figure.caption}]({pictures}/{figure.name}.png)", "", f"*{figure.caption}*", ""]
    for table in findings.tables:
        lines += _markdown_table(table, pictures)
    return "\n".join(lines)


def _markdown_table(table: Table, folder: str) -> list[str]:
    """Return a table, or only the way to its file where it is long."""
    if len(table.rows) > LONGEST:
        return [f"{table.title}: [{len(table.rows)} rows]({folder}/{table.name}.csv)", ""]
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(shown(cell).replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    return [*lines, "", *([table.note, ""] if table.note else [])]


def render_page(study: Study, findings: Findings, options: Options, folder: Path) -> str:
    """Return the findings as one HTML page that holds its figures."""
    return fill_page(study.title, command(study.name, options), options, render_findings(findings, folder))


def render_together(
    title: str, made_by: str, found: Mapping[str, tuple[Study, Findings]], options: Options, folder: Path
) -> str:
    """Return several studies as one HTML page; their figures lie in folders of their names."""
    parts = (
        f"<h1>{escape(study.title)}</h1>{render_findings(findings, folder / name)}"
        for name, (study, findings) in found.items()
    )
    return fill_page(title, made_by, options, "\n".join(parts))


def render_findings(findings: Findings, folder: Path) -> str:
    """Return findings as HTML: what was found, the claims, the figures, the tables."""
    body = [f"<p>{escape(part)}</p>" for part in findings.summary.split("\n\n")]
    body += [claims_table(findings.claims)] if findings.claims else []
    for figure in findings.figures:
        code = base64.b64encode((folder / f"{figure.name}.png").read_bytes()).decode()
        said = escape(figure.caption)
        picture = f'<img alt="{said}" src="data:image/png;base64,{code}">'
        body.append(f"<figure>{picture}<figcaption>{said}</figcaption></figure>")
    for table in findings.tables:
        note = f"<p class=note>{emphasised(table.note)}</p>" if table.note else ""
        body.append(f"<h2>{escape(table.title)}</h2>{html_table(table.columns, table.rows)}{note}")
    return "\n".join(body)


def render_index(found: Mapping[str, tuple[Study, Findings]], options: Options) -> str:
    """Return the page of all studies: every claim with its verdict, and the way to each part."""
    counts: dict[str, int] = {}
    for _, findings in found.values():
        for claim in findings.claims:
            counts[claim.verdict] = counts.get(claim.verdict, 0) + 1
    total = sum(counts.values())
    said = ", ".join(f"{counts[verdict]} × {verdict}" for verdict in get_args(Verdict) if verdict in counts)
    body = [f"<p>Verdicts on {total} claims of the paper: {escape(said)}.</p>"] if total else []
    for name, (study, findings) in found.items():
        body.append(f'<h2><a href="{name}/report.html">{escape(study.title)}</a></h2>')
        body.append(f"<p>{escape(findings.summary)}</p>")
        body += [claims_table(findings.claims)] if findings.claims else []
    return fill_page("The paper, reproduced", command("all", options), options, "\n".join(body))


def claims_table(claims: Sequence[Claim]) -> str:
    """Return the claims as an HTML table whose verdicts have a colour each."""
    rows = "".join(
        f"<tr><td>{escape(c.text)} <span class=where>{escape(c.where)}</span></td>"
        f'<td class="verdict {c.verdict.split()[0]}{" in-part" if c.verdict not in ("holds", "fails") else ""}">'
        f"{escape(c.verdict)}</td><td>{escape(c.evidence)}</td></tr>"
        for c in claims
    )
    head = "<tr><th>the paper says</th><th>verdict</th><th>measured</th></tr>"
    return f'<div class=scroll><table class="claims">{head}{rows}</table></div>'


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(shown(cell)) for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _cell(text: str) -> str:
    """Return a cell; only a long one may be broken into lines."""
    return f"<td class=long>{escape(text)}</td>" if len(text) > WIDEST else f"<td>{escape(text)}</td>"


def emphasised(text: str) -> str:
    """Return a note as HTML, with what stands between asterisks emphasised.

    >>> emphasised("*After prox*: x* < 1"), emphasised("‖x − x*‖ and x*")
    ('<em>After prox</em>: x* &lt; 1', '‖x − x*‖ and x*')
    """
    return re.sub(r"(?<!\S)\*([^*\s][^*]*)\*", r"<em>\1</em>", escape(text))


def fill_page(title: str, made_by: str, options: Options, body: str) -> str:
    """Return a page with the common frame around its body."""
    template = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
    marked = "<p class=quick>Short form: fewer rounds and seeds than the paper. No verdict here is final.</p>"
    return template.substitute(
        title=escape(title), command=escape(made_by), quick=marked if options.quick else "", body=body
    )
