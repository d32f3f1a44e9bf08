"""What a client of a federation computes: one phase of one round, from the server's message and what it keeps.

A worker is the only thing that differs between clients in JAX, NumPy and PyTorch; all of them call the same functions
of the algorithm. All that goes in and out is a pytree of NumPy arrays.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from losac.algorithms.contract import Algorithm
from losac.simulation.program.client import Message as Message
from losac.trees import OfBlocks, Tree


class Assignment(NamedTuple):
    """What a result depends on besides the message, the client's state and its data.

    ``phase_index`` counts the phases of a round from 0, ``client`` the clients from 0 to N − 1, and ``slot`` those in
    the round's sample; ``weight`` is N·p_i; ``steps`` the round's random number of steps, None if it is fixed.
    """

    seed: int
    round: int
    phase_index: int
    client: int
    slot: int
    clients: int
    sampled: int
    weight: float
    steps: int | None = None


class Kept(NamedTuple):
    """What a client keeps between rounds: its state, that of its upload's transforms, and its table, led by M."""

    state: Tree
    transforms: Tree
    table: OfBlocks


class Result(NamedTuple):
    """What a client sends (encoded by the algorithm's transforms), what it keeps, and its gradients.

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
    """The shapes and dtypes of the model's parameters, as arrays; their numbers do not matter."""
    model_state: Tree
    """The same of the model's state; () if it has none."""
    frozen: str
    """The digest of the frozen weights; empty if there are none."""

    @property
    def kept_like(self) -> Kept:
        """The structure of what is kept; its numbers do not matter."""

    def start(self, params: Tree) -> Kept:
        """Return what is kept before the client first takes part, from the initial model x⁰."""

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        """Do the work of one phase."""

    def settle(self, task: Assignment, upload: Tree, accepted: Tree, kept: Kept) -> Kept:
        """Return what is kept once it is known how much of the upload of an assignment the server used."""

    def with_algorithm(self, algorithm: Algorithm) -> Worker:
        """Return a client with the same data that runs another algorithm."""

    def evaluate(self, params: Tree, model_state: Tree) -> dict[str, float]:
        """Return the mean loss and the metrics on the client's own data."""
