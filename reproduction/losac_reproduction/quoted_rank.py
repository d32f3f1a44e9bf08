"""The numbers that sentences quote from the study of all methods on digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from losac_reproduction.quoted import Numbers, Parts, table
from losac_reproduction.results import Part

STUDY = "rank-digits"
SETTINGS = {"s": "sorted", "d": "dirichlet0.3", "i": "iid"}
"""The partitions, as names of numbers end and as the study's tables are called."""
FORMS = {"sparse": "LoSAC-lean, sparse", "thin": "LoSAC-lean, low rank"}
AUTOMATIC = "LoSAC-lean, automatic step"


def ranked(parts: Parts) -> Numbers:
    """Return, for each partition, who needs the fewest rounds and bytes, and what LoSAC needs."""
    if STUDY not in parts:
        raise LookupError(f"{STUDY} has no published results")
    found: dict[str, Any] = {"runs": len(SETTINGS) * 20}
    for short, partition in SETTINGS.items():
        numbers = of_partition(parts, partition)
        found |= {f"{name}_{short}": value for name, value in numbers.items()}
    found["methods"] = len(table(parts, STUDY, f"digits-{SETTINGS['s']}-10"))
    times = [float(found[f"sparse_times_{short}"]) for short in ("s", "i")]
    found |= {"least": min(times), "most": max(times), "apart": 100 * (float(found["thin_d"]) / found["mb_d"] - 1)}
    found["collapsed"] = sum(found[f"collapsed_{short}"] for short in SETTINGS)
    return found


def of_partition(parts: Mapping[str, Part], partition: str) -> dict[str, Any]:
    """Return the numbers of one partition."""
    rows = {row["method"]: row for row in table(parts, STUDY, f"digits-{partition}-10")}
    title = {"sorted": "sorted", "iid": "iid", "dirichlet0.3": "Dirichlet 0.3"}[partition]
    untuned = [row for row in table(parts, STUDY, "untuned") if f", {title}," in row["setting"]]
    (automatic,) = (row for row in untuned if row["method"] == AUTOMATIC)

    def spent(name: str, column: str) -> float:
        return float(rows[name][column].split()[0])

    def least(column: str, names: Sequence[str]) -> str:
        return min((name for name in names if rows[name][column]), key=lambda name: spent(name, column))

    quickest, cheapest = (least(column, list(rows)) for column in ("sustained rounds", "MB up"))
    forms: dict[str, str] = {}
    for name, method in FORMS.items():
        there = bool(rows[method]["MB up"])
        forms[name] = f"{spent(method, 'MB up'):.3f}" if there else "–"
        forms[f"{name}_times"] = f"{spent('LoSAC', 'MB up') / spent(method, 'MB up'):.0f}" if there else "–"
    return {
        "first": quickest,
        "rounds": spent(quickest, "sustained rounds"),
        "losac": spent("LoSAC", "sustained rounds"),
        "lean": spent("LoSAC-lean", "sustained rounds"),
        "cheap": cheapest,
        "mb": spent(cheapest, "MB up"),
        "losac_mb": spent("LoSAC", "MB up"),
        "automatic": float(automatic["sustained rounds"].split()[0]),
        "of_best": automatic["times the best tuned rival's"],
        "collapsed": automatic["collapsed"],
        **forms,
    }
