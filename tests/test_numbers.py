"""Numbers in the docs are those of the results: generated pages are up to date, others agree to the digit."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from losac_reproduction import STUDIES
from paths import ROOT


@pytest.fixture(scope="module")
def docs():
    """The scripts of docs/, and what follows from the stored results."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        names = ("generate_results", "quotes", "sources", "numbers_page", "verdicts_page", "bench_page")
        modules = {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ROOT / "docs"))
    parts, unreadable = modules["generate_results"].published()
    yield SimpleNamespace(**modules, parts=parts, unreadable=unreadable)
    for name in names:
        sys.modules.pop(name, None)


def test_every_stored_result_is_of_the_present_studies(docs):
    assert not docs.unreadable, f"measure these again: {docs.unreadable}"
    assert len(docs.quotes.all_quotes(docs.parts)) == len(docs.quotes.QUOTES)


def test_generated_pages_are_what_the_results_say(docs):
    pages = docs.generate_results.pages(docs.parts, list(docs.unreadable))
    stale = [path.name for path, content in pages if not path.exists() or path.read_text() != content]
    assert not stale, f"{stale} are out of date: run python docs/generate_results.py"


def test_results_name_no_commit_that_git_does_not_know(docs):
    """An id of a checkout with changes, or one that was rebased away, helps nobody."""
    commits = {part.stored.commit for part in docs.parts.values()} - {""}
    commits |= {entry["commit"] for entry in docs.sources.commands().values()}
    asked = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() != "false":
        pytest.skip("no checkout with all commits")
    unknown = [c for c in commits if subprocess.run(["git", "cat-file", "-e", c], cwd=ROOT, check=False).returncode]
    assert not unknown


def test_pages_say_where_results_are_older_than_the_study(docs):
    older = [name for name, part in docs.parts.items() if part.stored.note]
    assert older == ["fair", "fair-iid"]
    for name in older:
        page = (ROOT / "docs" / "reproduction" / f"{name}.md").read_text()
        assert "These runs are older than the study" in page
        assert "Today the command takes" in page


def test_every_study_with_results_has_a_page(docs):
    pages = {path.stem for path in (ROOT / "docs" / "reproduction").glob("*.md")}
    assert pages == set(docs.parts)
    assert list(docs.parts) == [name for name in STUDIES if name in pages]


def test_hand_written_pages_agree_with_the_results_to_the_digit(docs):
    wrong = []
    for quote, numbers in docs.quotes.all_quotes(docs.parts):
        text = (ROOT / quote.page).read_text()
        found = docs.quotes.found_in(text, quote, numbers)
        for place, (name, value) in enumerate(docs.quotes.fields(quote.template, numbers), 1):
            stands = " ".join(found[place].split())
            wrong += [] if stands == value else [f"{quote.page}: {name} is {value}, and the page has {stands}"]
    assert not wrong, "run python docs/quotes.py:\n" + "\n".join(wrong)


@pytest.mark.parametrize("page", ["README.md", "docs/method.md", "docs/choosing.md"])
def test_no_number_of_these_pages_is_without_a_source(docs, page):
    assert not docs.quotes.unquoted(docs.parts, page), "give it a quote in docs/quotes.py"


def test_a_number_without_a_source_is_found_anywhere_in_a_page(docs, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(
        "to 1e-9\n\n    code = 3\n\n```python\nx = 4\n```\n\nIt wins in 5 of\n`6` cells.\n"
    )
    monkeypatch.setattr(docs.quotes, "ROOT", tmp_path)
    monkeypatch.setattr(docs.quotes, "PLAIN", {"page.md": ["to 1e-9"]})
    assert docs.quotes.unquoted(docs.parts, "page.md") == ["It wins in 5 of"]


def test_a_wrong_number_is_found_and_put_right(docs):
    quote = docs.quotes.Quote("page.md", "table2", "in {wins} of {cells} cells, {share:.1%} of {who} here", None)
    numbers = {"wins": 9, "cells": 27, "share": 1 / 3, "who": "A, B and C"}
    page = "LoSAC wins in 22 of\n27 cells, 81.5 % of A and\nB here; 5 of 6 are left."
    found = docs.quotes.found_in(page, quote, numbers)
    assert found.groups() == ("22", "27", "81.5 %", "A and\nB")
    right = "LoSAC wins in 9 of\n27 cells, 33.3 % of A, B and C here; 5 of 6 are left."
    assert docs.quotes.filled(page, quote, numbers) == right
    assert docs.quotes.filled(right, quote, numbers) == right
    with pytest.raises(ValueError, match=r"page\.md: found 0 times: 'in \{wins\}"):
        docs.quotes.found_in("in none", quote, numbers)


def test_the_answer_is_five_sentences_and_the_headlines_are_about_ten(docs):
    page = (ROOT / "docs" / "reproduction.md").read_text()
    answer = page[page.index("## The answer") : page.index("## The main claims")]
    assert len(re.findall(r"(?m)^\d\. ", answer)) == 5
    rows = page[page.index("## The main claims") : page.index("## Where our runs")].count("\n| ")
    assert 8 <= rows - 1 <= 14


def test_every_command_behind_a_number_is_timed_and_named(docs):
    page = (ROOT / "docs" / "numbers.md").read_text()
    for quote in docs.quotes.QUOTES:
        assert quote.source == "all" or quote.source in docs.parts or quote.source in docs.sources.commands()
    assert "`make demo`" in page
    assert "losac reproduce table2" in page


def test_every_claim_has_a_row_of_before_and_after(docs):
    """And every row of a study that is there names a claim as the study states it."""
    page = docs.verdicts_page.verdicts_page(docs.parts)
    claims = {claim.text for part in docs.parts.values() for claim in part.findings.claims}
    missing = [text for text in claims if text.replace("|", "\\|") not in page]
    assert not missing, "add a row to docs/verdicts_before.csv"
    again = page.partition(docs.verdicts_page.KINDS[docs.verdicts_page.AGAIN])[2]
    rows = [line.split(" | ")[:2] for line in again.splitlines() if line.startswith("| ")]
    assert not [text for study, text in rows if study[2:] in docs.parts and text.replace("\\|", "|") not in claims]
