"""What a client of a federation computes: one phase of one round, from the server's message and what it keeps.

A worker is the only thing that differs between clients in JAX, NumPy and PyTorch; all of them call the same functions
of the algorithm. Everything that crosses its border is a pytree of NumPy arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from losac.algorithms.contract import Algorithm, Phase
from losac.trees import Tree


class Assignment(NamedTuple):
    """What a result depends on besides the message, the client's state and its data.

    ``place`` is the phase's place among the round's, ``client`` the client's number from 0 to N − 1, ``slot`` its place
    in the round's sample; ``weight`` is N·p_i; ``steps`` the round's random number of steps, None where it is fixed.
    """

    seed: int
    round: int
    place: int
    client: int
    slot: int
    clients: int
    sampled: int
    weight: float
    steps: int | None = None


class Message(NamedTuple):
    """What the server sends, or a client: the algorithm's message, and the model's state or its change."""

    content: Tree
    model_state: Tree = ()


class Kept(NamedTuple):
    """What a client keeps between rounds: its state, that of its upload's transforms, and its table, led by M."""

    state: Tree
    transforms: Tree
    table: Tree


class Result(NamedTuple):
    """What a client sends, as it travels (encoded by the algorithm's transforms), what it keeps, and its gradients.

    ``gradients`` counts those of single samples.
    """

    upload: Message
    kept: Kept
    gradients: float


class Worker(Protocol):
    """A client's computation on its own data."""

    algorithm: Algorithm
    rows: int
    params: Tree
    """The shapes and dtypes of the model's parameters, as arrays whose numbers do not matter."""
    model_state: Tree
    """The same of the model's state; () where it has none."""

    @property
    def kept_like(self) -> Kept:
        """The structure of what is kept, whatever its numbers."""

    def start(self, params: Tree) -> Kept:
        """Return what is kept before the client first takes part, from the initial model x⁰."""

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        """Do the work of one phase."""

    def with_algorithm(self, algorithm: Algorithm) -> Worker:
        """Return a client with the same data that runs another algorithm."""

    def evaluate(self, params: Tree, model_state: Tree) -> dict[str, float]:
        """Return the mean loss and the metrics on the client's own data."""


def phase_of(algorithm: Algorithm, task: Assignment) -> tuple[Algorithm, Phase]:
    """Return the algorithm with the settings of the round, and the phase that is to be done."""
    now: Any = algorithm.at(task.round)
    return now, now.phases()[task.place]
