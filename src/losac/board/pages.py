"""The board's two pages, with their scripts and styles inlined."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template

from losac import __version__
from losac.report.page import SCRIPTS, asset, script_data
from losac.report.style import css_colours

_OWN = Path(__file__).parent / "assets"


def board_page(folder: Path) -> str:
    """Return the list of runs and their curves."""
    return _page("board", f"Runs in {folder.name}", {"folder": str(folder)})


def run_page(name: str, shown: str) -> str:
    """Return the page of one run."""
    return _page("run", shown, {"run": name})


def _page(kind: str, title: str, given: dict[str, str]) -> str:
    scripts = [*(asset(name) for name in SCRIPTS), *(asset(name, _OWN) for name in ("live.js", f"{kind}.js"))]
    return Template(asset("frame.html", _OWN)).substitute(
        title=escape(title),
        css="\n".join([css_colours(), asset("base.css"), asset("board.css", _OWN)]),
        body=asset(f"{kind}.html", _OWN),
        given=script_data(given),
        script="\n".join(scripts),
        version=__version__,
    )
