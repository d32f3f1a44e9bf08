"""The tables that ``benchmarks/robust.py --json`` kept, and in short which rules hold.

    python benchmarks/robust_summary.py digits.json har.json mnist.json > docs/robust_tables.md
    python benchmarks/robust_summary.py --short digits.json har.json mnist.json

The names of the files are those of the data sets.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from robust import HOLDS, page

HEAD = """# Robust aggregation: all tables

The accuracies behind [robust aggregation](robust.md): methods, rules and attacks on each data set. For readers who want
the numbers themselves.

The setting, the rules and the attacks are those of that page: 20 clients, 10 per round, 2 liars in all, 60 rounds.
Accuracy in %, the mean of the last five evaluations and of the seeds; bold where a rule holds, that is, ends at most
five points below the plain mean of a federation without the liars. Each section says which command measured it; with
`--json digits.json`, and so on, `python benchmarks/robust_summary.py digits.json har.json mnist.json` writes this page.
"""


def short(found: dict[tuple[str, str], Any]) -> list[str]:
    """Return for each method how many attacks each rule holds against, by data and partition."""
    lines = []
    for method in dict.fromkeys(method for _, method in found):
        ones = {where: one for (where, name), one in found.items() if name == method}
        lines += [f"**{method}**", "", f"| rule | {' | '.join(ones)} |", "|---" * (len(ones) + 1) + "|"]
        for rule in next(iter(ones.values()))["attacks"]["none"]:
            lines.append(f"| {rule} | {' | '.join(held(one, rule) for one in ones.values())} |")
        lines.append("")
    return lines


def held(one: dict[str, Any], rule: str) -> str:
    """Return how many attacks a rule holds against, bold where it costs at most five points without an attack."""
    bar = float(np.mean(one["without liars"])) - HOLDS
    means = {attack: float(np.mean(row[rule])) for attack, row in one["attacks"].items()}
    count = sum(mean >= bar for attack, mean in means.items() if attack != "none")
    text = f"{count} of {len(means) - 1}"
    return f"**{text}**" if means["none"] >= bar else text


def command(where: str, settings: list[str], methods: list[str]) -> str:
    """Return what measured a section."""
    (data, partition), (rounds, seeds, rows) = where.split(), settings
    parts = [data, "--partition", partition, "--rounds", rounds.split()[0], "--seeds", seeds.removeprefix("seeds ")]
    parts += [] if rows == "rows None" else ["--rows", rows.split()[1]]
    parts += [] if len(methods) == 4 else ["--methods", ",".join(methods)]
    return f"`python benchmarks/robust.py {' '.join(parts)}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--short", action="store_true", help="only which rules hold")
    given = parser.parse_args()
    found: dict[tuple[str, str], Any] = {}
    measured: dict[str, list[str]] = {}
    for path in given.files:
        for key, one in json.loads(path.read_text()).items():
            name, *settings = key.split("; ")
            partition, method = name.split(" ", 1)
            found[where := f"{path.stem} {partition}", method] = one
            measured[where] = settings
    if given.short:
        print("\n".join(short(found)))
        return
    print(HEAD)
    for where, settings in measured.items():
        own = {method: one for (place, method), one in found.items() if place == where}
        tables = [page(method, one) for method, one in own.items()]
        print(f"## {where.replace(' ', ', ')}", command(where, settings, list(own)), *tables, sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
