"""A page of text, tables and pictures, with the look of the report: one HTML file that fetches nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from losac import __version__
from losac.report.page import asset

WIDEST = 24
"""Cells with at least this many letters may be broken into lines."""
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="losac $version">
<title>$title</title>
<style>
$css
</style>
</head>
<body>
<h1>$title</h1>
$body
</body>
</html>
""")


def document(title: str, body: Sequence[str]) -> str:
    """Return a page of parts that are HTML already, under a title that is text."""
    css = "\n".join([asset("base.css"), asset("document.css")])
    return _PAGE.substitute(title=escape(title), css=css, body="\n".join(body), version=__version__)


def paragraph(text: str, kind: str = "") -> str:
    """Return text as a paragraph of a kind: ``caption``, ``warning`` or none.

    >>> paragraph("a < b", "caption")
    '<p class="caption">a &lt; b</p>'
    """
    return f"<p{_class(kind)}>{escape(text)}</p>"


def picture(path: Path, caption: str) -> str:
    """Return a PNG file, embedded in the page, over its caption."""
    code, said = base64.b64encode(path.read_bytes()).decode(), escape(caption)
    image = f'<img alt="{said}" src="data:image/png;base64,{code}">'
    return f'<figure class="wide">{image}<p class="caption">{said}</p></figure>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str | tuple[str, str]]], kind: str = "") -> str:
    """Return a table; a cell is a text, or a text and its kind.

    >>> table(["x"], [["1"], [("<2", "bad")]])  # doctest: +ELLIPSIS
    '<div class="scroll"><table class="told"><thead>...<td>1</td></tr><tr><td class="bad">&lt;2</td></tr>...'
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    whole = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table{_class(f"told {kind}".strip())}>{whole}</table></div>'


def _cell(cell: str | tuple[str, str]) -> str:
    text, kind = (cell, "long" if len(cell) > WIDEST else "") if isinstance(cell, str) else cell
    return f"<td{_class(kind)}>{escape(text)}</td>"


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
