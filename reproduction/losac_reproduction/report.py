"""The report as one HTML page: the answer, the main claims, and the findings of all studies with their figures."""

from __future__ import annotations

from html import escape
from pathlib import Path

from losac.report.document import table
from losac_reproduction.answer import HEADLINES, all_claims, departures, headlines, plain, sentences
from losac_reproduction.pages import page, sections
from losac_reproduction.quoted import Parts


def report_page(parts: Parts, folder: Path) -> str:
    """Return the page; the parts' figures lie in a folder."""
    claims = all_claims(parts)
    answer = "".join(f"<li>{escape(each)}</li>" for each in sentences(parts, claims))
    body = [f"<ol>{answer}</ol>"]
    if rows := headlines(claims):
        body += ["<h2>The main claims</h2>", table(HEADLINES, rows, "claims")]
    left = [[plain(cell) for cell in each] for each in departures(parts)]
    body += ["<h2>Where our runs depart from the print</h2>", table(("what", "the paper", "our runs"), left)]
    body += sections({name: (part.study, part.findings) for name, part in parts.items()}, folder)
    quick = any(part.stored.options.quick for part in parts.values())
    return page("The paper, reproduced", "losac reproduce report", body, quick=quick)
