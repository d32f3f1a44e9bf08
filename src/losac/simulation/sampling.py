"""Who takes part in a round. A sampler is a function ``(round, rng, history) -> client ids``; rounds count from 0.

The generator is made from the seed and the round alone, so that a run can be resumed, cut in pieces or repeated on
another engine with the same clients. Drawing S of N costs in proportion to S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Ids = Sequence[int] | np.ndarray


class Sampler(Protocol):
    """What a sampler is called with; a plain function serves."""

    def __call__(self, round_index: int, rng: np.random.Generator, history: Any, /) -> Ids:
        """Return the clients of a round, without repetition and at most the planned number."""


@dataclass(frozen=True)
class Uniform:
    """S of N clients, uniformly without replacement."""

    clients: int
    sampled: int

    def __call__(self, round_index: int, rng: np.random.Generator, history: Any = None) -> np.ndarray:
        """Draw the clients of a round."""
        if self.sampled == self.clients:
            return np.arange(self.clients)
        return np.asarray(rng.choice(self.clients, self.sampled, replace=False))


@dataclass(frozen=True)
class Weighted:
    """S of N clients without replacement, with probabilities in proportion to the weights.

    No algorithm here corrects for unequal probabilities: clients drawn more often count more.
    """

    weights: np.ndarray
    sampled: int

    def __call__(self, round_index: int, rng: np.random.Generator, history: Any = None) -> np.ndarray:
        """Draw the clients of a round."""
        p = np.asarray(self.weights, float)
        return np.asarray(rng.choice(len(p), self.sampled, replace=False, p=p / p.sum()))


@dataclass(frozen=True)
class Fixed:
    """Given lists of clients, used in turn and again from the start when they run out."""

    lists: Sequence[Ids]

    def __call__(self, round_index: int, rng: np.random.Generator, history: Any = None) -> Ids:
        """Return the list of the round."""
        return self.lists[round_index % len(self.lists)]


@dataclass(frozen=True)
class Available:
    """S uniformly from those available: ``trace[round % len(trace), client]`` says who is; all, if fewer than S."""

    trace: np.ndarray
    sampled: int

    def __call__(self, round_index: int, rng: np.random.Generator, history: Any = None) -> np.ndarray:
        """Draw the clients of a round."""
        there = np.flatnonzero(self.trace[round_index % len(self.trace)])
        return there if len(there) <= self.sampled else np.asarray(rng.choice(there, self.sampled, replace=False))


def make_sampler(sampling: Any, clients: int, sampled: int, partial: bool = True) -> Sampler:
    """Read ``sampling=…``: "uniform", "all", a sampler or function, lists of ids, or a boolean trace [rounds, N].

    Where an algorithm needs every client in every round (``partial`` is false), only the first two can promise that.
    """
    if not partial and sampling is not None and not isinstance(sampling, str):
        raise ValueError("this algorithm needs every client in every round: leave sampling at 'uniform' or 'all'")
    if sampling is None or (isinstance(sampling, str) and sampling == "uniform"):
        return Uniform(clients, sampled)
    if isinstance(sampling, str) and sampling == "all":
        return Uniform(clients, clients)
    if isinstance(sampling, str):
        raise ValueError(f"sampling={sampling!r} must be 'uniform', 'all', lists of client ids, a trace, or a function")
    if callable(sampling):
        return sampling
    if isinstance(sampling, np.ndarray) and sampling.dtype == bool:
        if sampling.ndim != 2 or sampling.shape[1] != clients:
            raise ValueError(f"an availability trace needs the shape [rounds, {clients}], not {sampling.shape}")
        return Available(sampling, sampled)
    return Fixed([np.atleast_1d(np.asarray(ids)) for ids in sampling])


def draw_clients(
    sampler: Sampler, seed: int, first: int, rounds: int, clients: int, sampled: int, history: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids [rounds, S] of some rounds and the mask of those that take part; checks what a sampler says."""
    ids, active = np.zeros((rounds, sampled), np.int32), np.zeros((rounds, sampled), bool)
    for r in range(rounds):
        chosen = np.asarray(sampler(first + r, np.random.default_rng([seed, first + r]), history), np.int64)
        if len(chosen) == 0 or len(chosen) > sampled or len(np.unique(chosen)) < len(chosen):
            raise ValueError(
                f"round {first + r}: the sampler chose {chosen.tolist()[:10]}; it must choose between 1 and "
                f"clients_per_round={sampled} different clients"
            )
        if chosen.min() < 0 or chosen.max() >= clients:
            raise ValueError(f"round {first + r}: the sampler chose a client outside 0 … {clients - 1}")
        ids[r, : len(chosen)], active[r, : len(chosen)] = chosen, True
    return ids, active
