"""What a reader gets of a study: tables as CSV, figures as PNG and SVG, and a page; and the page of all studies."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, get_args

from losac._files import write_picture, write_whole
from losac.report.document import document, paragraph, picture, table
from losac_reproduction.claims import JudgedClaim, Verdict, pool
from losac_reproduction.study import Findings, Options, Study
from losac_reproduction.words import shown

HEAD = ("the paper says", "verdict", "threshold", "measured")
QUICK = "Short form: fewer rounds and seeds than the paper. No verdict here is final."
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


def command(name: str, options: Options) -> str:
    """Return the command that makes these results."""
    seeds = ",".join(map(str, options.seeds))
    return f"losac reproduce {name} --seeds {seeds}{' --quick' if options.quick else ''}"


def write_figures(findings: Findings, folder: Path, *, svg: bool = True) -> None:
    """Write every figure as PNG, and as SVG by default."""
    import matplotlib as mpl

    for figure in findings.figures:
        with mpl.rc_context(STYLE):
            drawing = figure.draw()
            write_picture(drawing, folder / f"{figure.name}.png", dpi=130)
            if svg:
                write_picture(drawing, folder / f"{figure.name}.svg", metadata={"Date": None})


def write_tables(findings: Findings, folder: Path) -> None:
    """Write every table as CSV."""
    for each in findings.tables:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(each.columns)
        writer.writerows([["" if cell is None else cell for cell in row] for row in each.rows])
        write_whole(folder / f"{each.name}.csv", text.getvalue())


def study_page(study: Study, findings: Findings, options: Options, folder: Path) -> str:
    """Return the findings as one HTML page that holds its figures."""
    return page(study.title, command(study.name, options), _findings(findings, folder), quick=options.quick)


def joint_page(
    title: str, made_by: str, found: Mapping[str, tuple[Study, Findings]], options: Options, folder: Path
) -> str:
    """Return several studies as one HTML page; their figures lie in folders of their names."""
    return page(title, made_by, sections(found, folder), quick=options.quick)


def sections(found: Mapping[str, tuple[Study, Findings]], folder: Path) -> list[str]:
    """Return the findings of several studies as HTML; their figures lie in folders of their names."""
    return [
        part
        for name, (study, findings) in found.items()
        for part in (f"<h1>{escape(study.title)}</h1>", *_findings(findings, folder / name))
    ]


def index_page(found: Mapping[str, tuple[Study, Findings]], options: Options) -> str:
    """Return the page of all studies: every claim with its verdict, and the way to each part."""
    claims = pool({study.title: findings.claims for study, findings in found.values()})
    verdicts = [claim.verdict for claim in claims]
    counts = ", ".join(f"{verdicts.count(v)} × {v}" for v in get_args(Verdict) if v in verdicts)
    body = [paragraph(f"Verdicts on {len(verdicts)} claims of the paper: {counts}.")] if verdicts else []
    for name, (study, findings) in found.items():
        body += [f'<h2><a href="{name}/report.html">{escape(study.title)}</a></h2>', paragraph(findings.summary)]
        body += _claims(findings.claims)
    return page("The paper, reproduced", command("all", options), body, quick=options.quick)


def page(title: str, made_by: str, body: Sequence[str], *, quick: bool) -> str:
    """Return a page of parts that are HTML, with the command that made it; a short form says that it is one."""
    marked = [paragraph(QUICK, "warning")] if quick else []
    return document(title, [f"<p><code>{escape(made_by)}</code></p>", *marked, *body])


def _findings(findings: Findings, folder: Path) -> list[str]:
    """Return findings as HTML: what was found, the claims, the figures, the tables."""
    body = [paragraph(part) for part in findings.summary.split("\n\n")] + _claims(findings.claims)
    body += [picture(folder / f"{figure.name}.png", figure.caption) for figure in findings.figures]
    for each in findings.tables:
        body += [f"<h2>{escape(each.title)}</h2>", table(each.columns, [list(map(shown, row)) for row in each.rows])]
        body += [f'<p class="caption">{emphasised(each.note)}</p>'] if each.note else []
    return body


def _claims(claims: Sequence[JudgedClaim]) -> list[str]:
    """Return the claims as a table whose verdicts have a colour each."""
    rows: list[list[str | tuple[str, str]]] = [
        [
            f"{c.text} ({c.where})",
            (c.verdict, f"verdict {c.verdict if c.verdict in ('holds', 'fails') else ''}"),
            c.threshold or "–",
            c.evidence,
        ]
        for c in claims
    ]
    return [table(HEAD, rows, "claims")] if rows else []


def emphasised(text: str) -> str:
    """Return a note as HTML, with what stands between asterisks emphasised.

    >>> emphasised("*After prox*: x* < 1"), emphasised("‖x − x*‖ and x*")
    ('<em>After prox</em>: x* &lt; 1', '‖x − x*‖ and x*')
    """
    return re.sub(r"(?<!\S)\*([^*\s][^*]*)\*", r"<em>\1</em>", escape(text))
