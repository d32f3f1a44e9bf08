"""The common part of both estimators: clients from groups, one simulated federation, weights in plain arrays."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from losac import _random
from losac._checks import NONNEGATIVE, check_flag, check_number, is_list, is_whole, nearest
from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm
from losac.data import FederatedData, partition
from losac.data.checks import check_dense
from losac.history import DivergedError, History
from losac.models import Dense
from losac.simulation import simulate
from losac.sklearn import steps
from losac.task import Task

Array = NDArray[Any]


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]
    """The settings, the federation and the forward pass; subclasses define the loss."""

    __metadata_request__fit: ClassVar = {"groups": True}

    def __init__(
        self,
        algorithm: str | Algorithm = "losac",
        *,
        step_size: float | str = "auto",
        hidden_layer_sizes: tuple[int, ...] = (),
        rounds: int = 100,
        clients_per_round: int | None = None,
        local_steps: int = 5,
        blocks: int = 4,
        l1: float = 0.0,
        l2: float = 0.0,
        n_clients: int = 10,
        partition: Any = "iid",
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.step_size = step_size
        self.hidden_layer_sizes = hidden_layer_sizes
        self.rounds = rounds
        self.clients_per_round = clients_per_round
        self.local_steps = local_steps
        self.blocks = blocks
        self.l1 = l1
        self.l2 = l2
        self.n_clients = n_clients
        self.partition = partition
        self.standardize = standardize
        self.random_state = random_state

    def _task(self, model: Dense, data: FederatedData) -> Task:
        raise NotImplementedError

    def _train(self, X: Array, y: Array, groups: Any, outputs: int, classes: int | None) -> None:
        """Run the federation; keep its history, and the network for unscaled inputs."""
        check_flag("standardize", self.standardize)
        check_number("l1", self.l1, NONNEGATIVE)
        check_number("l2", self.l2, NONNEGATIVE)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        mean, scale = _moments(X) if self.standardize else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        rows = ((X - mean) / scale).astype(np.float32)
        self.clients_, parts = self._deal(y, groups, seed)
        data = FederatedData.from_partition(rows, y, parts, num_classes=classes)
        hidden = _sizes(self.hidden_layer_sizes)
        model = Dense((X.shape[1], *hidden, outputs), "glorot" if hidden else "zeros")
        self.step_size_, self.history_ = self._run(self._task(model, data), seed, linear=not hidden)
        self.n_iter_ = int(self.history_.rounds[-1])
        layers = [(np.asarray(layer["w"], float), np.asarray(layer["b"], float)) for layer in self.history_.params]
        first = layers[0][0] / scale[:, None]
        layers[0] = (first, layers[0][1] - mean @ first)
        self.coefs_ = [w for w, _ in layers]
        self.intercepts_ = [b for _, b in layers]

    def _deal(self, y: Array, groups: Any, seed: int) -> tuple[Array, list[Array]]:
        """Return the names of the clients, and the rows of each."""
        if groups is not None:
            check_consistent_length(y, groups)
            names, owner = np.unique(np.asarray(groups), return_inverse=True)
            return names, [np.flatnonzero(owner == i) for i in range(len(names))]
        if not _whole(self.n_clients):
            raise ValueError(f"n_clients={self.n_clients!r} must be a whole number of at least 1")
        clients = min(int(self.n_clients), len(y))
        parts = partition.deal(y, clients, self.partition, _random.dealing_generator(seed))
        return np.arange(len(parts)), parts

    def _run(self, task: Task, seed: int, linear: bool) -> tuple[float, History]:
        """Return the run and its step size: the given one, or the first of a few that does not overshoot."""
        if isinstance(self.algorithm, Algorithm):
            method, sizes = self.algorithm, iter([self.algorithm.step_size])
        else:
            blocks = min(self.blocks, int(task.data.sizes.min())) if _whole(self.blocks) else self.blocks
            method = _named(self.algorithm, self.local_steps, blocks)
            sizes = iter([self.step_size])
            if isinstance(self.step_size, str):
                if self.step_size != "auto":
                    raise ValueError(f"step_size={self.step_size!r} must be 'auto' or a positive number")
                sizes = steps.lengths(task, method, self.clients_per_round, seed, linear)

        def runs() -> Iterator[tuple[Any, History | DivergedError]]:
            for size in sizes:
                try:
                    yield size, self._simulate(task, method.replace(step_size=size), seed)
                except DivergedError as error:
                    yield size, error

        return steps.first_good(runs())

    def _simulate(self, task: Task, method: Algorithm, seed: int) -> History:
        every = max(1, self.rounds // 10) if _whole(self.rounds) else 1
        sampled = self.clients_per_round
        return simulate(task, method, rounds=self.rounds, clients_per_round=sampled, seed=seed, eval_every=every)

    def _outputs(self, X: Any) -> Array:
        """Return the network's outputs [rows, outputs]."""
        check_is_fitted(self)
        check_dense(X, "X")
        rows: Array = validate_data(self, X, reset=False, dtype=np.float64)
        for depth, (w, b) in enumerate(zip(self.coefs_, self.intercepts_)):
            rows = (np.maximum(rows, 0) if depth else rows) @ w + b
        return rows


def _moments(X: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of the columns; 1 for the deviation of constant columns."""
    mean, scale = X.mean(0), X.std(0)
    return mean, np.where(scale > 10 * np.finfo(float).eps * np.abs(mean), scale, 1.0)


def _whole(value: Any) -> bool:
    return is_whole(value) and value >= 1


def _sizes(hidden: Any) -> tuple[int, ...]:
    sizes = (hidden,) if isinstance(hidden, numbers.Number) else tuple(hidden) if is_list(hidden) else (None,)
    if not all(map(_whole, sizes)):
        raise ValueError(f"hidden_layer_sizes={hidden!r} must hold whole numbers of at least 1, one per hidden layer")
    return tuple(int(size) for size in sizes)


def _named(name: Any, local_steps: int, blocks: int) -> Algorithm:
    """Return the algorithm of a name, LoSAC in exact scaling; the step size is set later."""
    if not isinstance(name, str) or name not in ALGORITHMS:
        hint = nearest(name, list(ALGORITHMS)) if isinstance(name, str) else ""
        raise ValueError(
            f"algorithm={name!r} is not in losac.algorithms{hint}; give one of their names, or an object such as "
            "losac.algorithms.fedprox(0.01, 5, mu=0.1)"
        )
    settings: dict[str, Any] = {"scaling": "exact"} if name == "losac" else {}
    return ALGORITHMS[name](1.0, local_steps, blocks, **settings)
