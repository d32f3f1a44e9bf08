"""Strongly convex problems whose optimum is known to rounding: where theory can be held against the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm
from losac.data import FederatedData, load
from losac.losses import BinaryCrossEntropy
from losac.models import linear, logistic_regression
from losac.report.profile import example
from losac.task import Task, regression
from losac.trees import Array, Tree

L2 = 0.1
"""The l2 term in the loss of every sample of the logistic regressions, which makes them strongly convex."""


class Convex(NamedTuple):
    """A task whose metric ``distance`` is ‖x − x*‖/‖x⁰ − x*‖, with N, S, M and the largest curvature of any f_i."""

    task: Task
    clients: int
    sampled: int
    blocks: int
    curvature: float
    optimum: np.ndarray


@dataclass(frozen=True, eq=False)
class Distance:
    """How far the parameters are from an optimum, as a share of the optimum's own norm: 1 at the start from zero."""

    optimum: Any

    def __call__(self, params: Tree, batch: Any) -> Array:
        """Return the distance; the batch does not matter."""
        optimum = np.array(self.optimum)  # a copy: JAX may remember the precision in which it met an array before
        away = jnp.linalg.norm(as_vector(params) - optimum)
        return away / np.linalg.norm(self.optimum)


def as_vector(params: Tree) -> Array:
    """Return the parameters of a linear model: the weights, then the intercept where there is one."""
    if isinstance(params, list):
        return jnp.concatenate([params[0]["w"].reshape(-1), params[0]["b"].reshape(-1)])
    return jnp.reshape(params, -1)


@lru_cache(maxsize=4)
def convex(name: str, partition: str = "sorted", seed: int = 0) -> Convex:
    """Return ``"quadratic"`` (made up), or l2-regularised logistic regression on ``"a9a"`` or ``"w8a"``.

    The latter are divided among clients as ``partition`` and ``seed`` say.
    """
    if name == "quadratic":
        data = load("quadratic", 10, samples=16, dim=4, seed=1)
        task = regression(linear(4), data, metrics={"distance": Distance(data.info["optimum"])})
        rows = [x for x, _ in map(data.client, range(data.num_clients))]
        curvature = max(float(np.linalg.norm(x, 2)) ** 2 for x in rows)
        return Convex(task, 10, 2, 4, curvature, np.asarray(data.info["optimum"]))
    clients = {"a9a": 50, "w8a": 50}[name]
    data = load(name, clients, partition, seed=seed)
    x, y = with_intercept(data), np.asarray(data.y, float)
    optimum = logistic_optimum(x, y, L2)
    model = logistic_regression(data.x.shape[1])
    task = Task(
        BinaryCrossEntropy(model, L2), model.init, data, metrics={"distance": Distance(optimum)}, test=None
    )  # fmt: skip
    parts = np.split(x, data.offsets[1:-1])
    curvature = max(float(np.linalg.eigvalsh(part.T @ part)[-1]) / 4 + L2 * len(part) for part in parts)
    return Convex(task, clients, clients // 10, 5, curvature, optimum)


class Smooth(NamedTuple):
    """f = (1/N) Σ_i f_i of a problem as a function of vectors, with its constants μ and L, in double precision."""

    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    mu: float
    smoothness: float


@lru_cache(maxsize=4)
def smooth(name: str) -> Smooth:
    """Return the objective of a problem, from its equations."""
    made = convex(name)
    data, n = made.task.data, made.clients
    if name == "quadratic":
        x, y = np.asarray(data.x, float), np.asarray(data.y, float)
        eigenvalues = np.linalg.eigvalsh(x.T @ x / n)
        return Smooth(
            lambda v: float(np.sum((x @ v - y) ** 2) / (2 * n)),
            lambda v: x.T @ (x @ v - y) / n,
            float(eigenvalues[0]), float(eigenvalues[-1]),
        )  # fmt: skip
    x, y, rows = with_intercept(data), np.asarray(data.y, float), len(data)
    largest = float(np.linalg.eigvalsh(x.T @ x / n)[-1]) / 4
    return Smooth(
        lambda v: float(np.sum(np.logaddexp(0, x @ v) - y * (x @ v)) + rows * L2 / 2 * (v @ v)) / n,
        lambda v: (x.T @ (1 / (1 + np.exp(-(x @ v))) - y) + rows * L2 * v) / n,
        rows * L2 / n, largest + rows * L2 / n,
    )  # fmt: skip


def with_intercept(data: FederatedData) -> np.ndarray:
    """Return all rows in double precision with a one behind each."""
    return np.column_stack([np.asarray(data.x, float), np.ones(len(data))])


def logistic_optimum(x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    """Return the minimiser of the mean logistic loss of labels 0 and 1 plus l2/2‖w‖², by Newton's method to rounding.

    >>> x, y = np.array([[1.0], [-1.0], [2.0]]), np.array([1.0, 0.0, 0.0])
    >>> w = logistic_optimum(x, y, 0.1)
    >>> bool(abs(x.T @ (1 / (1 + np.exp(-x @ w)) - y) / 3 + 0.1 * w) < 1e-15)
    True
    """
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-(x @ w)))
        gradient = x.T @ (p - y) / len(y) + l2 * w
        hessian = (x.T * (p * (1 - p))) @ x / len(y) + l2 * np.eye(len(w))
        step = np.linalg.solve(hessian, gradient)
        w = w - step
        if np.abs(step).max() <= 1e-14 * max(1.0, float(np.abs(w).max())):
            break
    return w


def unit(problem: Convex, name: str, settings: dict[str, Any]) -> float:
    """Return the step by which a method's is measured: 1/L, less the factor NM/S by which LoSAC as printed moves on."""
    printed = name == "losac" and settings.get("scaling", "paper") == "paper"
    return (problem.sampled / (problem.clients * problem.blocks) if printed else 1.0) / problem.curvature


def method(problem: Convex, name: str, share: float, steps: int, **settings: Any) -> Algorithm:
    """Return an algorithm whose step is a share of its unit; what goes with the curvature is set as in its example."""
    base = example(name, problem.curvature, problem.blocks)
    found = base.replace(step_size=share * unit(problem, name, settings), **settings)
    return found if ALGORITHMS[name].example.local_steps is None else found.replace(local_steps=steps)
