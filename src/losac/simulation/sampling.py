"""Who takes part in a round. A sampler is a function ``(round, rng, history) -> client ids``; rounds count from 0.

The generator is made from the seed and the round alone: a run that is resumed, cut in pieces or repeated on another
engine draws the same clients. Drawing S of N costs in proportion to S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from losac import _random
from losac._checks import check_count, check_function, check_list, is_list, shown
from losac.history.history import History

Ids = Sequence[int] | np.ndarray
MOST_KEPT = 2**16
"""Up to so many drawn clients are kept, for the next run with the same seed: runs are compared on equal draws."""


class Sampler(Protocol):
    """How a sampler is called; a plain function will do."""

    def __call__(self, round_index: int, rng: np.random.Generator, history: Any, /) -> Ids:
        """Return the clients of a round, without repetition and at most the planned number."""


@dataclass(frozen=True)
class Uniform:
    """S of N clients, uniformly without replacement."""

    clients: int
    sampled: int

    def __call__(self, round_index: int, rng: np.random.Generator, history: History | None = None) -> np.ndarray:
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

    def __post_init__(self) -> None:
        p = np.asarray(check_list("weights", self.weights, "a list of numbers, one for each client"))
        if p.ndim != 1 or p.dtype.kind not in "iuf" or not np.isfinite(p).all() or p.min(initial=0) < 0:
            raise ValueError(
                f"weights={shown(self.weights)} must be numbers that are not negative, one for each client"
            )
        if check_count("sampled", self.sampled) > np.count_nonzero(p):
            raise ValueError(f"sampled={self.sampled}, but only {np.count_nonzero(p)} clients have a weight above 0")

    def __call__(self, round_index: int, rng: np.random.Generator, history: History | None = None) -> np.ndarray:
        """Draw the clients of a round."""
        p = np.asarray(self.weights, float)
        return np.asarray(rng.choice(len(p), self.sampled, replace=False, p=p / p.sum()))


@dataclass(frozen=True)
class Fixed:
    """Given lists of clients, used in turn and again from the start when they run out."""

    lists: Sequence[Ids]

    def __call__(self, round_index: int, rng: np.random.Generator, history: History | None = None) -> Ids:
        """Return the list of the round."""
        return self.lists[round_index % len(self.lists)]


@dataclass(frozen=True)
class Available:
    """S uniformly from those available: ``trace[round % len(trace), client]`` says who is; all, if fewer than S."""

    trace: np.ndarray
    sampled: int

    def __call__(self, round_index: int, rng: np.random.Generator, history: History | None = None) -> np.ndarray:
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
        check_function("sampling", sampling, "(round, rng, history) -> client ids", 3)
        return sampling
    if isinstance(sampling, np.ndarray) and sampling.dtype == bool:
        return Available(_trace(sampling, clients), sampled)
    lists = check_list("sampling", sampling, "'uniform', 'all', lists of client ids, a trace, or a function")
    if not lists:
        raise ValueError("sampling has no rounds; give a list of client ids for each of at least one round")
    if not all(map(is_list, lists)):
        raise ValueError(
            f"sampling={shown(sampling)} must hold a list of client ids for each round, such as [[0, 1], [2, 3]]"
        )
    return Fixed([_chosen(ids, f"sampling[{r}]", clients, sampled) for r, ids in enumerate(lists)])


def _trace(trace: np.ndarray, clients: int) -> np.ndarray:
    """Return an availability trace with at least one client in every round."""
    if trace.ndim != 2 or trace.shape[1] != clients or not len(trace):
        raise ValueError(f"an availability trace needs the shape [rounds, {clients}], not {trace.shape}")
    if (nobody := np.flatnonzero(~trace.any(1))).size:
        raise ValueError(f"the availability trace has nobody in round {nobody[0]}; leave out rounds without clients")
    return trace


def _chosen(ids: Any, where: str, clients: int, sampled: int) -> np.ndarray:
    """Return chosen clients as an array; refuse what are no different clients, or too many."""
    known = is_list(ids)
    chosen = array_of(ids) if known else np.empty(0)
    if known and chosen.ndim == 1 and len(chosen) and chosen.dtype.kind not in "iu":
        raise ValueError(f"{where}: {shown(_plain(ids))} must be whole numbers, the clients from 0 to {clients - 1}")
    if chosen.ndim != 1 or not 1 <= len(chosen) <= sampled or len(np.unique(chosen)) < len(chosen):
        raise ValueError(
            f"{where}: the sampler chose {shown(_plain(ids))}; it must choose between 1 and "
            f"clients_per_round={sampled} different clients"
        )
    if chosen.min() < 0 or chosen.max() >= clients:
        raise ValueError(f"{where}: {shown(_plain(ids))} has a client outside 0 … {clients - 1}")
    return chosen.astype(np.int64)


def array_of(values: Any) -> np.ndarray:
    """Return a list as an array; one of objects if it holds True or False, or lists of unequal lengths.

    NumPy would read ``[0, True]`` as the numbers 0 and 1.
    """
    if any(isinstance(value, bool | np.bool_) for value in values):
        return np.asarray(values, object)
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(values, object)


def _plain(ids: Any) -> Any:
    return ids.tolist() if isinstance(ids, np.ndarray) else ids


def draw_clients(
    sampler: Sampler, seed: int, first: int, rounds: int, clients: int, sampled: int, history: History | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids [rounds, S] of some rounds and the mask of those that take part; checks what a sampler says."""
    if isinstance(sampler, Uniform) and sampler == Uniform(clients, sampled):
        draw = _kept_draws if rounds * sampled <= MOST_KEPT else _uniform_draws
        return draw(sampler, seed, first, rounds)
    ids, active = np.zeros((rounds, sampled), np.int32), np.zeros((rounds, sampled), bool)
    for r in range(rounds):
        ids_of_round = sampler(first + r, _random.sampling_generator(seed, first + r), history)
        chosen = _chosen(ids_of_round, f"round {first + r}", clients, sampled)
        ids[r, : len(chosen)], active[r, : len(chosen)] = chosen, True
    return ids, active


def _uniform_draws(sampler: Uniform, seed: int, first: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what :func:`draw_clients` returns, without the checks that hold for uniform draws anyway."""
    if sampler.sampled == sampler.clients:
        ids = np.broadcast_to(np.arange(sampler.clients, dtype=np.int32), (rounds, sampler.clients))
    else:
        ids = np.empty((rounds, sampler.sampled), np.int32)
        for r in range(rounds):
            ids[r] = sampler(first + r, _random.sampling_generator(seed, first + r))
        ids.setflags(write=False)
    return ids, np.broadcast_to(True, ids.shape)


_kept_draws = lru_cache(maxsize=8)(_uniform_draws)
