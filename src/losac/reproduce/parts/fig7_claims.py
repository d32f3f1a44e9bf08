"""What the paper says about low-rank matrix estimation, judged from the runs of :mod:`losac.reproduce.parts.fig7`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.reproduce.problems import mean_or_none
from losac.reproduce.study import Claim, Verdict

MARGIN = 1.05
"""An error counts as larger than another where it is so by 5 %."""
LARGE = 1.5
"""An error counts as large beside another where it is half as much again, a rank where it is a quarter off, or two."""

Main = Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]
Goals = Mapping[int, Mapping[str, Any] | None]


class Judged(NamedTuple):
    """The summary and the claims."""

    summary: str
    claims: list[Claim]


def final(main: Main, method: str, metric: str) -> dict[int, float]:
    """Return a final metric by rank, infinite where a run diverged; ranks that were not run are left out."""
    found = {}
    for (name, rank), records in main.items():
        if name == method:
            value = mean_or_none([one["final"][metric] for one in records])
            found[rank] = np.inf if value is None else value
    return found


def claims(
    main: Main,
    goals: Goals,
    labels: Mapping[str, str],
    tuned: Mapping[str, tuple[float, ...]],
    longer: Mapping[float, Mapping[str, Any]],
    penalties: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Judged:
    """Judge each claim at the λ that all methods share.

    Args:
      main: the runs at that λ, by method and rank.
      goals: the exact optimum's error and rank, by rank.
      labels: the methods.
      tuned: each method's best λ, with its error and rank there, at rank 8.
      longer: SCAFFOLD's runs with other server steps, by γ, at rank 8.
      penalties: FedADMM's runs with the exact server step, one for each ρ, with some and with all clients, at rank 8.
    """
    error = {name: final(main, name, "error") for name in labels}
    rank = {name: final(main, name, "rank") for name in labels}
    shrunk = final(main, "scaffold", "rank after prox")
    ranks = sorted(error["losac"], reverse=True)
    rivals = [name for name in ("scaffold", "fedadmm") if error[name]]
    smallest = sum(all(error["losac"][r] <= error[name].get(r, np.inf) for name in rivals) for r in ranks)
    steps = {1.0: {"final": {"error": error["scaffold"][8], "rank": rank["scaffold"][8]}}, **longer}
    gamma, fair = min(((g, r["final"]) for g, r in steps.items() if r["final"]["error"] is not None),
                      key=lambda pair: pair[1]["error"])  # fmt: skip
    exact = [r for r in ranks if rank["losac"][r] == r]
    off = [r for r in ranks if abs(rank["scaffold"][r] - r) > max(2, r / 4)]
    larger = [r for r in ranks if error["scaffold"][r] > LARGE * error["losac"][r]]
    optima = {r: goal for r, goal in goals.items() if goal}
    found = [
        Claim(
            "LoSAC-Prox has the smallest recovery error.",
            "Low rank matrix estimation, Figure 7",
            _smallest(smallest, len(ranks), MARGIN * error["losac"][8] < fair["error"]),
            f"Smallest of the three in {smallest} of {len(ranks)} ranks. Errors for truths of rank {_ranks(ranks)}: "
            f"LoSAC {_list(error['losac'])}; SCAFFOLD {_list(error['scaffold'])}; FedADMM {_list(error['fedadmm'])}."
            + (f" LoSAC in the exact scaling, whose steps are as long as SCAFFOLD's: {_list(error['exact'])}."
               if error["exact"] else "")
            + (f" The exact optimum: {_list({r: g['error'] for r, g in optima.items()})}." if optima else "")
            + (f" For a truth of rank 8, SCAFFOLD at the best of {1 + len(longer)} server steps, γ = {gamma:g}: "
               f"{fair['error']:.3g} and rank {fair['rank']:g}." if longer else "")
            + _at_best(tuned, optima),
        ),
        Claim(
            "LoSAC-Prox finds the exact rank.",
            "Low rank matrix estimation, Figure 7",
            "holds" if len(exact) == len(ranks) else "holds in part" if exact else "fails",
            f"For truths of rank {_ranks(ranks)} it finds {_list(rank['losac'], 'g')}"
            + (f"; in the exact scaling {_list(rank['exact'], 'g')}" if rank["exact"] else "")
            + (f"; with the prox step as printed, which minimises f + (S/NM)Ψ, {_list(rank['printed'], 'g')}"
               if rank["printed"] else "") + ".",
        ),
        Claim(
            "SCAFFOLD works poorly: its error is large, and its rank differs significantly from the truth's.",
            "Low rank matrix estimation, Figure 7",
            "fails" if not off and not larger
            else "holds" if len(off) == len(larger) == len(ranks) else "holds in part",
            f"For truths of rank {_ranks(ranks)} it finds {_list(rank['scaffold'], 'g')} ({_list(shrunk, 'g')} after "
            f"one proximal step at the server); its error is {_ratios(error['scaffold'], error['losac'])} times "
            f"LoSAC's.",
        ),
        _participation(main, error, penalties),
    ]  # fmt: skip
    return Judged(_summary(ranks, error, rank, optima), found)


def _at_best(tuned: Mapping[str, tuple[float, ...]], optima: Goals) -> str:
    if not optima or not {"losac", "scaffold"} <= set(tuned):
        return ""
    ours, theirs = ("{1:.3g} and rank {2:g} at λ = {0:g}".format(*tuned[name]) for name in ("losac", "scaffold"))
    return f" For a truth of rank 8, each at the λ with its least error: LoSAC {ours}, SCAFFOLD {theirs}."


def _smallest(smallest: int, number: int, clearly: bool) -> Verdict:
    """Return the verdict from how often LoSAC's error is smallest, and whether SCAFFOLD's best step leaves it so."""
    if smallest < number:
        return "holds in part" if smallest else "fails"
    return "holds" if clearly else "holds only at equal step size"


def _participation(main: Main, error: Mapping[str, Mapping[int, float]], penalties: Mapping[str, Any]) -> Claim:
    """FedADMM with a tenth of the clients against all of them, after as many rounds and after as many visits."""
    text, where = "FedADMM is substantially degraded by partial participation.", "Low rank matrix estimation, Figure 7"
    pairs = [("fedadmm", "fedadmm-all"), ("fedadmm-exact", "fedadmm-exact-all")]
    pairs = [(some, every) for some, every in pairs if error[some] and set(error[every]) <= set(error[some])]
    pairs = [(some, every) for some, every in pairs if error[every]]
    if not pairs:
        return Claim(text, where, "not testable", "The short form does not run FedADMM with all clients.")
    parts, worse, cheaper = [], [], []
    for some, every in pairs:
        early = {r: _early(main[every, r], main[some, r][0]["curve"]["round"][-1] / 10) for r in error[every]}
        worse += [error[some][r] > LARGE * error[every][r] for r in early]
        cheaper += [error[some][r] > LARGE * early[r] for r in early]
        parts.append(
            f"{'as printed' if some == 'fedadmm' else 'exact server step'}: {_list(error[some])} with a tenth of the "
            f"clients, {_list(error[every])} with all, {_list(early)} with all after as many visits to each"
        )
    if len(penalties) == 2:
        sampled, full = (
            min(np.inf if r["diverged"] is not None else r["final"]["error"] for r in penalties[name])
            for name in ("fedadmm-exact", "fedadmm-exact-all")
        )
        worse.append(sampled > LARGE * full)
        parts.append(f"exact server step, each at its best ρ, rank 8: {_list({8: sampled})} and {_list({8: full})}")
    ranks = _ranks(sorted(error[pairs[0][0]], reverse=True))
    if not any(np.isfinite(error[every][r]) for _, every in pairs for r in error[every]):
        says = "With all clients FedADMM diverges at these T and η, so that there is nothing to be degraded from."
        return Claim(text, where, "not testable", f"{says} Error for truths of rank {ranks}, {'; '.join(parts)}.")
    verdict: Verdict = "holds" if all(cheaper) else "holds in part" if any(worse) else "fails"
    return Claim(text, where, verdict, f"Error for truths of rank {ranks}, {'; '.join(parts)}.")


def _early(records: Sequence[Mapping[str, Any]], at: float) -> float:
    """Return the error at a round."""
    values = []
    for one in records:
        rounds = np.array(one["curve"]["round"])
        values.append(one["curve"]["error"][int(np.argmin(abs(rounds - at)))] if rounds[-1] >= at else None)
    value = mean_or_none(values)
    return np.inf if value is None else value


def _summary(ranks: Sequence[int], error: Any, rank: Any, optima: Mapping[int, Any]) -> str:
    text = (
        f"At the same λ for all and for truths of rank {_ranks(ranks)}, LoSAC-Prox (paper's scaling, matched prox "
        f"step) ends at an error of {_list(error['losac'])} and a rank of {_list(rank['losac'], 'g')}; "
        f"SCAFFOLD-Prox at {_list(error['scaffold'])} and {_list(rank['scaffold'], 'g')}."
    )
    if optima:
        errors, found = ({r: goal[key] for r, goal in optima.items()} for key in ("error", "rank"))
        text += f" The exact optimum, which any exact method must reach, has {_list(errors)} and {_list(found, 'g')}."
    if error["feddualavg"]:
        text += f" FedDualAvg: {_list(error['feddualavg'])} and {_list(rank['feddualavg'], 'g')}."
    return text


def _list(values: Mapping[int, float], form: str = ".3g") -> str:
    if len(values) > 1 and not any(map(np.isfinite, values.values())):
        return "diverged at every rank"
    shown = [f"{values[r]:{form}}" if np.isfinite(values[r]) else "diverged" for r in sorted(values, reverse=True)]
    return ", ".join(shown) or "not run"


def _ratios(a: Mapping[int, float], b: Mapping[int, float]) -> str:
    return _list({r: a[r] / b[r] for r in a if r in b and b[r] > 0}, ".2f")


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
