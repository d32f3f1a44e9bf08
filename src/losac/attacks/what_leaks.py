"""How much of a client's gradients every method gives away, counted from its code on a small problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac._own import name_of
from losac.algorithms import ALGORITHMS
from losac.algorithms.compression import RandomK, TopK
from losac.algorithms.contract import Algorithm
from losac.algorithms.facts import Scale
from losac.algorithms.power_sgd import PowerSgd
from losac.attacks.algebra import NonlinearMethodError, solve, system_of
from losac.attacks.transcript import watch
from losac.data import FederatedData, logistic
from losac.models import softmax_regression
from losac.simulation.engines.resident import precision
from losac.task import Task, classification

STEP_SIZE, CLIENTS, FEATURES = 1e-2, 3, 3
HEAD = ("algorithm", "M", "T", "gradients", "known exactly", "at a model that was sent", "left open of the others")


class Leak(NamedTuple):
    """What the server knows about the gradients that one client computes.

    Args:
      algorithm: the method.
      blocks: M.
      local_steps: T; None: the method's own number.
      rounds: how many the client took part in.
      gradients: how many it computes: of some of its rows, at one model.
      exact: how many of these the server knows exactly.
      at_sent: how many of the exact ones are at a model that the server itself sent.
      left_open: the mean share of the others that remains open, if gradients of the same rows resemble each other;
        None: there are no others.
      why_not: why nothing can be counted; else empty.
    """

    algorithm: str
    blocks: int
    local_steps: int | None
    rounds: int
    gradients: int = 0
    exact: int = 0
    at_sent: int = 0
    left_open: float | None = None
    why_not: str = ""


def what_leaks(
    algorithms: Iterable[str | type[Algorithm]] = tuple(ALGORITHMS),
    *,
    blocks: Sequence[int] = (1, 5),
    local_steps: Sequence[int] = (1, 5),
    rounds: int = 5,
) -> Iterator[Leak]:
    """Count, for each method and setting, what the server knows about the gradients of one client.

    All clients take part in every round. A method that chooses its number of local steps itself comes once for each M.

    Args:
      algorithms: by their names in :data:`losac.algorithms.ALGORITHMS`, or classes of your own.
      blocks: values of M.
      local_steps: values of T.
      rounds: how many to watch.

    >>> [(leak.local_steps, leak.exact, leak.gradients) for leak in what_leaks(["fedavg"], blocks=[1], rounds=3)]
    [(1, 3, 3), (5, 0, 15)]
    """
    for option, values in (("blocks", blocks), ("local_steps", local_steps), ("rounds", [rounds])):
        if not values or min(values) < 1:
            raise ValueError(f"{option}={list(values)} must be numbers from 1 on, such as 1 and 5")
    task = _task(2 * max(blocks))
    for algorithm in algorithms:
        kind = ALGORITHMS[algorithm] if isinstance(algorithm, str) else algorithm
        name = algorithm if isinstance(algorithm, str) else name_of(kind, kind.title)
        for m in blocks:
            for steps, method in _methods(kind, m, local_steps).items():
                yield _count(task, method, Leak(name, m, steps, rounds))


def as_markdown(leaks: Iterable[Leak]) -> str:
    """Return a table of what leaks.

    >>> print(as_markdown([Leak("fedavg", 1, 5, 5, 25, 0, 0, 0.151)]))
    | algorithm | M | T | gradients | known exactly | at a model that was sent | left open of the others |
    |---|---|---|---|---|---|---|
    | `fedavg` | 1 | 5 | 25 | 0 | 0 | 15% |
    """
    lines = [HEAD, *((f"`{leak.algorithm}`", *cells(leak)) for leak in leaks)]
    head, *body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([head, "|---" * len(HEAD) + "|", *body])


def cells(leak: Leak) -> list[str]:
    """Return a leak's cells in a table, after the method's name."""
    steps = "own" if leak.local_steps is None else str(leak.local_steps)
    if leak.why_not:
        return [str(leak.blocks), steps, "–", "not linear", "–", "–"]
    left = "–" if leak.left_open is None else f"{leak.left_open:.0%}"
    return [str(leak.blocks), steps, *map(str, (leak.gradients, leak.exact, leak.at_sent)), left]


def _task(rows: int) -> Task:
    data: FederatedData = logistic(clients=CLIENTS, samples=rows, dim=FEATURES)
    return classification(softmax_regression(FEATURES, int(data.num_classes or 2)), data, test=None)


def _methods(make: Any, blocks: int, local_steps: Sequence[int]) -> dict[int | None, Algorithm]:
    """Return a method for each number of local steps; only one, for None, if it has its own number."""
    example = make.for_scale(Scale(1.0, CLIENTS, CLIENTS, blocks)).settings() if len(make.required()) > 1 else {}
    needed = {name: example[name] for name in make.required() if name != "step_size"}
    try:
        return {t: make(STEP_SIZE, local_steps=t, blocks=blocks, **needed) for t in local_steps}
    except ValueError:
        return {None: make(STEP_SIZE, blocks=blocks, **needed)}


def _count(task: Task, method: Algorithm, leak: Leak) -> Leak:
    if any(isinstance(transform, PowerSgd | RandomK | TopK) for transform in method.transforms()):
        return leak._replace(why_not=f"{method.label} sends a part of its uploads only; no attack here is for it")
    with precision(np.dtype("float64")):
        (seen,) = watch(task, method, rounds=leak.rounds, dtype="float64")
        try:
            estimates = solve(system_of(seen))
        except NonlinearMethodError as error:
            return leak._replace(why_not=str(error))
    others = [one.spread for one in estimates if not one.exact]
    return leak._replace(
        gradients=len(estimates),
        exact=sum(one.exact for one in estimates),
        at_sent=sum(one.exact and one.unknown.broadcast for one in estimates),
        left_open=float(np.mean(others)) if others else None,
    )
