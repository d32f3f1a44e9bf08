"""A page of the tables that ``benchmarks/robust.py --json`` kept, and in short which rules hold.

    python benchmarks/robust_summary.py digits.json har.json mnist.json > docs/robust_tables.md

The names of the files are those of the data sets.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from robust import HOLDS, page


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    found: dict[tuple[str, str], Any] = {}
    for path in parser.parse_args().files:
        for key, one in json.loads(path.read_text()).items():
            partition, method = key.split(",")[0].split(" ", 1)
            found[f"{path.stem} {partition}", method] = one
    print("\n".join(short(found)))
    for where in dict.fromkeys(where for where, _ in found):
        print(f"## {where}\n")
        for (own, method), one in found.items():
            if own == where:
                print(page(method, one) + "\n")


if __name__ == "__main__":
    main()
