"""The numbers that sentences quote: what the studies' results say, one function for each study."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from losac_reproduction.frame import cells
from losac_reproduction.methods import name_of
from losac_reproduction.paper import TABLE_2
from losac_reproduction.problems import START
from losac_reproduction.results import Part
from losac_reproduction.studies.fair import lines_of
from losac_reproduction.studies.table2 import CellRuns, unstable
from losac_reproduction.words import known, mean

if TYPE_CHECKING:
    import pandas as pd

Parts = Mapping[str, Part]
Numbers = Mapping[str, Any]
SETS = ("mnist", "har", "esr")
ILL = 0.98
"""The factor per round from which a quadratic counts as ill-conditioned: those of the two kinds lie far apart."""


def table(parts: Parts, study: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a study's table by the names of its columns; none where it is not there."""
    tables = parts[study].findings.tables if study in parts else ()
    return [dict(zip(each.columns, row)) for each in tables if each.name == name for row in each.rows]


def ordinal(place: int) -> str:
    """Return a place as 1st, 2nd, 3rd, 4th.

    >>> [ordinal(place) for place in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    last = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th") if place % 100 not in (11, 12, 13) else "th"
    return f"{place}{last}"


def listed(names: Sequence[str]) -> str:
    """Return names as a list in words.

    >>> listed(["A", "B", "C"]), listed(["A"])
    ('A, B and C', 'A')
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names) or "none"


def _average(values: np.ndarray, of: Any) -> float:
    """Return the mean or median of the values that there are; NaN where there is none."""
    there = known(values.tolist())
    return float(of(there)) if there else float("nan")


def table_2(parts: Parts) -> Numbers:
    """Return in how many cells of Table 2 LoSAC needs fewer rounds, and by how much, by first crossing and "
    "sustained."""
    frame, by = parts["table2"].stored.frame, ("data", "method", "m", "t")
    found = {name: cells(frame, name, by, start=START) for name in ("first", "stayed", "loss")}
    places = [key for key in found["first"] if key[1] == "losac"]

    def ratio(name: str, above: str, below: str) -> np.ndarray:
        pairs = [((d, above, m, t), (d, below, m, t)) for d, _, m, t in places]
        return np.array([mean(found[name][a]) / mean(found[name][b]) for a, b in pairs])

    numbers: dict[str, Any] = {"cells": len(places), **_unstable(frame)}
    for name in ("first", "stayed"):
        for rival in ("scaffold", "long"):
            lead = ratio(name, rival, "losac")
            numbers |= {f"{name}_{rival}": int(np.sum(lead > 1)), f"{name}_{rival}_lead": _average(lead, np.mean)}
            for data in SETS:
                mine = [k for k, key in enumerate(places) if key[0] == data]
                numbers |= {f"{name}_{rival}_{data}": int(np.sum(lead[mine] > 1)), f"cells_{data}": len(mine)}
    for rival in ("scaffold", "long"):
        ends = ratio("loss", "losac", rival)
        numbers[f"lower_{rival}"] = _average(ends, np.median)
        numbers["ended" if rival == "scaffold" else "ended_long"] = int(np.isfinite(ends).sum())
    for data in SETS:
        paper = [key for key in TABLE_2 if key[:2] == (data, "losac")]
        wins = [TABLE_2[key].rounds < TABLE_2[data, "scaffold", *key[2:]].rounds for key in paper]
        numbers[f"paper_{data}"] = sum(wins)
    return numbers


def _unstable(frame: pd.DataFrame) -> Numbers:
    """Return the first of LoSAC's cells in Table 2 of which a seed diverges, and the first that falls below 85 %."""
    cases = [one for one in unstable(CellRuns(frame)) if one.method == "losac"]
    lost = next((one for one in cases if one.lost), None)
    low = next((one for one in cases if one.ends), None)
    numbers: dict[str, Any] = {"unstable": "; ".join(one.told for one in cases) or "no run diverged"}
    if lost is not None:
        numbers |= {"lost_m": lost.m, "lost_t": lost.t, "lost": lost.lost, "seeds": lost.seeds}
    if low is not None:
        numbers |= {"low_m": low.m, "low_t": low.t, "low": min(low.ends)}
    return numbers


def _place(row: Mapping[str, Any]) -> int:
    """Return LoSAC's place, in any of its variants, by a row of the table of winners."""
    return int(row["LoSAC's best place"].rpartition(": ")[2].split()[0])


def tuned(parts: Parts, study: str, partition: str) -> Numbers:
    """Return places of LoSAC in the tuned comparison, who leads, and the rounds of SCAFFOLD over those of LoSAC.

    All by sustained rounds; by first crossings, and by sustained bytes, where the name says so.
    """
    numbers: dict[str, Any] = {}
    lines = lines_of(parts[study].stored.frame)
    winners = {(row["data"], row["criterion"]): row for row in table(parts, study, "winners")}
    for data in SETS:
        rows = table(parts, study, f"{data}-{partition}")
        names = [row["method"].removesuffix(" (all clients)") for row in rows]
        mine = {name_of(line.method): line for line in lines[data, partition]}
        rounds, first = (
            {name: one.mean for name, line in mine.items() if (one := getattr(line, kind)["round"]) is not None}
            for kind in ("stayed", "first")
        )
        ahead: dict[tuple[Any, Any, Any], str] = {}
        for name, row in zip(names, rows):
            if "(all clients)" not in row["method"] and name != "S-Local-SVRG":
                same = row["sustained rounds"], row["rounds to the first crossing"], row["accuracy, %"]
                ahead.setdefault(same, name)
        sampled = list(ahead.values())
        crossed = [first[name] for name in sampled if name in first]
        settings = next(line.about["best"] for line in lines[data, partition] if line.method == "losac")
        numbers |= {
            "methods": len(names),
            f"rule_{data}": ordinal(names.index("LoSAC (by rule)") + 1),
            f"losac_{data}": ordinal(names.index("LoSAC") + 1),
            f"sampled_{data}": ordinal(sampled.index("LoSAC") + 1),
            f"lead_{data}": listed([name.replace("(by rule)", "by rule") for name in sampled[:3]]),
            f"first_{data}": sampled[0],
            f"rounds_{data}": rounds[sampled[0]],
            f"own_{data}": rounds["LoSAC"],
            f"eta_{data}": f"{settings['step_size']:.0e}".replace("e-0", "e-"),
            f"gamma_{data}": f"{settings['server_step']:.2g}",
            f"ratio_{data}": rounds["SCAFFOLD"] / rounds["LoSAC"],
            f"crossing_{data}": first["SCAFFOLD"] / first["LoSAC"],
            f"losac_crossing_{data}": ordinal(1 + sum(value < first["LoSAC"] for value in first.values())),
            f"rule_crossing_{data}": ordinal(1 + sum(value < first["LoSAC (by rule)"] for value in first.values())),
            f"sampled_crossing_{data}": ordinal(1 + sum(value < first["LoSAC"] for value in crossed)),
            f"bytes_place_{data}": ordinal(_place(winners[data.upper(), "sustained bytes"])),
            f"bytes_{data}": winners[data.upper(), "sustained bytes"]["best"],
            f"loss_{data}": winners[data.upper(), "test loss"]["best"],
        }
    equal = [
        data.upper()
        for data in SETS
        if "LoSAC (by rule)"
        in (row := winners[data.upper(), "accuracy"])["best"] + (row["not told apart from it"] or "")
    ]
    older = " (ESR with the preprocessing of then, see `fair`)" if parts[study].stored.note else ""
    return numbers | {"accurate": listed(equal), "older": older}


def non_iid(parts: Parts) -> Numbers:
    """Return the numbers of ``fair``."""
    return tuned(parts, "fair", "sorted")


def iid(parts: Parts) -> Numbers:
    """Return the numbers of ``fair-iid``."""
    return tuned(parts, "fair-iid", "iid")


def _method(name: str) -> str:
    """Return a method's name without its variant: ``LoSAC`` for ``LoSAC, exact, δ = 1``."""
    return name.partition(",")[0].partition(" (")[0]


def theorem_1(parts: Parts) -> Numbers:
    """Return the rounds and factors of the methods that reach the optimum, and where the others stop."""
    numbers: dict[str, Any] = {}
    sooner, stops, factors = [], [], []
    exact: set[str] = set()
    for problem in ("quadratic", "a9a", "w8a"):
        rows = {row["method"]: row for row in table(parts, "theorem1", f"rates-{problem}")}
        numbers[problem] = rows["LoSAC"]["rounds to 1e-10"]
        if "S-Local-SVRG" in rows:
            sooner.append(rows["LoSAC"]["rounds to 1e-10"] / rows["S-Local-SVRG"]["rounds to 1e-10"])
        stops += [leading_float(row["else ends at"]) for row in rows.values() if row["rounds to 1e-10"] is None]
        factors += [float(rows[name]["factor per round"]) for name in rows if name.startswith("LoSAC")]
        reach = [name for name, row in rows.items() if row["rounds to 1e-10"] is not None]
        numbers[f"linear_{problem}"] = sum(name.startswith("LoSAC") for name in reach)
        exact |= {_method(name) for name in reach}
    methods = {_method(row["method"]) for row in table(parts, "theorem1", "rates-quadratic")}
    return numbers | {
        "methods": len(methods), "after": _after(parts), "exact": listed(sorted(exact)),
        "soonest": min(sooner), "latest": max(sooner), "stop": min(stops),
        "best": min(factors), "worst": max(factors), "tried": len(factors),
        "linear": sum(numbers[f"linear_{problem}"] for problem in ("quadratic", "a9a", "w8a")),
    }  # fmt: skip


def _after(parts: Parts) -> int:
    """Return after how many rounds the rates were read off."""
    return int(parts["theorem1"].stored.frame["rounds"].max())


def leading_float(cell: Any) -> float:
    """Return a cell such as ``9.2e-03`` as a number; infinity where it has none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("inf")


def damped(parts: Parts) -> Numbers:
    """Return how the rule for δ compares with the paper's scaling and with δ = 1."""
    against = table(parts, "damped", "against-paper")
    rules = {row["rule"]: row for row in table(parts, "damped", "rules")}
    quadratics = next(each for each in parts["damped"].findings.tables if each.name == "quadratics")
    hard = [row for row in quadratics.rows if leading_float(row[-2]) > ILL]
    best = {name: Counter(str(row[quadratics.columns.index(name)]) for row in hard).most_common(1)[0][0]
            for name in ("measured best δ", "its length")}  # fmt: skip
    lower = [leading_float(row["by rule: loss"]) < leading_float(row["the paper's scaling: loss"]) for row in against]
    return {
        "maps": len(table(parts, "damped", "settings")), "settings": len(against), "lower": sum(lower),
        "delta": best["measured best δ"], "length": best["its length"],
        "unbiased": float(rules["δ = 1, unbiased"]["best length, mean"]),
    }  # fmt: skip


def leakage(parts: Parts) -> Numbers:
    """Return how well each method's rows are recovered, by model and rows of a client, and the controls."""
    numbers: dict[str, Any] = {}
    for row in table(parts, "leakage", "audit"):
        if row["data"] == "MNIST":
            where = f"{'logistic' if row['model'].startswith('logistic') else 'network'}_{row['rows']}"
            name = attacked(row["method"])
            numbers |= {
                f"{name}_{where}": leading_float(row["its PSNR"]), f"{name}_share_{where}": row["recognised"],
                f"control_{where}": leading_float(row["no attack"]),
            }  # fmt: skip
            if name == "dsgd":
                numbers[f"dlg_{where}"] = abs(round(leading_float(row["paper's DLG"])))
    evidence = " ".join(claim.evidence for claim in parts["leakage"].findings.claims)
    (numbers["error"],) = set(re.findall(r"to (\S+) in double precision", evidence))
    return numbers


def attacked(method: str) -> str:
    """Return a method of the studies on leakage as a name.

    >>> attacked("LoSAC, T = 1, M = 5")
    'losac_t1_m5'
    """
    return re.sub(r"\W+", "_", method.lower().replace(" = ", ""))


def privacy(parts: Parts) -> Numbers:
    """Return what compression and noise do to the recovery, and what noise costs against neither clipping nor noise."""
    numbers: dict[str, Any] = {}
    plain: dict[str, float] = {}
    for row in table(parts, "privacy", "compression"):
        name = attacked(row["method"])
        if row["upload"] == "as it is":
            plain[name] = leading_float(row["accuracy"].removesuffix(" %"))
        else:
            upload = {"8 bits": "bits", "10 % largest": "largest"}.get(row["upload"], "random")
            numbers[f"{name}_{upload}"] = leading_float(row["recovered, dB"])
    for row in table(parts, "privacy", "noise"):
        name, accuracy = attacked(row["method"]), leading_float(row["accuracy"].removesuffix(" %"))
        if row["noise at"] == "nowhere":
            numbers[f"{name}_clipped"] = plain[name] - accuracy
        elif (row["noise at"], row["z"]) == ("client", "0.03"):
            numbers |= {f"{name}_cost": plain[name] - accuracy, "z": row["z"]}
            numbers["epsilon"] = f"{leading_float(row['ε, server']):,.0f}".replace(",", " ")
    return numbers
