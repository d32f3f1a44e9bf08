"""The blind check: draws numbers of the docs at random, names the command behind each, and computes them again.

    python benchmarks/check_numbers.py                              # thirty numbers, from the stored results
    python benchmarks/check_numbers.py --seed 7 --count 100
    python benchmarks/check_numbers.py --results reproduction       # against results that you measured yourself

A page is drawn first, then a number in it, so that a page of a thousand numbers is no likelier than one of ten. Numbers
that follow from stored results are computed again from them. For the others the command that the page names is printed:
run it and compare. Exits with 1 where a number is off.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from losac_reproduction import STUDIES
from losac_reproduction.pages import command
from losac_reproduction.quoted import Parts
from losac_reproduction.results import read_parts

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "benchmarks")]

from generate_results import DOCS, pages  # noqa: E402
from page import write_page  # noqa: E402
from quotes import all_quotes, fields, found_in  # noqa: E402

NUMBER = re.compile(r"(?<![\w.^{/=-])\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?![\w/}-])")
COMMAND = re.compile(
    r"(?:LOSAC_DATA_DIR=\S+ )?(?:losac (?:reproduce|attack|compare|deploy demo)|make (?:demo|bench|quick|federation)|"
    r"python (?:benchmarks|docs|examples|tests)/)[^`\n|#]*"
)
"""What measures something."""
HIDDEN = re.compile(
    r"```(?:python|toml|json).*?```|\]\([^)]*\)|`[^`]*`|^#[^\n]*$|^ *\d+\. |https?://\S+", re.DOTALL | re.MULTILINE
)
"""What is no measured number: code, addresses, headings, the places of a list."""


class Drawn(NamedTuple):
    """A number of a page: where it stands, and whether it is off; None where it cannot be computed again here."""

    page: str
    line: int
    number: str
    text: str
    made_by: str
    again: str | None


def main() -> None:
    """Draw, compute again, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--results", type=Path, default=DOCS / "results")
    arguments = parser.parse_args()
    unreadable: dict[str, str] = {}
    parts = read_parts(arguments.results, STUDIES, unreadable)
    for name, reason in unreadable.items():
        print(f"left out: {name} ({reason})")
    found = list(draw(parts, random.Random(arguments.seed), arguments.count))
    for each in found:
        verdict = "not computed here" if each.again is None else "agrees" if each.again == each.number else "OFF"
        again = f", computed again: {each.again}" if each.again not in (None, each.number) else ""
        print(f"{verdict:17} {each.page}:{each.line}: {each.number}{again}\n    {each.text}\n    {each.made_by}")
    off = [each for each in found if each.again not in (None, each.number)]
    left = sorted({each.made_by for each in found if each.again is None})
    agreed = sum(each.again == each.number for each in found)
    print(f"\n{agreed} agree, {len(off)} off, {len(found) - agreed - len(off)} not computed here; run for these:")
    print(*(f"    {each}" for each in left), sep="\n")
    sys.exit(bool(off))


def draw(parts: Parts, chance: random.Random, count: int) -> Iterator[Drawn]:
    """Yield numbers at random, each at most once, from pages that follow from results or name a command."""
    fresh = {str(path.relative_to(ROOT)): text for path, text in pages(parts)} | speed()
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    texts = {"README.md": (ROOT / "README.md").read_text(encoding="utf-8"), **texts}
    places = {page: list(numbers_in(text)) for page, text in texts.items() if page in fresh or COMMAND.search(text)}
    places = {page: found for page, found in places.items() if found}
    seen = set()
    while len(seen) < min(count, sum(map(len, places.values()))):
        page = chance.choice(list(places))
        place = chance.choice(places[page])
        if (page, place) not in seen:
            seen.add((page, place))
            yield looked_up(page, texts[page], place, fresh.get(page), parts)


def speed() -> dict[str, str]:
    """Return the page on speed as it follows from benchmarks/results."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "assets").mkdir()
        write_page(ROOT / "benchmarks" / "results", Path(folder))
        return {"docs/speed.md": (Path(folder) / "speed.md").read_text(encoding="utf-8")}


def numbers_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the numbers of a page begin and end."""
    masked = HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    for found in NUMBER.finditer(masked):
        yield found.span()


def looked_up(page: str, text: str, place: tuple[int, int], fresh: str | None, parts: Parts) -> Drawn:
    """Return a number with its line, its command, and what it is when computed again."""
    start, end = place
    row = text.count("\n", 0, start)
    line = text.splitlines()[row]
    again, made_by = None, nearest_command(text, start)
    if fresh is not None:
        column = start - (text.rfind("\n", 0, start) + 1)
        again = same_place(fresh.splitlines()[row : row + 1], line, column)
        made_by = command_of(page, line, parts) or made_by
    else:
        quoted = in_quotes(page, text, place, parts)
        again, made_by = (quoted[0], quoted[1]) if quoted else (None, made_by)
    shown = line if len(line) < 160 else f"… {text[max(start - 70, 0) : end + 60]} …".replace("\n", " ")
    return Drawn(page, row + 1, text[start:end], shown.strip(), made_by, again)


def same_place(fresh: list[str], line: str, column: int) -> str:
    """Return the number at the same place of a line that was generated again; words where the line is another."""
    place = len(NUMBER.findall(line[:column]))
    numbers = NUMBER.findall(fresh[0]) if fresh else []
    if not fresh or NUMBER.sub("#", fresh[0]) != NUMBER.sub("#", line) or place >= len(numbers):
        return "the line is another one"
    return numbers[place]


def in_quotes(page: str, text: str, place: tuple[int, int], parts: Parts) -> tuple[str, str] | None:
    """Return what a quoted number is by the results, and its command; None where the number is in no quote."""
    for quote, numbers in all_quotes(parts):
        if quote.page != page:
            continue
        found = found_in(text, quote, numbers)
        for number, (_, value) in enumerate(fields(quote.template, numbers), 1):
            if found.start(number) <= place[0] and place[1] <= found.end(number):
                at = place[0] - found.start(number)
                made_by = command(quote.source, parts[quote.source].stored.options) if quote.source in parts else ""
                return value[at : at + place[1] - place[0]], made_by or quote.source
    return None


def command_of(page: str, line: str, parts: Mapping[str, object]) -> str:
    """Return the command of a generated page: that of its study, or of the study which a line links to."""
    name = page.removeprefix("docs/reproduction/").removesuffix(".md")
    linked = re.findall(r"\(reproduction/([\w-]+)\.md\)", line)
    wanted = [each for each in (name, *linked) if each in parts]
    return "; ".join(command(each, parts[each].stored.options) for each in wanted)  # type: ignore[attr-defined]


def nearest_command(text: str, start: int) -> str:
    """Return the command that is named last before a place, else the first behind it."""
    found = list(COMMAND.finditer(text))
    before = [each for each in found if each.end() <= start]
    return (before or found)[-1 if before else 0][0].strip() if found else "no command is named"


if __name__ == "__main__":
    main()
