"""The server's algebra: which of a client's gradients its uploads determine, exactly or nearly.

An upload of a method that only adds and scales is a known part plus a linear combination of the gradients that the
client computed, with coefficients that depend on the method and its settings alone. All uploads of a client together
are a linear system: one equation for each part of each upload, one unknown for each gradient. A gradient is
known exactly if its unit vector lies in the row space of the system. The others are estimated, by how much the
gradients of the same rows resemble each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from losac.algorithms.contract import LossNeededError
from losac.attacks.parts import ModelParts
from losac.attacks.replay import Query, replay, visits_of
from losac.attacks.transcript import Transcript
from losac.federation.draws import LocalWork
from losac.trees import Tree

EXACT = 1e-8
"""The largest distance between a unit vector and the row space at which it still counts as inside."""
CANCELLED = 1e-13
"""Coefficients smaller than this, relative to the largest of their equation, are rounding."""
LEAST_ERROR = 1e-9
"""No equation counts as more exact than this, relative to its values."""
LARGE, SMALL = 1e9, 1e-6
"""Lengths of the vectors that replace gradients to test whether a method is linear."""
KEEPS = 0.98
"""How much two gradients of the same rows, one local step apart, are expected to resemble each other."""


class Unknown(NamedTuple):
    """The sum of the gradients of some rows at one model, which the client computed.

    ``step`` counts its local steps. ``model`` holds the coefficients of the model: first of the known arrays, then of
    the unknowns. ``broadcast`` says that the server sent this very model.
    """

    rows: tuple[int, ...]
    exchange: int
    step: int
    model: Float[np.ndarray, " terms"]
    broadcast: bool


class System(NamedTuple):
    """The linear system of a transcript.

    Args:
      unknowns: K gradients.
      known: P arrays that the server knows, flat: [P, d].
      coefficients: [equations, P + K].
      uploads: the left-hand sides: [equations, d].
      exchanges: for each equation the exchange that it comes from.
      precision: the rounding error of the numbers that were sent.
      unflatten: makes a tree of an array [d].
    """

    unknowns: tuple[Unknown, ...]
    known: Float[np.ndarray, "known d"]
    coefficients: Float[np.ndarray, "equations terms"]
    uploads: Float[np.ndarray, "equations d"]
    exchanges: Int[np.ndarray, " equations"]
    precision: float
    unflatten: Callable[[np.ndarray], Tree]


class Estimate(NamedTuple):
    """What the server infers about one gradient.

    Args:
      unknown: which one.
      exact: whether the equations determine it.
      spread: the share of it that they leave open, from 0 to 1, if gradients resemble each other as assumed.
      gradient: its value: a tree like the model.
      model: the model at which it was taken, with estimates of the unknown parts.
    """

    unknown: Unknown
    exact: bool
    spread: float
    gradient: Tree
    model: Tree


class NonlinearMethodError(ValueError):
    """The method does more with gradients than add and scale them."""


NotLinearError = NonlinearMethodError
"""The name in earlier releases."""


def system_of(seen: Transcript) -> System:
    """Return the system of a transcript, by running the method's own functions on coefficients instead of arrays."""
    visits = visits_of(seen)
    parts = ModelParts(seen.start)
    known: dict[bytes, int] = {}
    arrays: list[np.ndarray] = []

    def name(part: Tree) -> int | None:
        flat = parts.flat(part)
        if not flat.any():
            return None
        index = known.setdefault(flat.tobytes(), len(known))
        if index == len(arrays):
            arrays.append(flat)
        return index

    for tree in (seen.start, *(tree for one in seen.exchanges for tree in (one.message, one.upload))):
        parts.each(name, tree)
    most = sum(3 * visit.steps + 2 for visit in visits)
    run = _Run(seen, visits, parts, name, len(arrays), most)
    try:
        unknowns, coefficients = run(np.eye(len(arrays) + most))
    except LossNeededError as error:
        raise NonlinearMethodError(
            f"{seen.algorithm.label} uses the loss besides its gradients, which no attack here does"
        ) from error
    _check_linear(seen, run, coefficients, len(arrays) + most)
    p, k = len(arrays), len(unknowns)
    sides = [(number, side) for number, one in enumerate(seen.exchanges) for side in parts.list(one.upload)]
    return System(
        tuple(one._replace(model=one.model[: p + k]) for one in unknowns),
        np.reshape(arrays, (p, -1)) if arrays else np.zeros((0, parts.size)),
        coefficients[:, : p + k],
        np.stack([parts.flat(side) for _, side in sides]),
        np.array([number for number, _ in sides]),
        float(np.finfo(jax.tree.leaves(seen.start)[0].dtype).eps),
        parts.unflatten,
    )


def determined(system: System) -> Bool[np.ndarray, " unknowns"]:
    """Return for each unknown whether the equations determine it."""
    rows, _ = _scaled(system)
    return np.linalg.norm(np.linalg.pinv(rows, rcond=1e-11) @ rows - np.eye(rows.shape[1]), axis=1) < EXACT


def solve(system: System, noise: Any = 0.0) -> list[Estimate]:
    """Return what the server infers about every gradient.

    The gradients of single rows are assumed independent, those of one row in two local steps t apart correlated by
    KEEPS**t; the estimate is the mean given the uploads.

    Args:
      system: the equations.
      noise: the standard deviation of the entries of each upload's parts, if a defence adds noise and says how
        much; rounding is also taken into account.
    """
    exact = determined(system)
    rows, length = _scaled(system)
    p, unknowns = len(system.known), system.unknowns
    given = (system.uploads - system.coefficients[:, :p] @ system.known) / length[:, None]
    root = np.linalg.cholesky(_prior(unknowns))
    mixed = rows @ root
    size = np.abs(system.coefficients[:, :p]) @ np.abs(system.known) + np.abs(system.uploads)
    rounding = system.precision * np.sqrt(np.mean(size**2, axis=1)) / length
    error = rounding**2 + (np.broadcast_to(np.asarray(noise), length.shape) / length) ** 2
    share = np.sum(mixed**2, axis=1)
    heard = share > 0
    seen = (np.mean(given**2, axis=1) - error)[heard] / share[heard]
    scale = max(seen.sum() / max(len(seen), 1), 1e-30 * error.max(), 1e-300)
    weight = 1 / np.sqrt(np.maximum(error / scale, LEAST_ERROR**2))
    k = len(unknowns)
    inverse = np.linalg.pinv(np.concatenate([weight[:, None] * mixed, np.eye(k)]), rcond=1e-15)
    values = root @ (inverse[:, : len(weight)] * weight) @ given
    open_share = np.clip(np.sum((root @ inverse) ** 2, axis=1) / np.sum(root**2, axis=1), 0, 1)
    models = np.stack([one.model for one in unknowns]) @ np.concatenate([system.known, values])
    return [
        Estimate(
            one, bool(exact[k]), float(np.sqrt(open_share[k])), system.unflatten(values[k]),
            system.unflatten(models[k]),
        )
        for k, one in enumerate(unknowns)
    ]  # fmt: skip


def _scaled(system: System) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of the unknowns, each equation scaled to length one, and these lengths.

    If all gradients cancel but for rounding, as in the second upload of MimeSVRG with one step, the equation says
    nothing: it gets the length one and coefficients of zero.
    """
    rows = system.coefficients[:, len(system.known) :]
    length = np.linalg.norm(rows, axis=1)
    heard = length > CANCELLED * np.abs(system.coefficients).max(axis=1)
    length = np.where(heard, length, 1.0)
    return np.where(heard[:, None], rows / length[:, None], 0), length


def _prior(unknowns: Sequence[Unknown]) -> np.ndarray:
    """Return how the unknowns resemble each other: by their common rows and by the steps between them."""
    sets = [frozenset(one.rows) for one in unknowns]
    steps = np.array([one.step for one in unknowns])
    shared = np.array([[len(a & b) for b in sets] for a in sets], float)
    return shared * KEEPS ** np.abs(steps[:, None] - steps[None, :]) + 1e-6 * np.diag(np.diag(shared))


class _Run:
    """A replay on coefficients: every known and every unknown array is one row of a basis, and zero is zero."""

    def __init__(
        self,
        seen: Transcript,
        visits: list[LocalWork],
        parts: ModelParts,
        name: Callable[[Tree], int | None],
        known: int,
        most: int,
    ) -> None:
        self.seen, self.visits, self.parts, self.name, self.known, self.most = seen, visits, parts, name, known, most

    def __call__(self, basis: np.ndarray, scale: float = 1.0) -> tuple[list[Unknown], np.ndarray]:
        """Return the unknowns, and the coefficients of every part of every upload, on a basis of this length."""
        basis = scale * basis
        found: dict[tuple[Any, ...], int] = {}
        unknowns: list[Unknown] = []

        def symbol(part: Tree) -> np.ndarray:
            index = self.name(part)
            return np.zeros(basis.shape[1]) if index is None else basis[index]

        exchanges = self.seen.exchanges
        sent, messages = (
            [self.parts.each(symbol, tree) for tree in trees]
            for trees in ([one.upload for one in exchanges], [one.message for one in exchanges])
        )
        told = [symbol(part) for one in exchanges for part in self.parts.list(one.message)]

        def oracle(query: Query, model: Any) -> Any:
            index = found.setdefault((query.rows, (np.round(model / scale, 13) + 0.0).tobytes()), len(found))
            if index == len(unknowns):
                broadcast = any(np.array_equal(model, one) for one in told)
                unknowns.append(Unknown(query.rows, query.exchange, query.step, np.asarray(model), broadcast))
            return query.factor * basis[self.known + index]

        uploads = replay(self.seen, self.visits, messages, symbol(self.seen.start), oracle, sent)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(uploads)]
        whole = [leaf for leaf in leaves if leaf.shape == basis.shape[1:]]
        if len(whole) != sum(len(self.parts.list(one.upload)) for one in exchanges) or not whole:
            raise NonlinearMethodError(
                f"{self.seen.algorithm.label} does not send whole arrays of the model's shape, which the algebra is "
                "about; no attack here is for it"
            )
        return unknowns, np.stack(whole)


def _check_linear(seen: Transcript, run: _Run, coefficients: np.ndarray, size: int) -> None:
    """Refuse a method that is not linear in what it is given, or does not treat all coordinates alike.

    A large basis meets every bound on norms, a small one every threshold; one whose vectors differ in length changes
    every ratio of norms.
    """
    order, lengths = np.arange(size)[::-1], SMALL ** (0.618 * np.arange(size) % 1)
    for scale, change in (
        (LARGE, np.eye(size)),
        (SMALL, np.eye(size)),
        (1.0, np.eye(size)[order]),
        (1.0, np.diag(lengths)),
    ):
        _, other = run(change, scale)
        if not np.allclose(other, scale * coefficients @ change, rtol=1e-9, atol=1e-12 * scale):
            raise NonlinearMethodError(
                f"{seen.algorithm.label} does more with its gradients than add and scale them; only matching its "
                "uploads by a replay can attack it"
            )
