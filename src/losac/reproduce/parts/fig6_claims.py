"""What the paper says about leakage, judged from the attacks of :mod:`losac.reproduce.parts.fig6`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from losac.reproduce.study import Claim, Verdict

LARGE = 0.5
"""By how much of its start the distance must fall for the data to be called obtained: half."""
AS_GOOD = 0.5
"""An attack succeeds where it gains at least this share of what it gains on DSGD, both over the attack on zero."""

Cases = Mapping[tuple[str, str, str], Any]


class Judged(NamedTuple):
    """The summary and the claims."""

    summary: str
    claims: list[Claim]


def falls(cases: Cases, method: str, target: str) -> dict[tuple[str, str], float]:
    """Return by which share the distance to the data falls, in each case; minus infinity where the attack blows up."""
    found = {}
    for (data, partition, name), case in cases.items():
        if name == method and target in case["targets"]:
            attack = case["targets"][target]["attacks"][0]
            ends = [
                -np.inf if after is None else 1 - after / before for before, after in zip(attack["from"], attack["to"])
            ]
            found[data, partition] = float(np.mean(ends))
    return found


def claims(cases: Cases, names: Mapping[str, str]) -> Judged:
    """Judge each claim from the first variant of the attacks: normal start, known labels."""
    direct = {name: falls(cases, name, "gradient") for name in ("dsgd", "mime_svrg")}
    printed = {name: falls(cases, name, "printed") for name in ("fedavg", "scaffold", "losac")}
    signed = {name: falls(cases, name, "signed") for name in printed}
    summed = {name: falls(cases, name, "total") for name in ("scaffold", "losac", "losac-1")}
    sent = [share for found in direct.values() for share in found.values()]
    matched = [case["targets"]["gradient"]["attacks"][0]["matched"] for key, case in cases.items() if key[2] in direct]
    best = {name: _best([signed.get(name, {}), summed.get(name, {})]) for name in printed}
    blind = falls(cases, "dsgd", "nothing")
    gain = {k: direct["dsgd"][k] - blind[k] for k in blind}
    as_good = {name: sum(best[name][k] - blind[k] >= AS_GOOD * gain[k] for k in gain) for name in best}
    number = len(direct["dsgd"])
    exact = max(case["total against the last gradient"] for key, case in cases.items() if key[2].startswith("losac"))
    at_x = max(case["targets"]["total"]["distance to the gradient"] for k, case in cases.items() if k[2] == "losac-1")
    fewest = min(case["rows"] for case in cases.values())
    alike = all(summed["losac-1"][k] - blind[k] >= AS_GOOD * gain[k] for k in gain)
    sizes = "; ".join(
        f"{data.upper()} {case['rows'] * case['features']:,} numbers from {case['features'] + 1}"
        for data, case in {key[0]: case for key, case in cases.items()}.items()
    )
    found = [
        Claim(
            "DSGD and MimeSVRG are vulnerable: the estimated data approaches the true data more and more.",
            "Defense against DLG, Figure 6",
            "fails" if min(sent) <= 0 else "holds" if min(sent) >= LARGE else "holds in part",
            f"‖D̂ − D‖_F falls in {sum(share > 0 for share in sent)} of {len(sent)} cases, by {_range(sent)} of its "
            f"start. {_zero(cases)}",
        ),
        Claim(
            "By matching the gradient the attacker obtains the client's data: when the optimum is reached, D′ = D.",
            "Definition 1",
            "holds" if min(sent) >= LARGE else "fails",
            f"At most {100 * max((m for m in matched if m is not None), default=0):.0f} % of the mismatch is left, "
            f"while {_range([1 - s for s in sent])} of the distance remains: the gradient cannot tell the data "
            f"({sizes}).",
        ),
        Claim(
            "Under DLG the estimates from FedAvg, SCAFFOLD and LoSAC diverge more and more from the true data.",
            "Defense against DLG, Figure 6",
            _defended([*printed.values()], [*signed.values()]),
            f"On (x⁺ − x)/(ηL) as printed, minus a gradient, the distance rises in {_rises(printed)} cases "
            f"(changes of {_each(printed, names)}). With the sign of a gradient it rises in {_rises(signed)} "
            f"({_each(signed, names)}; DSGD {_signed(direct['dsgd'].values())}).",
        ),
        Claim(
            "LoSAC cannot be attacked by DLG, since its gradients belong to local models that stay with the client and "
            "only increments are sent.",
            "Defense ability to the gradient leakage",
            "fails" if exact < 1e-9 and alike else "holds in part" if exact < 1e-9 else "holds",
            f"At M = 1 the sum of a client's Δφ is its last local gradient to {exact:.0e}, and with one local step the "
            f"gradient at the broadcast x to {at_x:.0e}. The same attack on it changes the distance by "
            f"{_signed(summed['losac'].values())} (L = 5) and {_signed(summed['losac-1'].values())} (L = 1), on DSGD "
            f"by {_signed(direct['dsgd'].values())}.",
        ),
        Claim(
            "FedAvg, SCAFFOLD and LoSAC defend against DLG, MimeSVRG does not.",
            "Table 1, column DaDLG",
            "fails" if all(as_good[name] == number for name in as_good)
            else "holds" if not any(as_good.values()) else "holds in part",
            f"An attack on what the server receives gains at least {100 * AS_GOOD:.0f} % of what it gains on DSGD "
            f"(over the attack on zero, which changes the distance by {_signed(blind.values())}) in "
            + ", ".join(f"{as_good[name]} of {number} cases on {names[name]}" for name in as_good)
            + ". FedProx and MFL, also in the column, were not attacked.",
        ),
    ]  # fmt: skip
    totals = [*summed["losac"].values(), *summed["losac-1"].values()]
    summary = (
        f"Where the gradient itself is sent, the paper's attack brings the guess {_range(sent)} nearer to the data, "
        f"no more: the data has at least {fewest} times as many numbers as the gradient. On (x⁺ − x)/(ηL) of FedAvg, "
        f"SCAFFOLD and LoSAC the distance changes by {_signed(_all(printed))} as printed, {_signed(_all(signed))} "
        f"with the sign of a gradient. At M = 1 the sum of what a client of LoSAC sends is its last local gradient (to "
        f"{exact:.0e}), and the attack on it changes the distance by {_signed(totals)}."
    )
    return Judged(summary, found)


def _defended(printed: list[dict[Any, float]], signed: list[dict[Any, float]]) -> Verdict:
    rises = [all(share <= 0 for found in side for share in found.values()) for side in (printed, signed)]
    if all(rises):
        return "holds"
    return "holds in part" if any(share <= 0 for found in (*printed, *signed) for share in found.values()) else "fails"


def _best(found: list[dict[Any, float]]) -> dict[Any, float]:
    keys = {key for one in found for key in one}
    return {key: max(one.get(key, -np.inf) for one in found) for key in keys}


def _zero(cases: Cases) -> str:
    ends = [
        (np.mean([np.inf if after is None else after for after in attack["to"]]), case["norm"])
        for key, case in cases.items()
        if key[2] == "dsgd" and (attack := case["targets"]["gradient"]["attacks"][0])
    ]
    nearer = sum(end < norm for end, norm in ends)
    return f"It ends nearer than a guess of zeros in {nearer} of {len(ends)} cases on DSGD."


def _all(found: Mapping[str, Mapping[Any, float]]) -> list[float]:
    return [share for one in found.values() for share in one.values()]


def _rises(found: Mapping[str, Mapping[Any, float]]) -> str:
    shares = _all(found)
    return f"{sum(share < 0 for share in shares)} of {len(shares)}"


def _each(found: Mapping[str, Mapping[Any, float]], names: Mapping[str, str]) -> str:
    return ", ".join(f"{names[name]} {_signed(one.values())}" for name, one in found.items())


def _range(shares: Iterable[float]) -> str:
    values = [100 * share for share in shares]
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"


def _signed(shares: Iterable[float]) -> str:
    values = [-100 * share for share in shares]
    if not all(np.isfinite(values)):
        return "more than any number"
    low, high = (f"{value:+.1f}".replace("-", "−") for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"
