"""What an experiment does where the user does not say: sensible for each data set, the paper's for the paper's."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Defaults:
    """The settings of an experiment; these are the paper's (N = 100, S = 10, T = 2, M = 5, η = 1e-4)."""

    model: str = "2nn"
    clients: int = 100
    clients_per_round: int = 10
    partition: str = "sorted"
    step_size: float = 1e-4
    local_steps: int = 2
    blocks: int = 5
    rounds: int = 500
    eval_every: int = 5
    target: float | None = 0.85


_PAPER = Defaults()
_MADE = replace(_PAPER, partition="iid", target=None, rounds=200, local_steps=5, eval_every=2)
_DIGITS = Defaults("softmax", 20, 5, "sorted", 1e-3, 10, 5, 200, 2, 0.9)
_KNOWN = {
    "digits": _DIGITS,
    "a9a": replace(_PAPER, model="logistic", rounds=200, target=0.8),
    "w8a": replace(_PAPER, model="logistic", rounds=200, target=0.97),
    "quadratic": replace(_MADE, model="linear", clients=10, clients_per_round=5, blocks=2, step_size=5e-3),
    "lowrank": replace(_MADE, model="linear", step_size=1e-6),
    "logistic": replace(_MADE, model="softmax", clients=20, clients_per_round=5, step_size=1e-3, target=0.6),
}


def defaults_for(data: str) -> Defaults:
    """Return the defaults of a data set."""
    return _KNOWN.get(data, _PAPER)
