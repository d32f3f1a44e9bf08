"""Writes docs/reproduction.md, with its figures and tables, from the results under docs/results.

    python docs/generate_results.py

Nothing is measured here: verdicts, tables and figures are concluded anew from each part's ``results.json``, which
``losac reproduce`` wrote (the command is named in it). To take in new results, copy ``results.json`` from the part's
folder to docs/results/PART/ and run this.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from losac.reproduce import STUDIES, read_results
from losac.reproduce.output import markdown, write_figures, write_tables

DOCS = Path(__file__).parent
INTRODUCTION = """# The paper, reproduced

Every experiment and claim of the paper, measured by `losac reproduce`, and judged. *Generated from the files under
[results](results) by `docs/generate_results.py`: nothing here is typed by hand.* The verdicts:

- **holds**: measured as stated;
- **holds only at equal step size**: true at the paper's step sizes, gone when the rival's steps are as long as LoSAC's,
  which at equal η moves M times as far ([why](method.md));
- **holds in part**: in some of the settings, or in a weaker form; the evidence says which;
- **fails**; **not testable**.

What to conclude from it: [when to choose LoSAC](choosing.md). `losac reproduce all --quick` runs a short form of
everything in minutes, `losac reproduce PART` one part in full; both run on CPU and GPU and go on where they stopped.
"""


def main() -> None:
    """Conclude every part anew, and write its figures, its tables and the page."""
    sections, overview, counts = [], [], Counter()
    for name, study in STUDIES.items():
        folder = DOCS / "results" / name
        if not (folder / "results.json").exists():
            continue
        measured, options = read_results(folder)
        if options.quick:
            raise ValueError(f"{folder} holds results of a short form; only full ones belong in the docs")
        findings = study.conclude(measured, options)
        write_figures(findings, folder, svg=False)
        write_tables(findings, folder)
        verdicts = Counter(claim.verdict for claim in findings.claims)
        counts.update(verdicts)
        device = ", ".join(sorted({one.device for one in measured if one.device}))
        seconds = sum(one.seconds for one in measured)
        shown = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items()) or "–"
        anchor = "".join(c for c in study.title.lower().replace(" ", "-") if c.isalnum() or c == "-")
        overview.append(f"| [{study.title}](#{anchor}) | {shown} | {len(measured)} | {seconds / 60:.0f} | {device} |")
        sections.append(markdown(study, findings, options, f"results/{name}"))
    total = ", ".join(f"{number} **{verdict}**" for verdict, number in counts.most_common())
    head = [
        INTRODUCTION,
        f"Of {sum(counts.values())} claims: {total}.\n",
        "| part | verdicts | measurements | minutes, summed over processes | measured on |\n|---|---|---|---|---|",
    ]
    (DOCS / "reproduction.md").write_text("\n".join([*head, *overview, "", *sections]), encoding="utf-8")
    print(f"{DOCS / 'reproduction.md'}: {len(sections)} parts, {sum(counts.values())} claims")


if __name__ == "__main__":
    main()
