"""The blind check: draws numbers of the docs at random, names the command behind each, and computes them again.

    python benchmarks/check_numbers.py                              # thirty numbers, from the stored results
    python benchmarks/check_numbers.py --seed 7 --count 100
    python benchmarks/check_numbers.py --results reproduction       # against results that you measured yourself
    python benchmarks/check_numbers.py --rerun                      # and measure one job of each drawn study again

A page is drawn first, then a number in it, so that a page of a thousand numbers is no likelier than one of ten. Numbers
that follow from stored results are computed again from them. For the others the command that the page names is printed:
run it and compare. With ``--rerun`` the cheapest job of each study of which a number was drawn runs again, with its
first seed, on this machine's CPU; it is compared with the stored numbers. Exits with 1 where a number is off.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from losac_reproduction import STUDIES
from losac_reproduction.pages import command
from losac_reproduction.quoted import Parts
from losac_reproduction.results import read_parts
from losac_reproduction.runner import plain
from losac_reproduction.study import JobResult

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "benchmarks")]

from generate_results import DOCS, pages  # noqa: E402
from page import write_page  # noqa: E402
from quotes import PLAIN, all_quotes, fields, found_in  # noqa: E402

NUMBER = re.compile(r"(?<![\w.^{/=-])\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?![\w/}-])")
STARTS = (
    r"(?:LOSAC_DATA_DIR=\S+ )?(?:losac (?:reproduce|attack|compare|deploy demo|run experiment\.toml|report runs)"
    r"|make (?:demo|bench|quick|federation)|pytest |python (?:benchmarks|docs|examples|tests)/)"
)
INLINE, LINE = re.compile(f"(?<!`)`({STARTS}[^`]*)`(?!`)"), re.compile(rf"^ *({STARTS}[^\n#]*)", re.MULTILINE)
"""What measures something: in a sentence, where it may go over a line's end, and in a block of commands."""
MADE_BY = re.compile(rf"(?:[Mm]ade|[Gg]enerated) by\s+`({STARTS}[^`]*)`")
"""The command that made a page."""
HIDDEN = re.compile(
    r"""```(?:python|toml|json).*?```|\]\([^)]*\)|`[^`]*`|^\#[^\n]*$|^\ *\d+\.\ |https?://\S+
    |\b(?:Python|flwr|Flower|JAX|NumPy|CUDA|PyTorch|pfl|losac)\ \d[\d.]*              # versions
    |\b(?:Figs?\.|Figure|Tables?|Theorem|Lemma|Algorithm|Page|page)\ \d+(?:\ (?:to|and)\ \d+)?
    |(?<!\w)[TMSNRKLcγδηzαρp](?:_i)?\ ?[=≥≤]\ ?[\d.e-]+(?:,\ [\d.]+)*(?:\ %)?       # settings
    |\b\d+\ bits\b""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
"""What is no measured number: code, addresses, headings, the places of a list, versions, names, settings."""
UNMEASURED = {"default", "setting", "mutant", "option"}
"""Tables with one of these in their head have no measured numbers."""
ALIKE = {"cpu": 1e-3, "gpu": 0.05}
"""By how much the median of a job's numbers may differ, relative to them, when it runs again on a CPU: training on a
GPU takes another course after some hundreds of rounds."""


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
    parser.add_argument("--rerun", action="store_true", help="measure one job of each drawn study again, on the CPU")
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
    wrong = rerun(parts, found) if arguments.rerun else 0
    sys.exit(bool(off) or bool(wrong))


def rerun(parts: Parts, found: Sequence[Drawn]) -> int:
    """Measure the cheapest job of each drawn study again, and print how far it is from what is stored."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    made_by = " ".join(one.made_by for one in found)
    names = [name for name in parts if re.search(rf"losac reproduce {name}(?![\w-])", made_by)]
    wrong = 0
    for name in names:
        study, _, stored = parts[name]
        if stored.note:
            print(f"not run again     {name}: {stored.note}")
            continue
        job = min(study.jobs(stored.options), key=lambda one: one.cost)
        arguments = dict(job.arguments)
        if "seeds" in arguments:
            arguments["seeds"] = arguments["seeds"][:1]
        began = time.perf_counter()
        again = study.frame([JobResult(job.label, arguments, plain(job.function(**arguments)), 0.0)])
        away, count = distance(stored.frame, again)
        allowed = ALIKE["gpu" if any(device != "cpu" for device in stored.devices) else "cpu"]
        wrong += not away <= allowed
        print(
            f"{'agrees' if away <= allowed else 'OFF':17} {name}: {job.label}, {count} numbers, the median differs by "
            f"{away:.1e} ({time.perf_counter() - began:.0f} s)"
        )
    return wrong


def distance(stored: pd.DataFrame, again: pd.DataFrame) -> tuple[float, int]:
    """Return the median relative difference of the numbers that two frames have in common, and how many these are."""
    keys = [name for name in again if name in stored and name not in ("value", "rounds")]
    sides = [
        frame[[*keys, "value"]].assign(**{key: frame[key].map(_as_key) for key in keys}) for frame in (again, stored)
    ]
    both = sides[0].merge(sides[1], on=keys, suffixes=("_again", "_stored"))
    values = both[["value_again", "value_stored"]].apply(pd.to_numeric, errors="coerce").dropna()
    scale = values.abs().max(axis=1).clip(lower=1e-12)
    away = (values["value_again"] - values["value_stored"]).abs() / scale
    return (float(away.median()) if len(away) else float("nan")), len(away)


def _as_key(value: object) -> str:
    """Return what tells measurements apart as text, however a frame holds it."""
    if value is None or value != value:
        return ""
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def draw(parts: Parts, chance: random.Random, count: int) -> Iterator[Drawn]:
    """Yield numbers at random, each at most once, from pages that follow from results or name a command."""
    fresh = {str(path.relative_to(ROOT)): text for path, text in pages(parts)} | speed()
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    texts = {"README.md": (ROOT / "README.md").read_text(encoding="utf-8"), **texts}
    places = {page: list(numbers_in(text, page)) for page, text in texts.items() if page in fresh or commands_in(text)}
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


def numbers_in(text: str, page: str = "") -> Iterator[tuple[int, int]]:
    """Yield where the measured numbers of a page begin and end."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    masked = HIDDEN.sub(blank, re.sub(r"(?m)(?:^\|.*\n)+", lambda found: _measured(found, blank), text))
    for plain_fact in PLAIN.get(page, ()):
        masked = re.sub(plain_fact, blank, masked)
    for found in NUMBER.finditer(masked):
        yield found.span()


def _measured(table: re.Match[str], blank: Callable[[re.Match[str]], str]) -> str:
    """Return a table, blank where it holds settings or places in files."""
    head = table[0].partition("\n")[0].lower()
    return blank(table) if any(word in head for word in UNMEASURED) else table[0]


def commands_in(text: str) -> list[tuple[int, int, str]]:
    """Return the commands of a page, with where they begin and end."""
    blocks = [found.span() for found in re.finditer(r"(?ms)^```.*?^```", text)]

    def inside(found: re.Match[str]) -> bool:
        return any(start <= found.start() < end for start, end in blocks)

    found = [each for each in INLINE.finditer(text) if not inside(each)]
    found += [each for each in LINE.finditer(text) if inside(each)]
    return sorted((*each.span(), " ".join(each[1].split())) for each in found)


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


def command_of(page: str, line: str, parts: Parts) -> str:
    """Return the command of a line: the one that it names, that of its page's study, or of one that it links to."""
    named = [text for *_, text in commands_in(line)]
    if named:
        return "; ".join(named)
    name = page.removeprefix("docs/reproduction/").removesuffix(".md")
    linked = re.findall(r"\(reproduction/([\w-]+)\.md\)", line)
    wanted = [each for each in (name, *linked) if each in parts]
    return "; ".join(command(each, parts[each].stored.options) for each in wanted)


def nearest_command(text: str, start: int) -> str:
    """Return the command of the line, else the one that made the page, else the last before a place or the first."""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = commands_in(text[begin : end if end >= 0 else None])
    if line:
        return line[-1][2]
    if made := MADE_BY.search(text):
        return " ".join(made[1].split())
    found = commands_in(text)
    before = [each for each in found if each[1] <= start]
    return (before or found)[-1 if before else 0][2] if found else "no command is named"


if __name__ == "__main__":
    main()
