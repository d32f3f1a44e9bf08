"""The report as a PDF of four pages that a referee can file: the answer, Table 2, figures, and every claim."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from losac import __version__
from losac._files import write_whole
from losac_reproduction.answer import (
    HEADLINES,
    all_claims,
    counted,
    departures,
    headlines,
    home_of,
    plain,
    sentences,
)
from losac_reproduction.claims import JudgedClaim
from losac_reproduction.pages import QUICK, STYLE, command
from losac_reproduction.quoted import Parts
from losac_reproduction.sheet import INNER, LEADING, MARGIN, POINT, Sheet, SheetColumn, TextLook, wrap
from losac_reproduction.studies.table2 import CellRuns, instabilities
from losac_reproduction.words import shown

PAGES = 4
COLOURS = {"holds": "#1a7f37", "fails": "#b42318", "not testable": "0.35"}
"""Of verdicts; those between are ochre."""
BETWEEN = "#9a6700"
FIGURES = (("fair", "fair-rounds"), ("theorem1", "rates"))
"""The figures of the third page, by study and name: those that there are."""
CAPTION = TextLook(7.5, slanted=True)
TERMS = (
    "Equal η: every method at the paper's step size. Equal length: SCAFFOLD with the server step M, which makes its "
    "steps as long as LoSAC's. Tuned: every method tuned on the same budget, by sustained rounds, with the first "
    "crossings in brackets. Sustained: counted to the first of five evaluations in a row at the target instead of the "
    "first crossing, at equal η where nothing else is said. Three numbers in a row: MNIST, HAR and ESR, with nine "
    "cells of Table 2 each. Means and medians leave out cells where a seed diverged. Thresholds: page 4."
)


def write_pdf(parts: Parts, path: Path, made_by: str) -> None:
    """Write the report; ``made_by`` is the command, for the foot of each page."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages

    kept = io.BytesIO()
    about = {"Title": "The paper on LoSAC, reproduced", "Creator": f"losac {__version__}", "CreationDate": None}
    with rc_context({"pdf.fonttype": 42}), PdfPages(kept, metadata=about) as pages:
        for number, sheet in enumerate(sheets(parts), 1):
            sheet.foot(f"{made_by}  ·  losac {__version__}{_span(parts)}", f"{number} of {PAGES}")
            pages.savefig(sheet.drawing)
    write_whole(path, kept.getvalue())


def _span(parts: Parts) -> str:
    """Return between which days the results were stored."""
    days = sorted(part.stored.date for part in parts.values() if part.stored.date)
    return f"  ·  results of {days[0]}{f' to {days[-1]}' if days[-1] != days[0] else ''}" if days else ""


def sheets(parts: Parts) -> Iterator[Sheet]:
    """Yield the pages."""
    claims = all_claims(parts)
    yield _answer(parts, claims)
    yield _table_2(parts)
    yield _figures(parts)
    yield _claims(parts, claims)


def _quick(parts: Parts) -> bool:
    return any(part.stored.options.quick for part in parts.values())


def _coloured(cell: str) -> dict[str, Any]:
    """Return the look of a verdict."""
    return {"bold": True, "colour": COLOURS.get(cell, BETWEEN)}


def _fitted(sizes: Sequence[float], fill: Callable[[Sheet, float], None]) -> Sheet:
    """Return a page with the largest letters with which all fits."""
    for size in sizes:
        sheet = Sheet()
        fill(sheet, size)
        if sheet.left >= 0:
            break
    return sheet


def _answer(parts: Parts, claims: Sequence[JudgedClaim]) -> Sheet:
    """Return the page with the five sentences, the headline claims and the departures."""

    def fill(sheet: Sheet, size: float) -> None:
        sheet.paragraph("The paper on LoSAC, reproduced", TextLook(19, bold=True, colour="#1f4e79"))
        sheet.gap(0.03)
        sheet.paragraph(
            "H. Chen, H. Wang, Q. Yao, Y. Li, D. Jin, Q. Yang, LoSAC: an efficient local stochastic average control "
            "method for federated optimization, ACM TKDD. Every experiment and claim was measured again by the "
            "command below; all numbers in this report are filled in from the stored results.",
            TextLook(8.5, slanted=True, colour="0.3"),
        )
        if _quick(parts):
            sheet.gap(0.05)
            sheet.paragraph(QUICK, TextLook(10, bold=True, colour=COLOURS["fails"]))
        sheet.heading("Does the paper hold?")
        for place, each in enumerate(sentences(parts, claims), 1):
            sheet.paragraph(f"{place}.  {plain(each)}", TextLook(min(size + 1.4, 9.5)))
            sheet.gap(0.03)
        if rows := [row[:-1] for row in headlines(claims)]:
            sheet.heading("The main claims")
            shares = (1.55, 0.95, 1.75, 1.55, 2.1, 1.0, 1.15)
            columns = [SheetColumn(_capital(head), share) for head, share in zip(HEADLINES, shares)]
            columns[-1] = columns[-1]._replace(look=_coloured)
            sheet.table(columns, rows, size, gap=0.2)
            sheet.paragraph(TERMS, CAPTION._replace(size=min(size + 0.4, 7.5)))
        sheet.heading("Where our runs depart from the print")
        left = [SheetColumn("What", 1.15), SheetColumn("The paper", 1.75), SheetColumn("Our runs", 4.9)]
        sheet.table(left, [list(map(plain, each)) for each in departures(parts)], size, gap=0.15)

    return _fitted((8, 7.75, 7.5, 7.25, 7, 6.9, 6.8, 6.7, 6.6, 6.5, 6.2, 5.8), fill)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_LOST = re.compile(r"\s*\((?:(\d+) of \d+ )(diverged|never)\)")
_SIGNS = {"diverged": "†", "never": "‡"}


def _short(cell: Any) -> str:
    """Return a mean without the words about the seeds that it leaves out, but a sign and their number.

    >>> _short("0.095 ± 0.018 (1 of 3 diverged)"), _short(None)
    ('0.095 ± 0.018 †1', '–')
    """
    return _LOST.sub(lambda found: f" {_SIGNS[found[2]]}{found[1]}", shown(cell))


def _table_2(parts: Parts) -> Sheet:
    """Return the page with the cells of Table 2, ours and the paper's."""
    sheet = Sheet()
    sheet.heading("Table 2: rounds to 85 % accuracy and training loss at round 500")
    tables = {each.name: each for each in parts["table2"].findings.tables} if "table2" in parts else {}
    if not tables:
        sheet.paragraph("Not measured: losac reproduce table2 was not run.", TextLook())
        return sheet
    names = ("rounds to 85 %", "sustained", "loss")
    body: list[list[str]] = []
    for data in ("mnist", "har", "esr"):
        each = tables.get(f"{data}-he")
        if each is None:
            continue
        at = {name: each.columns.index(name) for name in names}
        kept: dict[tuple[int, int], dict[str, list[str]]] = {}
        for row in each.rows:
            cells = [row[at[name] + k] for name in names for k in ((0, 1) if name != "sustained" else (0,))]
            kept.setdefault((row[1], row[2]), {})[row[0]] = [_short(cell) for cell in cells]
        body.append([data.upper()])
        for (m, t), methods in kept.items():
            (scaffold, losac, long) = (methods.get(name, ["–"] * 5) for name in _METHODS)
            body.append([str(m), str(t), *scaffold, *losac, *(long[k] for k in (0, 2, 3))])
    ours = [("rounds", 1.2), ("paper", 0.75), ("sustained", 1.15), ("loss", 1.8), ("paper", 0.75)]
    shares = [("M", 0.35), ("T", 0.35), *ours, *ours, ours[0], ours[2], ours[3]]
    columns = [SheetColumn(head, share, right=True) for head, share in shares]
    groups = [("", 2), ("SCAFFOLD", 5), ("LoSAC", 5), ("SCAFFOLD, server step M", 3)]
    sheet.table(columns, body, 6.5, groups, lined=False)
    sheet.paragraph(
        "Mean ± standard deviation over the seeds; N = 100 clients sorted by label, S = 10, η = 1e-4, He-normal "
        "weights. Sustained: the first of five evaluations in a row at 85 % or more, even if it falls below later. †n: "
        "the mean leaves out n seeds that diverged; ‡n: n seeds that never got there. At equal η LoSAC's steps are M "
        "times as long as SCAFFOLD's; with the server step M both are equally long.",
        CAPTION,
    )
    if words := instabilities(CellRuns(parts["table2"].stored.frame)):
        sheet.paragraph(words, CAPTION)
    if "distance" in tables:
        sheet.heading("How far our cells are from the paper's")
        distance = tables["distance"]
        sheet.table(
            [SheetColumn(_capital(head), 1.0) for head in distance.columns],
            [list(map(shown, row)) for row in distance.rows], 7.5, lined=False,
        )  # fmt: skip
    _add_figures(sheet, parts, [("table2", "table2")], sheet.left)
    return sheet


_METHODS = ("SCAFFOLD", "LoSAC", "SCAFFOLD (server step M)")


def _add_figures(sheet: Sheet, parts: Parts, wanted: Sequence[tuple[str, str]], room: float) -> None:
    """Add figures with their captions; so many inches are left for all of them."""
    from matplotlib import rc_context

    there = [
        (parts[study].study.title, figure)
        for study, name in wanted
        if study in parts
        for figure in parts[study].findings.figures
        if figure.name == name
    ]
    with rc_context(STYLE):
        drawn = [(f"{title}. {figure.caption}", figure.draw()) for title, figure in there]
        captions = [len(wrap(text, INNER, CAPTION)) * CAPTION.size * LEADING * POINT + 0.1 for text, _ in drawn]
        high = sum(INNER * size[1] / size[0] for size in (drawing.get_size_inches() for _, drawing in drawn))
        share = min(1.0, (room - sum(captions)) / high) if drawn else 0.0
        for text, drawing in drawn:
            if share > 0.25:
                sheet.gap(0.06)
                sheet.picture(drawing, INNER * share)
                sheet.paragraph(text, CAPTION)


def _figures(parts: Parts) -> Sheet:
    """Return the page with figures, and with what was measured how."""
    heads = (("Study", 2.8), ("Command", 2.7), ("Jobs", 0.4), ("Minutes", 0.55), ("On", 1.2), ("Stored", 0.8))
    columns = [SheetColumn(head, share, head in ("Jobs", "Minutes")) for head, share in heads]
    rows = [
        [study.title + ("*" if stored.note else ""), command(name, stored.options), str(stored.jobs),
         f"{stored.seconds / 60:.0f}", ", ".join(stored.devices), stored.date or "–"]
        for name, (study, _, stored) in parts.items()
    ]  # fmt: skip
    notes = dict.fromkeys(plain(stored.note) for _, _, stored in parts.values() if stored.note)

    def measured(sheet: Sheet) -> None:
        sheet.heading("What was measured")
        sheet.table(columns, rows, 6.5, lined=False)
        for note in notes:
            sheet.paragraph(f"* Older runs. {note}", CAPTION)

    trial, sheet = Sheet(), Sheet()
    measured(trial)
    sheet.heading("Figures")
    _add_figures(sheet, parts, FIGURES, trial.left - (sheet.y - MARGIN) - 0.1)
    measured(sheet)
    return sheet


def _claims(parts: Parts, claims: Sequence[JudgedClaim]) -> Sheet:
    """Return the page with every claim and its verdict."""
    columns = [
        SheetColumn("The paper says", 5.0),
        SheetColumn("Where", 1.85),
        SheetColumn("Verdict", 1.62, look=_coloured),
        SheetColumn("Study", 1.25),
    ]
    rows = [[c.text, c.where, c.verdict, ", ".join(home_of(c, parts))] for c in claims]
    thresholds = {row[0]: row[-1] for row in headlines(claims)}

    def fill(sheet: Sheet, size: float) -> None:
        sheet.heading(f"All {len(claims)} claims, in the paper's order: {counted(claims)}")
        sheet.table(columns, rows, size, lined=False, gap=0.1)
        sheet.paragraph(
            "Each claim is judged once, by the sum of the counts of its studies. Evidence and the other thresholds: "
            "the pages of the studies, and results.json in the folder of results.", CAPTION._replace(size=size),
        )  # fmt: skip
        if thresholds:
            sheet.heading("Thresholds of the main claims")
        for title, threshold in thresholds.items():
            sheet.paragraph(f"{_capital(title)}: {threshold}", TextLook(size))

    return _fitted((7.5, 7.25, 7, 6.75, 6.5, 6.4, 6.3, 6.2, 6.1, 6, 5.9, 5.8, 5.5), fill)
