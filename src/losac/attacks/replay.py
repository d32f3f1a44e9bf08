"""A client's work over again, as the server can do it: the algorithm's own functions, with gradients from an oracle.

The same replay serves three purposes. With the gradients of a guess it predicts what a client with that data would have
sent; with zeros it gives the part of the uploads that the server knows anyway; with unit vectors in place of gradients
it gives the coefficients with which each gradient enters each upload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Algorithm, Local, Phase
from losac.attacks.transcript import Transcript, mean_gradient
from losac.federation.draws import Course, course_of
from losac.federation.work import Assignment
from losac.simulation.client import averages_by_weight
from losac.simulation.drawing import step_counts
from losac.trees import Tree, map_trees, scale


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


class Visit(NamedTuple):
    """What is known of one exchange before any gradient: the method of the round, its phase and its draws."""

    algorithm: Algorithm
    phase: Phase
    course: Course
    steps: int
    task: Assignment


def visits_of(seen: Transcript) -> list[Visit]:
    """Return the visits of a transcript, with the blocks that the server knows, because it handed out the seed."""
    if not seen.exchanges:
        raise ValueError("the client took part in none of the rounds that were watched; watch more, or another client")
    found = []
    for one in seen.exchanges:
        task = one.task
        now: Algorithm = map_trees(float, seen.algorithm.at(jnp.asarray(task.round, jnp.int32)))
        phase = now.phases()[task.place]
        own = task.steps if phase is now else None
        steps = int(step_counts(phase.draw, np.array([seen.rows]))[0]) if own is None else own
        found.append(Visit(now, phase, course_of(task, phase.draw, seen.rows, steps), steps, task))
    return found


def replay(
    seen: Transcript, visits: Sequence[Visit], messages: Sequence[Tree], start: Tree, oracle: Oracle, sent: Any = None
) -> list[Tree]:
    """Return the uploads of a client whose gradients an oracle gives.

    Args:
      seen, visits: what is known of the client.
      messages: what it receives, exchange by exchange.
      start: x⁰.
      oracle: gives the gradients.
      sent: what it really sent, where transforms change uploads and its state records what was sent.
    """
    first = visits[0].algorithm
    state, uploads, step = first.init_client(start), [], 0
    table: dict[int, Tree] = {}
    for number, (visit, message) in enumerate(zip(visits, messages)):
        now, phase, course, steps, task = visit
        share = 1.0 if averages_by_weight(phase) else task.weight
        share = share / seen.rows if seen.reduction == "mean" else share
        draw = phase.draw

        def gradient(rows: Any, factor: float, at: int = step, number: int = number) -> Callable[[Tree], Tree]:
            query = Query(number, at, tuple(int(r) for r in rows), float(factor))
            return lambda params: oracle(query, params)

        full = gradient(range(seen.rows), share)
        here = Local(
            task.clients, task.sampled, seen.regularizer.prox, draw.blocks, steps, full, task.slot, course.common
        )
        local, state = phase.begin(here, message, state)
        for t in range(steps):
            rows = course.batch(t)
            factor = share * (seen.rows / len(rows) if draw.batch_size else draw.blocks)
            grad = gradient(rows, factor, step)
            if phase.table:
                j = int(course.block[t])
                old = table.get(j)
                local, table[j] = phase.step(
                    here, message, state, local, grad, now.init_entry(start) if old is None else old
                )
            else:
                local = phase.step(here, message, state, local, grad)
            step += 1
        upload, state = phase.end(here, message, state, local)
        if sent is not None and phase is now and now.transforms():
            if now.table:
                j = int(course.block[steps - 1])
                state, table[j] = now.record(here, upload, sent[number], state, table[j])
            else:
                (state,) = now.record(here, upload, sent[number], state)
        uploads.append(upload)
    return uploads


def row_gradient(loss: Callable[..., Any], data: Any, labels: Any) -> Oracle:
    """Return the oracle of a client with this data; ``loss`` is the mean over a batch."""

    def oracle(query: Query, params: Tree) -> Tree:
        rows = np.array(query.rows)
        return scale(query.factor * len(rows), mean_gradient(loss)(params, (data[rows], labels[rows])))

    return oracle


def true_gradients(
    seen: Transcript, loss: Callable[..., Any], data: Any, labels: Any
) -> list[tuple[Query, Tree, Tree]]:
    """Return every gradient that the client computed, and the model at which: what the server does *not* see."""
    found: list[tuple[Query, Tree, Tree]] = []
    exact = row_gradient(loss, data, labels)

    def oracle(query: Query, params: Tree) -> Tree:
        found.append((query, params, exact(query, params)))
        return found[-1][2]

    visits = visits_of(seen)
    sent = [one.upload for one in seen.exchanges]
    replay(seen, visits, [one.message for one in seen.exchanges], seen.start, oracle, sent)
    return found
