"""Rounds of an algorithm on small quadratics, by calling its functions on NumPy arrays: nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from losac.algorithms.contract import Federation, Local, Received, ValuedGradient
from losac.algorithms.walk import Step, walk
from losac.prox import zero
from losac.trees import add, scale


@dataclass
class Quadratics:
    """Clients with f_i(x) = ½ (x − b_i)·A_i(x − b_i)."""

    hessians: np.ndarray
    optima: np.ndarray
    asked: int = field(default=0, init=False)
    """Gradients computed so far."""

    @property
    def optimum(self) -> np.ndarray:
        """The minimiser of Σ f_i."""
        return np.linalg.solve(self.hessians.sum(0), np.einsum("nij,nj->i", self.hessians, self.optima))

    @property
    def curvature(self) -> float:
        """The largest curvature of any f_i."""
        return max(float(np.linalg.norm(a, 2)) for a in self.hessians)

    def gradient(self, i: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return ∇f_i."""

        def of(x: np.ndarray) -> np.ndarray:
            self.asked += 1
            return self.hessians[i] @ (x - self.optima[i])

        return of

    def value(self, i: int, x: np.ndarray) -> float:
        """Return f_i(x)."""
        return float(0.5 * (x - self.optima[i]) @ self.hessians[i] @ (x - self.optima[i]))

    def away(self, x: np.ndarray) -> float:
        """Return the largest distance of an entry from the optimum's."""
        return float(np.abs(x - self.optimum).max())


def quadratics(clients: int = 4, dim: int = 3, seed: int = 0, condition: float = 5.0) -> Quadratics:
    """Draw clients that disagree, of curvatures from 1 to ``condition``."""
    rng = np.random.default_rng(seed)
    bases = [np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(clients)]
    values = [np.concatenate([[1.0, condition], rng.uniform(1, condition, dim)])[:dim] for _ in range(clients)]
    return Quadratics(np.array([q * v @ q.T for q, v in zip(bases, values)]), rng.standard_normal((clients, dim)))


@dataclass
class Hand:
    """A federation that goes round by round.

    ``clients`` and ``rows`` hold what is kept for each client, ``steps`` the clients' numbers of local steps.
    """

    algorithm: Any
    problem: Quadratics
    steps: Sequence[int] | int = 1
    start: Any = None
    server: Any = field(init=False)
    clients: list[Any] = field(init=False)
    rows: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        x = np.zeros(self.problem.optima.shape[1]) if self.start is None else self.start
        number = len(self.problem.optima)
        self.server, self.rows = self.algorithm.init(x), [self.algorithm.init_server_row(x)] * number
        self.clients = [self.algorithm.init_client(x)] * number

    @property
    def x(self) -> np.ndarray:
        """The server's model."""
        return np.asarray(self.algorithm.model(self.server))

    def round(self, ids: Sequence[int] | None = None, happens: bool = True) -> np.ndarray:
        """Take one round with some clients, all by default; ``happens`` decides on phases by chance. Return x."""
        everybody = range(len(self.clients))
        for phase in self.algorithm.phases():
            if phase.chance is not None and not happens:
                continue
            who = everybody if ids is None or phase.clients == "all" else ids
            here = Federation(len(self.clients), len(everybody if ids is None else ids), zero().prox)
            total: Any = None
            for slot, i in enumerate(who):
                upload = self._work(phase, here, slot, i)
                total = upload if total is None else add(total, upload)
            self.server = phase.update(here, self.server, Received(total, np.float64(len(who))))
        return self.x

    def rounds(self, number: int, ids: Sequence[int] | None = None) -> np.ndarray:
        """Take several rounds alike."""
        for _ in range(number):
            self.round(ids)
        return self.x

    def sampled_rounds(self, number: int, sampled: int, seed: int = 0) -> np.ndarray:
        """Take several rounds with clients drawn at random."""
        rng = np.random.default_rng(seed)
        for _ in range(number):
            self.round(rng.choice(len(self.clients), sampled, replace=False).tolist())
        return self.x

    def _work(self, phase: Any, here: Federation, slot: int, i: int) -> Any:
        count = self.steps if isinstance(self.steps, int) else self.steps[i]
        gradient = ValuedGradient(
            self.problem.gradient(i), lambda x: (self.problem.value(i, x), self.problem.gradient(i)(x))
        )
        local = Local(*here, 1, count, gradient, slot, None)
        steps = [Step(gradient)] * (0 if phase.draw.steps == 0 else count)
        walked = walk(phase, local, phase.broadcast(self.server), self.clients[i], steps)
        self.clients[i], upload = walked.client, walked.upload
        if phase is self.algorithm and self.algorithm.server_rows:
            upload, self.rows[i] = self.algorithm.receive(self.rows[i], upload)
        return upload


def rest(algorithm: Any, problem: Quadratics, steps: Sequence[int] | int = 1) -> np.ndarray:
    """Return where a method rests whose round is an affine function of the model alone."""

    def after(x: np.ndarray) -> np.ndarray:
        return Hand(algorithm, problem, steps, x).round()

    dim = problem.optima.shape[1]
    constant = after(np.zeros(dim))
    linear = np.stack([after(unit) - constant for unit in np.eye(dim)], axis=1)
    return np.linalg.solve(np.eye(dim) - linear, constant)


def mean(trees: Sequence[Any]) -> Any:
    """Return the mean of some trees."""
    total = trees[0]
    for tree in trees[1:]:
        total = add(total, tree)
    return scale(1 / len(trees), total)
