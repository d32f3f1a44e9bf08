"""The cells of Table 1 as the paper prints them, and whether what was measured agrees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.report.profile import DRIFT_TOLERANCE

STEPS, ROUNDS, EVALUATIONS = 5, 4000, 20
LEVELS = ("Low", "Medium", "High", "Very high")
NEAR, SAME = 1e-9, 1e-8
"""A distance that counts as the optimum's, and a relative one that counts as the gradient's."""


class Row(NamedTuple):
    """A row of the paper's Table 1.

    ``full``: its complexity has the n_i of a full gradient; ``single``: it has one step instead of K.
    """

    name: str
    update: str
    complexity: str
    full: bool
    single: bool
    divergence: str
    communication: str
    defends: bool
    partial: bool


PAPER = {
    "fedavg": Row("FedAvg", "several SGD steps", "O(Kd)", False, False, "no", "Low", True, True),
    "scaffold": Row("SCAFFOLD", "several corrected SGD steps", "O(Kd)", False, False, "yes", "High", True, True),
    "mime_svrg": Row("MimeSVRG", "several SVRG steps", "O(Kd + n_i d)", True, False, "yes", "High", False, True),
    "fedprox": Row("FedProx", "one proximal step", "O(d)", False, True, "limited", "Medium", True, False),
    "mfl": Row("MFL", "momentum descent", "O(Kd)", False, False, "no", "Low", False, False),
    "losac": Row("LoSAC", "several global SAGA steps", "O(Kd)", False, False, "yes", "Very high", True, True),
}


Cell = tuple[str, bool | None]
"""What was measured beside the paper's entry, and whether they agree."""


def judge(name: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Cell]:
    """Return every cell of a row."""
    own, paper = found[name], PAPER[name]
    full = f" + {own['full_gradients']:g} n_i" if own["full_gradients"] else ""
    gradients = f"{own['gradients_per_step']:g} K n_i/M{full}"
    complexity = (own["full_gradients"] > 0) == paper.full and not (paper.single and own["steps"] > 1)
    return {
        "local complexity": (f"{gradients}; paper {paper.complexity}", complexity),
        "model divergence": _divergence(own, paper, found),
        "speed": _speed(own),
        "communication": _communication(name, found),
        "defends against DLG": _defence(own, paper),
        "partial participation": (
            f"{yes(own['partial'])}; paper {yes(paper.partial)}", own["partial"] == paper.partial,
        ),
    }  # fmt: skip


def yes(value: bool) -> str:
    """Return the word for it."""
    return "yes" if value else "no"


def mark(right: bool | None) -> str:
    """Return the sign of agreement."""
    return "·" if right is None else "=" if right else "≠"


def _divergence(own: Mapping[str, Any], paper: Row, found: Mapping[str, Mapping[str, Any]]) -> Cell:
    distance, beside = own["drift"], found["fedavg"]["drift"]
    if distance is None:
        return f"diverged; paper {paper.divergence}", None
    level = "yes" if distance <= DRIFT_TOLERANCE else "no"
    if level == "no" and beside and distance < 0.9 * beside:
        level = "limited"
    return f"{level} ({distance:.2g}); paper {paper.divergence}", level == paper.divergence


def _speed(own: Mapping[str, Any]) -> Cell:
    series = own["distances"]
    if not series:
        return "not measured; paper O(1/R)", None
    if series[-1] > NEAR:
        return f"stops at {series[-1]:.2g}; paper O(1/R)", None
    last = next(place for place, value in enumerate(series) if value <= NEAR)
    rate = (max(series[last], 1e-300) / series[0]) ** (1 / (last * ROUNDS // EVALUATIONS))
    return f"linear, ×{rate:.4f} a round or faster; paper O(1/R)", True


def _communication(name: str, found: Mapping[str, Mapping[str, Any]]) -> Cell:
    own, paper = found[name], PAPER[name]
    size = f"{own['up']:g} up, {own['down']:g} down"
    speeds = {other: fastest(result["race"]) for other, result in found.items()}
    if not any(speeds.values()):
        return f"{size}; paper {paper.communication}", None
    mine = speeds[name]
    others = [other for other in found if PAPER[other].communication != paper.communication]
    right = sum(
        (_rounds(mine) < _rounds(speeds[other]))
        == (LEVELS.index(paper.communication) > LEVELS.index(PAPER[other].communication))
        for other in others
    )
    total = own["up"] + own["down"]
    text = f"{mine[0]:.0f} rounds (η = {mine[1]:g}), {mine[0] * total:.0f} models" if mine else "never"
    orders = f"{right} of {len(others)} orders as in the paper ({paper.communication})"
    return f"{size}; {text}; {orders}", right == len(others)


def _rounds(speed: Sequence[float] | None) -> float:
    return speed[0] if speed else math.inf


def _defence(own: Mapping[str, Any], paper: Row) -> Cell:
    """Judge the paper's own criterion, that the gradient is not sent, with several local steps as it runs them."""
    leaks = {
        steps: "sent" if found["message"] < SAME else "known" if found["known"] < SAME else "hidden"
        for steps, found in own["sent"].items()
    }
    shown = ", ".join(f"{where} at T = {steps}" for steps, where in leaks.items())
    several = leaks.get(str(STEPS))
    agrees = None if several is None else (several == "hidden") == paper.defends
    return f"∇f_i(x) {shown}; paper {yes(paper.defends)}", agrees


def fastest(runs: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Return the least mean rounds to the target of any step size that all seeds reach it with, and that step size."""
    rounds: dict[float, list[float]] = {}
    for run in runs:
        rounds.setdefault(run["step_size"], []).append(run["reached"]["round"] if run["reached"] else math.inf)
    best = min(((float(np.mean(values)), eta) for eta, values in rounds.items()), default=(math.inf, 0.0))
    return best if math.isfinite(best[0]) else None
