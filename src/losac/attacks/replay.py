"""A replay of a client's work, as the server can do it: the algorithm's own functions, with gradients from an oracle.

The same replay serves three purposes. With the gradients of a guess it predicts what a client with that data would have
sent; with zeros it gives the part of the uploads that the server knows anyway; with unit vectors instead of gradients
it gives the coefficients with which each gradient enters each upload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Gradient, Local, ValuedGradient
from losac.algorithms.walk import Sending, Step, walk
from losac.attacks.transcript import Transcript, mean_gradient
from losac.federation.draws import LocalWork, local_work
from losac.trees import Tree, scale


class Query(NamedTuple):
    """One gradient that a client computes: the factor times the sum of the gradients of some of its rows.

    ``step`` counts all local steps of the transcript; a full gradient has that of the next one.
    """

    exchange: int
    step: int
    rows: tuple[int, ...]
    factor: float


Oracle = Callable[[Query, Tree], Tree]
"""A query and the model at which it is made → the gradient."""


def visits_of(seen: Transcript) -> list[LocalWork]:
    """Return the client's work in every exchange, with its blocks: the server knows them, as it hands out the seed."""
    if not seen.exchanges:
        raise ValueError("the client took part in none of the rounds that were watched; watch more, or another client")
    return [local_work(seen.algorithm, one.task, seen.rows) for one in seen.exchanges]


def replay(
    seen: Transcript,
    visits: Sequence[LocalWork],
    messages: Sequence[Tree],
    start: Tree,
    oracle: Oracle,
    sent: Sequence[Tree] | None = None,
) -> list[Tree]:
    """Return the uploads of a client with gradients from an oracle.

    Args:
      seen, visits: what is known of the client.
      messages: what it receives, exchange by exchange.
      start: x⁰.
      oracle: gives the gradients.
      sent: what it really sent, if transforms change uploads and its state records what was sent.
    """
    first = visits[0].algorithm
    client, uploads, done = first.init_client(start), [], 0
    table = defaultdict[int, Tree](lambda: first.init_entry(start))
    for number, (work, message) in enumerate(zip(visits, messages)):
        here, steps = _queries(seen, work, oracle, number, done)
        known = sent is not None and work.own and work.algorithm.transforms()
        sending = _as_sent(work, sent[number]) if sent is not None and known else None
        walked = walk(work.phase, here, message, client, steps, table, sending=sending)
        client, done = walked.client, done + work.steps
        uploads.append(walked.upload)
    return uploads


def _queries(seen: Transcript, work: LocalWork, oracle: Oracle, exchange: int, done: int) -> tuple[Local, list[Step]]:
    """Return what the client knows and its steps; every gradient asks the oracle."""
    draw, share = work.phase.draw, work.loss_factor(seen.rows, seen.reduction)

    def gradient(rows: Iterable[Any], factor: float, step: int) -> Gradient:
        query = Query(exchange, step, tuple(int(r) for r in rows), float(factor))
        value = getattr(oracle, "with_value", None)
        if value is None:
            return lambda params: oracle(query, params)
        return ValuedGradient(lambda params: oracle(query, params), lambda params: value(query, params))

    steps = []
    for t in range(work.steps):
        rows = work.course.batch(t)
        factor = share * (seen.rows / len(rows) if draw.batch_size else draw.blocks)
        steps.append(Step(gradient(rows, factor, done + t), int(work.course.block[t])))
    return work.here(seen.regularizer.prox, gradient(range(seen.rows), share, done)), steps


def _as_sent(work: LocalWork, sent: Tree) -> Sending:
    return Sending(lambda upload: (upload, sent, ()), work.algorithm.record)


def row_gradient(loss: Callable[..., Any], data: Any, labels: Any) -> Oracle:
    """Return the oracle of a client with this data; ``loss`` is the mean over a batch."""
    return RowGradient(loss, data, labels)


class RowGradient:
    """The oracle of a client with some data, which also knows the loss."""

    def __init__(self, loss: Callable[..., Any], data: Any, labels: Any) -> None:
        self.loss, self.data, self.labels = loss, data, labels

    def __call__(self, query: Query, params: Tree) -> Tree:
        """Return the gradient."""
        return scale(query.factor * len(query.rows), mean_gradient(self.loss)(params, self._batch(query)))

    def with_value(self, query: Query, params: Tree) -> tuple[Any, Tree]:
        """Return the loss, scaled as the gradient is, and the gradient."""
        return query.factor * len(query.rows) * self.loss(params, self._batch(query)), self(query, params)

    def _batch(self, query: Query) -> Any:
        rows = np.array(query.rows)
        return self.data[rows], self.labels[rows]


def true_gradients(
    seen: Transcript, loss: Callable[..., Any], data: Any, labels: Any
) -> list[tuple[Query, Tree, Tree]]:
    """Return every gradient that the client computed, with its model: what the server does *not* see."""
    found: list[tuple[Query, Tree, Tree]] = []
    exact = row_gradient(loss, data, labels)

    def oracle(query: Query, params: Tree) -> Tree:
        found.append((query, params, exact(query, params)))
        return found[-1][2]

    visits = visits_of(seen)
    sent = [one.upload for one in seen.exchanges]
    replay(seen, visits, [one.message for one in seen.exchanges], seen.start, oracle, sent)
    return found
