"""TAMUNA: Scaffnew with sampled clients and a sparse uplink.

Reference: L. Condat, I. Agarský, G. Malinovsky, P. Richtárik, *TAMUNA: doubly accelerated distributed optimization with
local training, compression, and partial participation*, 2023, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from losac._settings import count, node
from losac.algorithms.contract import SAMPLED, Clients, Federation, Gradient, Local, Phase, Received
from losac.algorithms.facts import BIASED, EXACT, PROBABILITIES, Example, Theory
from losac.algorithms.scaffnew import Scaffnew
from losac.trees import Tree, axpy, map_trees, sub, zeros


class Pattern(NamedTuple):
    """Who sends what: coordinate k belongs to the s columns sk, …, sk + s − 1 (mod S)."""

    senders: int
    columns: int

    def places(self, column: Any, size: int) -> Any:
        """Return the coordinates of one column among ``size``; padded by places beyond the end."""
        most = -(-self.senders * size // self.columns)
        return (column + self.columns * jnp.arange(most)) // self.senders


@partial(jax.tree_util.register_dataclass, data_fields=["values", "column"], meta_fields=["shape", "pattern"])
@dataclass(frozen=True)
class Part:
    """One encoded array: the entries of one column; both sides know the shape and the pattern."""

    values: Any
    column: Any
    shape: tuple[int, ...]
    pattern: Pattern


class Turn(NamedTuple):
    """A client's control variate h, the model w it arrived at, and its column of the round's pattern."""

    h: Tree
    w: Tree
    column: Any


class Tamuna(Scaffnew):
    r"""TAMUNA: of S sampled clients, s take it in turns to send each coordinate.

    .. math::
       \hat w_i &\leftarrow \hat w_i - \eta\big(g_i(\hat w_i) - h_i\big) \;\text{ a geometric number of times}, \\
       x^+ &= \frac1s\sum_{i\in\mathcal S} q_i \odot \hat w_i, \qquad
       h_i \leftarrow h_i + \frac{p\,\chi}{\eta}\, q_i \odot (x^+ - \hat w_i), \qquad \chi = \frac{N(s-1)}{s(N-1)}.

    The masks q_i ∈ {0, 1}^d have s ones in every coordinate: coordinate k of an array belongs to the columns sk, …,
    sk + s − 1 (mod S) of a pattern; the S clients take its columns in a random order that all of them know. The
    clients of a round receive x⁺ in order to renew h_i, and Σ h_i stays zero. With s = S = N it is Scaffnew. It
    converges to the exact optimum with sampled clients and full local gradients; s < S needs all S to answer.

    Args:
      step_size: η, the local step.
      blocks: how local data is drawn.
      probability: p; the number of local steps is geometric with mean 1/p.
      sparsity: s, from 2 to S: the number of clients that send each coordinate; None: all S.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.tamuna(step_size=1e-3, blocks=5, probability=0.2)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2302.09832
    """

    title = "TAMUNA"
    tuned = PROBABILITIES
    example = Example(0.3, local_steps=None, settings={"probability": 0.3})
    theory = (Theory(EXACT, EXACT, BIASED),)

    partial = True
    server_rows = True
    free = Scaffnew.free | {"sparsity", SAMPLED}

    sparsity: int | None = count(default=None, kw_only=True)

    def validate(self) -> None:
        """Refuse one sender per coordinate, with which h_i would never change."""
        super().validate()
        if self.sparsity == 1:
            raise ValueError("tamuna: sparsity=1 leaves nothing to compare a coordinate with: use at least 2")
        if self.uploads:
            raise ValueError("tamuna has its own sparse uplink, so uploads must be empty")

    @property
    def needs_all_replies(self) -> bool:
        """A coordinate that one of its senders leaves out would be too small, and Σ h_i no longer zero."""
        return True

    def phases(self) -> tuple[Phase, ...]:
        """Train; then return the average to the same clients."""
        return self, Settle(self.probability, self.step_size, self.sparsity)

    def init_client(self, x: Tree) -> Turn:  # type: ignore[override]
        """Start with h_i = 0."""
        return Turn(zeros(x), x, jnp.zeros((), jnp.int32))

    def begin(self, here: Local, x: Tree, client: Turn) -> tuple[Tree, Turn]:  # type: ignore[override]
        """Start from the broadcast model."""
        return x, client

    def end(self, here: Local, x: Tree, client: Turn, w: Tree) -> tuple[Tree, Turn]:  # type: ignore[override]
        """Send some coordinates of the move."""
        column = jax.random.permutation(here.common, jnp.arange(here.sampled, dtype=jnp.int32))[here.slot]
        return pack(pattern_of(self.sparsity, here), column, sub(w, x)), Turn(client.h, w, column)

    def receive(self, row: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Put the coordinates back in their places."""
        return unpack(upload), row

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Average each coordinate over its s senders."""
        pattern = pattern_of(self.sparsity, here)
        return axpy(pattern.columns / (pattern.senders * received.count), received.total, x)


class Settle(Phase):
    """The clients of the round receive the average and renew their control variates; they send nothing."""

    clients: ClassVar[Clients] = "same"

    probability: Any = node()
    step_size: Any = node()
    sparsity: int | None = count(default=None)

    def step(self, here: Local, x: Tree, client: Turn, local: Tree, grad: Gradient, *y: Tree) -> Tree:
        """Change nothing: the round's random number of steps has been taken."""
        return local

    def end(self, here: Local, x: Tree, client: Turn, local: Tree) -> tuple[Tree, Turn]:
        """Renew h_i where the client sent its coordinate."""
        pattern, n = pattern_of(self.sparsity, here), here.clients
        chi = n * (pattern.senders - 1) / (pattern.senders * (n - 1))
        gap = unpack(pack(pattern, client.column, sub(x, client.w)))
        return (), client._replace(h=axpy(self.probability * chi / self.step_size, gap, client.h))

    def update(self, here: Federation, server: Tree, received: Received) -> Tree:
        """Change nothing."""
        return server


def pattern_of(sparsity: int | None, here: Local | Federation) -> Pattern:
    """Return the pattern of s senders among S clients."""
    s = sparsity or here.sampled
    if not 2 <= s <= here.sampled:
        raise ValueError(
            f"tamuna needs 2 ≤ sparsity ≤ clients per round, not sparsity={s} with {here.sampled} clients per round"
        )
    return Pattern(s, here.sampled)


def pack(pattern: Pattern, column: Any, tree: Tree) -> Tree:
    """Return the entries of one column."""

    def entries(v: Any) -> Part:
        places = pattern.places(column, v.size)
        return Part(jnp.take(v.reshape(-1), places, mode="fill", fill_value=0), column, v.shape, pattern)

    return map_trees(entries, tree)


def unpack(parts: Tree) -> Tree:
    """Return arrays that are zero except at the places of one column."""

    def spread(part: Part) -> Any:
        blank = jnp.zeros(part.shape, part.values.dtype).reshape(-1)
        places = part.pattern.places(part.column, blank.size)
        return blank.at[places].set(part.values, mode="drop").reshape(part.shape)

    return map_trees(spread, parts, is_leaf=lambda p: isinstance(p, Part))
