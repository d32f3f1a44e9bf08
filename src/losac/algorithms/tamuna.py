"""TAMUNA: Scaffnew with sampled clients and a sparse uplink.

Reference: L. Condat, I. Agarský, G. Malinovsky, P. Richtárik, *TAMUNA: doubly accelerated distributed optimization with
local training, compression, and partial participation*, 2023, Algorithm 1.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from losac._settings import count, node
from losac.algorithms.contract import Clients, Federation, Gradient, Local, Phase, Received
from losac.algorithms.scaffnew import Scaffnew
from losac.trees import Tree, axpy, map_trees, sub, zeros


class Turn(NamedTuple):
    """A client's control variate h, the model w it arrived at, and its column of the round's pattern."""

    h: Tree
    w: Tree
    column: Any


class Tamuna(Scaffnew):
    r"""TAMUNA: of S sampled clients, a random s send each coordinate.

    .. math::
       \hat w_i &\leftarrow \hat w_i - \eta\big(g_i(\hat w_i) - h_i\big) \;\text{ a geometric number of times}, \\
       x^+ &= \frac1s\sum_{i\in\mathcal S} q_i \odot \hat w_i, \qquad
       h_i \leftarrow h_i + \frac{p\,\chi}{\eta}\, q_i \odot (x^+ - \hat w_i), \qquad \chi = \frac{N(s-1)}{s(N-1)}.

    The masks q_i ∈ {0, 1}^d have s ones in every coordinate: row k of the pattern has them at s columns in turn,
    starting from sk mod S, and the S clients take its columns in a random order that all of them know. The clients of a
    round receive x⁺ in order to renew h_i, whose sum stays zero. With s = S = N it is Scaffnew. It converges to the
    exact optimum with sampled clients and full local gradients; s < S needs all the S clients to answer.

    Args:
      step_size: η, the local step.
      blocks: how local data is drawn.
      probability: p; the number of local steps is geometric with mean 1/p.
      sparsity: s, from 2 to S: by how many clients each coordinate is sent; None: by all S.
    """

    partial = True

    sparsity: int | None = count(None, kw_only=True)

    def validate(self) -> None:
        """One sender per coordinate would never renew h_i."""
        super().validate()
        if self.sparsity == 1:
            raise ValueError("tamuna: sparsity=1 leaves nothing to compare a coordinate with: use at least 2")
        if self.uploads:
            raise ValueError("tamuna has a compressed uplink of its own and takes no transforms: uploads must be empty")

    def phases(self) -> tuple[Phase, ...]:
        """Train; then return the average to the same clients."""
        return self, Settle(self)

    def init_client(self, x: Tree) -> Turn:
        """Start with h_i = 0."""
        return Turn(zeros(x), x, np.zeros((), np.int32))

    def begin(self, here: Local, x: Tree, client: Turn) -> tuple[Tree, Turn]:
        """Start from the broadcast model."""
        return x, client

    def end(self, here: Local, x: Tree, client: Turn, w: Tree) -> tuple[Tree, Turn]:
        """Send some coordinates of the move."""
        column = jax.random.permutation(here.common, np.arange(here.sampled, dtype=np.int32))[here.slot]
        client = Turn(client.h, w, column)
        return map_trees(lambda q, w, x: q * (w - x), self.mask(here, client), w, x), client

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Average each coordinate over its s senders."""
        return axpy(here.sampled / (self.senders(here) * received.count), received.total, x)

    def senders(self, here: Local | Federation) -> int:
        """Return s."""
        s: int = self.sparsity or here.sampled
        if not 2 <= s <= here.sampled:
            raise ValueError(
                f"tamuna needs 2 ≤ sparsity ≤ clients per round, not sparsity={s} with {here.sampled} clients per round"
            )
        return s

    def mask(self, here: Local, client: Turn) -> Tree:
        """Return q_i, the client's column of the pattern."""
        s, columns = self.senders(here), here.sampled
        leaves, structure = jax.tree.flatten(client.w)
        first = np.cumsum([0, *(leaf.size for leaf in leaves)])
        rows = [np.arange(k, k + leaf.size).reshape(leaf.shape) for k, leaf in zip(first, leaves)]
        return structure.unflatten([(client.column - s * (k % columns)) % columns < s for k in rows])


class Settle(Phase):
    """The clients of the round receive the average and renew their control variates; they send nothing."""

    clients: ClassVar[Clients] = "same"

    method: Tamuna = node()

    def step(self, here: Local, x: Tree, client: Turn, local: Tree, grad: Gradient) -> Tree:
        """Change nothing."""
        return local

    def end(self, here: Local, x: Tree, client: Turn, local: Tree) -> tuple[Tree, Turn]:
        """Renew h_i where the client sent its coordinate."""
        s, n = self.method.senders(here), here.clients
        rate = self.method.probability / self.method.step_size * (n * (s - 1) / (s * (n - 1)))
        gap = sub(x, client.w)
        h = map_trees(lambda h, q, gap: h + rate * (q * gap), client.h, self.method.mask(here, client), gap)
        return (), client._replace(h=h)

    def update(self, here: Federation, server: Tree, received: Received) -> Tree:
        """Change nothing."""
        return server
