"""The parts of a run: static shapes, the problem's arrays, the state between rounds, the schedule of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from losac.algorithms.contract import Algorithm
from losac.prox import Regularizer
from losac.simulation.attackers import Attackers
from losac.simulation.placement.layout import Layout
from losac.simulation.placement.store import Store
from losac.simulation.program.client import ClientShape, Resident
from losac.trees import Array, Tree

Chunks = tuple[Array, Array, Array]


class ProgramShape(NamedTuple):
    """All that shapes the program and is not an array: hashable, the key of the compilation cache."""

    client: ClientShape
    layout: Layout
    metrics: tuple[tuple[str, Callable[..., Any]], ...]
    loss_every: int
    composite: bool


class ProgramInputs(NamedTuple):
    """The arguments that do not change during a run: the method's numbers, the problem, the data.

    ``train`` holds the weights of the training rows in chunks [C, rows], ``test`` chunks of x, y and weights; ``scale``
    turns the mean training loss back into Σ p_i f_i; ``attackers`` say which clients lie, and how.
    """

    algorithm: Algorithm
    regularizer: Regularizer
    resident: Resident
    train: Array
    test: Chunks | None
    scale: Array
    attackers: Attackers | None = None


class RunState(NamedTuple):
    """Everything that changes from round to round.

    ``broken`` is the first round after which a parameter was not finite, -1 if none. ``memory`` is what lying clients
    remember of each phase. ``identity`` says what the state belongs to, once it is returned
    (:class:`losac.simulation.engines.identity.Identity`).
    """

    round: Array
    key: Array
    server: Tree
    model_state: Tree
    store: Store
    broken: Array
    memory: Tree = ()
    identity: Any = ()


class Schedule(NamedTuple):
    """Who takes part: ids [evaluations, rounds, S] with a mask, and the number of rounds before each evaluation."""

    ids: Array
    active: Array
    lengths: Array
