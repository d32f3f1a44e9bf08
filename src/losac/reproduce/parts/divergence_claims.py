"""What the paper says of drift and of estimates of ∇f, judged by the looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from losac.reproduce.parts.divergence_looks import Key, Look
from losac.reproduce.study import Claim, Verdict

MOST = 0.8
"""The share of the looks in which something must be so, to be said of all."""


def claims(found: Mapping[Key, Look]) -> list[Claim]:
    """Judge what can be judged by the methods that were measured."""
    made = (_accuracy(found), _drift(found), _bias(found), _stale(found))
    return [claim for claim in made if claim is not None]


def _pairs(
    found: Mapping[Key, Look], first: str, second: str, value: Callable[[Look], float], where: str | None = None
) -> list[tuple[float, float]]:
    """Return a quantity of two methods wherever both were looked at."""
    return [
        (value(found[key]), value(found[other]))
        for key in found
        if key.member == first and where in (None, key.partition) and (other := key._replace(member=second)) in found
    ]


def _share(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.mean([a < b for a, b in pairs])) if pairs else 0.0


def _ratio(pairs: Iterable[tuple[float, float]]) -> float:
    return float(np.exp(np.median([np.log(a / b) for a, b in pairs])))


def _accuracy(found: Mapping[Key, Look]) -> Claim | None:
    angle = _pairs(found, "losac", "scaffold", lambda look: -look.likeness)
    raw = _pairs(found, "losac", "scaffold", lambda look: float(np.mean(look.raw)))
    local = _pairs(found, "losac", "scaffold", lambda look: -float(np.mean(look.cosine)))
    exact = _pairs(found, "exact", "scaffold", lambda look: -look.likeness)
    if not angle:
        return None
    along = float(np.median([look.scalar[0] for key, look in found.items() if key.member == "losac"]))
    shares = _share(angle), _share(local), _share(raw)
    verdict: Verdict = "holds" if min(shares) >= MOST else "holds in part" if max(shares) >= MOST else "fails"
    unbiased = f" In the exact scaling with δ = 1 the cosine is {_both(exact)}." if exact else ""
    return Claim(
        "LoSAC estimates the global gradient more accurately than SCAFFOLD.",
        "Ablation, communication efficiency",
        verdict,
        f"The cosine between its direction and ∇f at the broadcast model is {_both(angle)}, with ∇f at the local model "
        f"{_both(local)}; as printed ‖d − ∇f‖ is {_ratio(raw):.2g} "
        f"times as large as SCAFFOLD's, with c = {along:.2g} along ∇f (its scaling alone gives MN/S).{unbiased}",
    )


def _both(pairs: Sequence[tuple[float, float]]) -> str:
    """Describe two cosines, which come with a minus sign so that smaller is better."""
    first, second = (-float(np.median(values)) for values in zip(*pairs))
    return f"{first:.2f} against {second:.2f} (median; larger in {_wins(pairs)} looks)"


def _wins(pairs: Sequence[tuple[float, float]]) -> str:
    return f"{sum(a < b for a, b in pairs)} of {len(pairs)}"


def _drift(found: Mapping[Key, Look]) -> Claim | None:
    pairs = _pairs(found, "losac", "fedavg", lambda look: look.drift[-1], "sorted")
    spread = _pairs(found, "losac", "fedavg", lambda look: look.spread[-1], "sorted")
    other = _pairs(found, "scaffold", "fedavg", lambda look: look.drift[-1], "sorted")
    if not pairs:
        return None
    return Claim(
        "LoSAC mitigates the model divergence on non-IID data.",
        "Handling model divergence",
        "holds" if _share(pairs) >= MOST else "holds in part" if _share(pairs) > 0 else "fails",
        f"Spread of the local models as a share of their way, against FedAvg's: {_ratio(pairs):.2g} times (median; "
        f"smaller in {_wins(pairs)} looks), SCAFFOLD's {_ratio(other):.2g} times. In absolute terms LoSAC's spread is "
        f"{_ratio(spread):.2g} times FedAvg's.",
    )


def _bias(found: Mapping[Key, Look]) -> Claim | None:
    pairs = _pairs(found, "fedsaga", "losac", lambda look: -look.likeness, "sorted")
    iid = _pairs(found, "fedsaga", "losac", lambda look: -look.likeness, "iid")
    local = _pairs(found, "fedsaga", "fedavg", lambda look: -look.likeness, "sorted")
    if not pairs:
        return None
    biased = sum(mine > other for mine, other in pairs)
    alike = f"; on IID data {_both(iid)}" if iid else ""
    return Claim(
        "FedSaga's variance reduction is local, and its direction biased from the global gradient.",
        "From FedSaga to LoSAC",
        "holds" if biased >= MOST * len(pairs) else "holds in part" if biased else "fails",
        f"On non-IID data the cosine between FedSaga's direction and ∇f against LoSAC's is {_both(pairs)}, against "
        f"FedAvg's {_both(local)}{alike}.",
    )


def _stale(found: Mapping[Key, Look]) -> Claim | None:
    names = {"losac": "LoSAC", "exact": "LoSAC (exact, δ = 1)", "scaffold": "SCAFFOLD", "mime_svrg": "MimeSVRG"}
    ends = {m: [(look.cosine[0], look.cosine[-1]) for key, look in found.items() if key.member == m] for m in names}
    middle = {m: np.median(values, axis=0) for m, values in ends.items() if values}
    rivals = [m for m in ("scaffold", "mime_svrg") if m in middle]
    if "losac" not in middle or not rivals:
        return None
    lost = {m: float(1 - last / first) for m, (first, last) in middle.items()}
    stale, fresher = sum(lost[m] > 0.05 for m in rivals), lost["losac"] < min(lost[m] for m in rivals)
    verdict: Verdict = "holds" if stale == len(rivals) and fresher else "holds in part" if fresher or stale else "fails"
    shown = ", ".join(f"{names[m]} {first:.2f} → {last:.2f}" for m, (first, last) in middle.items())
    return Claim(
        "SCAFFOLD and Mime work with outdated information during the local steps, while LoSAC keeps it refreshed.",
        "Introduction, related work",
        verdict,
        f"Cosine between direction and ∇f at the first and at the last local step (medians over the looks): {shown}.",
    )
