"""The fixed part of a server: the algorithm, the rules, and what follows from both."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import jax
import numpy as np

from losac.algorithms.aggregation import check_aggregation
from losac.algorithms.contract import Algorithm, Federation
from losac.algorithms.privacy import refuse_model_state
from losac.federation.arrays import border
from losac.federation.book import Book, Rules
from losac.federation.shapes import credit_zeros, payload_like, share_like
from losac.prox import Regularizer
from losac.simulation.engines.resident import precision
from losac.simulation.program.setup import cast_numbers
from losac.simulation.sampling import Sampler
from losac.trees import Tree, map_trees


class Setting:
    """The fixed part of a server.

    Args:
      algorithm: the method.
      rules: see :class:`losac.federation.book.Rules`.
      params, model_state: x⁰ and the model's first state.
      regularizer: Ψ.
      sampler: who is asked in a round, as for :func:`losac.simulate`.
      frozen: the digest of the frozen weights, which the clients must have too; empty if there are none.
    """

    def __init__(
        self, algorithm: Algorithm, rules: Rules, params: Tree, model_state: Tree, regularizer: Regularizer,
        sampler: Sampler, frozen: str = "",
    ) -> None:  # fmt: skip
        if not algorithm.partial and rules.clients_per_round < rules.clients:
            raise ValueError(
                f"{algorithm.label} needs every client in every round: use clients_per_round={rules.clients}"
            )
        refuse_model_state(algorithm, model_state)
        check_aggregation(algorithm, rules.fewest, rules.fewest, f"fewest={rules.fewest} replies", model_state)
        self.given = algorithm  # as it was given; below with its numbers in the run's dtype
        self.algorithm: Any = cast_numbers(algorithm, rules.dtype)
        self.rules, self.regularizer, self.sampler, self.frozen = rules, regularizer, sampler, frozen
        self.params, self.model_state = self.own(params), self.own(model_state)
        self.here = Federation(rules.clients, rules.clients_per_round, cast_numbers(regularizer, rules.dtype).prox)
        self.payload_like = lru_cache(None)(self._payload_like)
        if rules.secure is not None:
            from losac.federation.secure.refusals import check_secure

            check_secure(self)

    @cached_property
    def no_credit(self) -> Tree:
        """The credit of nothing; without leaves if the algorithm keeps no sum at the server."""
        return self.own(credit_zeros(self.algorithm, self.params, self.rules.clients, self.rules.clients_per_round))

    @property
    def no_total(self) -> Tree:
        """The sum of no credits: in whole numbers of steps where uploads are summed under masks."""
        return map_trees(lambda a: np.zeros(a.shape, np.int64), self.no_credit) if self.rules.secure else self.no_credit

    @cached_property
    def share_like(self) -> Any:
        """The shapes of what a client is told of its accepted upload; None where it is told nothing."""
        with precision(np.dtype(self.rules.dtype)):
            return share_like(self.algorithm, self.params, self.rules.clients, self.rules.clients_per_round)

    @cached_property
    def keeps_sums(self) -> bool:
        """Whether the server's state contains a sum over the clients' states."""
        return bool(jax.tree.leaves(self.no_credit))

    @cached_property
    def keeps_state(self) -> bool:
        """Whether clients keep anything between rounds."""
        client = jax.tree.leaves(self.algorithm.at(0).init_client(self.params))
        return bool(self.algorithm.table or client or self.algorithm.transforms())

    def first_book(self, run: str) -> Book:
        """Return the book before the first round."""
        server = self.call(lambda: self.algorithm.at(0).init(self.params))
        return Book(run, 0, 0, 0, server, self.model_state, self.no_total, self.params, {})

    def model(self, book: Book) -> Tree:
        """Return the present model."""
        return self.algorithm.at(book.round).model(book.server)

    def shifted(self, book: Book, credit: Tree) -> Tree:
        """Return the server's state with a credit added to its sum."""
        return self.call(lambda: self.algorithm.at(book.round).shift(self.here, book.server, credit))

    def call(self, function: Callable[[], Tree]) -> Tree:
        """Return what a function of the algorithm returns, computed in the run's precision, as NumPy arrays."""
        with precision(np.dtype(self.rules.dtype)):
            return self.own(function())

    def own(self, tree: Tree) -> Tree:
        """Return a tree as NumPy arrays, with floating-point numbers in the run's dtype."""
        return border(tree, np.dtype(self.rules.dtype))

    def _payload_like(self, phase_index: int) -> Tree:
        with precision(np.dtype(self.rules.dtype)):
            return payload_like(
                self.algorithm, phase_index, self.params, self.rules.clients, self.rules.clients_per_round
            )
