"""Maps of the final loss over length and δ, and the rules for δ that are held against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.losac import damping
from losac.reproduce.study import Measured

CEILING = 3.0
"""A loss above the start's counts as this, and so does a divergence."""


class Map(NamedTuple):
    """The final losses of a setting, [lengths, δ]."""

    setting: Mapping[str, Any]
    lengths: np.ndarray
    deltas: np.ndarray
    loss: np.ndarray

    @property
    def refreshed(self) -> float:
        """The share of the table that a round renews."""
        s = self.setting
        return float(s["sampled"] / s["clients"] * (1 - (1 - 1 / s["blocks"]) ** s["steps"]))

    @property
    def name(self) -> str:
        """The setting in full."""
        s = self.setting
        return (
            f"{s['data'].upper()} {s['partition']} N={s['clients']} S={s['sampled']} M={s['blocks']} T={s['steps']} "
            f"γ={s['gamma']:g}"
        )

    @property
    def short(self) -> str:
        """The data, how they are dealt, and only what differs from the base setting."""
        s = self.setting
        parts = [s["data"].upper(), "IID" if s["partition"] == "iid" else "non-IID"]
        return ", ".join(parts + [f"{_SYMBOLS[k]} = {s[k]:g}" for k, usual in USUAL.items() if s[k] != usual])


USUAL = {"clients": 100, "sampled": 10, "blocks": 5, "steps": 5, "gamma": 1.0}
BASE = "where not said otherwise N = 100, S = 10, M = 5, T = 5 and γ = 1"
_SYMBOLS = {"clients": "N", "sampled": "S", "blocks": "M", "steps": "T", "gamma": "γ"}

RULES: dict[str, Callable[[Map], float]] = {
    "√(S/N)/5, the default": lambda m: float(damping(m.setting["clients"], m.setting["sampled"])),
    "√p/5": lambda m: m.refreshed**0.5 / 5,
    "p": lambda m: m.refreshed,
    "0.06": lambda m: 0.06,
    "S/(NM), the paper's": lambda m: m.setting["sampled"] / (m.setting["clients"] * m.setting["blocks"]),
    "1, unbiased": lambda m: 1.0,
}
"""δ by rule; p is the share of the table that a round renews."""


def map_of(one: Measured) -> Map:
    """Return a job's losses as a map."""
    arguments = one.arguments
    loss = np.array([[CEILING if v is None else min(v, CEILING) for v in row] for row in one.result["loss"]], float)
    names = ("data", "partition", "clients", "sampled", "blocks", "steps", "gamma")
    setting = {name: arguments[name] for name in names}
    return Map(setting, np.array(arguments["lengths"]), np.array(arguments["deltas"]), loss)


def at(one: Map, length: float, delta: float) -> float:
    """Return the loss at a point, log-bilinear between those measured, the nearest edge beyond them."""
    keep = one.deltas > 0
    x, y, z = np.log(one.lengths), np.log(one.deltas[keep]), np.log(one.loss[:, keep])
    by_delta = [np.interp(np.log(delta), y, row) for row in z]
    return float(np.exp(np.interp(np.log(length), x, by_delta)))


def regret(one: Map, length: float, delta: float) -> float:
    """Return how much greater the loss at a point is than the best of its map, as a ratio."""
    return at(one, length, delta) / float(one.loss.min())
