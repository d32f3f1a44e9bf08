"""Writes docs/reproduction.md and docs/reproduction/, with figures and tables, from the results under docs/results.

    python docs/generate_results.py

Nothing is measured here: verdicts, tables and figures are concluded again from each part's ``results.csv.gz``, which
``losac reproduce`` wrote (the command is named in its ``results.json``). To take in new results, copy both
from the part's folder to docs/results/PART/ and run this. It also fills the numbers of the results into the sentences
of other pages (docs/quotes.py), and writes docs/numbers.md and docs/bench.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_page import bench_page
from numbers_page import numbers_page
from quotes import fill_pages
from verdicts_page import verdicts_page

from losac_reproduction import STUDIES
from losac_reproduction.markdown import answer_page, study_section
from losac_reproduction.pages import write_figures, write_tables
from losac_reproduction.quoted import Parts
from losac_reproduction.results import read_parts, update_results

DOCS = Path(__file__).parent


def pages(parts: Parts, missing: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Yield the generated pages with their content."""
    yield DOCS / "reproduction.md", answer_page(parts, missing)
    yield DOCS / "numbers.md", numbers_page(parts)
    yield DOCS / "verdicts.md", verdicts_page(parts)
    yield DOCS / "bench.md", bench_page()
    for name, part in parts.items():
        yield DOCS / "reproduction" / f"{name}.md", study_section(part, f"../results/{name}")


def published() -> tuple[Parts, dict[str, str]]:
    """Return what follows from the results under docs/results, and what could not be read of them."""
    unreadable: dict[str, str] = {}
    parts = read_parts(DOCS / "results", STUDIES, unreadable)
    for name, part in parts.items():
        if part.stored.options.quick:
            raise ValueError(f"docs/results/{name} holds results of a short form; only full ones belong in the docs")
    return parts, unreadable


def main(with_figures: bool = True) -> None:
    """Conclude every part again, and write its figures, its tables and the pages."""
    parts, unreadable = published()
    for name, reason in unreadable.items():
        print(f"left out: {name} ({reason}); run losac reproduce {name}, and copy its results to docs/results/{name}")
    for name, part in parts.items():
        folder = DOCS / "results" / name
        update_results(part, folder)
        write_tables(part.findings, folder)
        if with_figures:
            write_figures(part.findings, folder, svg=False)
    (DOCS / "reproduction").mkdir(exist_ok=True)
    for path in (DOCS / "reproduction").glob("*.md"):
        path.unlink()
    for path, content in pages(parts, list(unreadable)):
        path.write_text(content, encoding="utf-8")
    print(*(f"changed: {each}" for each in fill_pages(parts)), sep="\n", end="")
    print(f"{DOCS / 'reproduction.md'} and {len(parts)} pages of studies")


if __name__ == "__main__":
    main("--no-figures" not in sys.argv[1:])
