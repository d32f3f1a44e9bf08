"""The server of a federation in its plainest form: one loop, no transport, every number as the simulator has it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac._random import chance_uniform as lot
from losac.algorithms.contract import Federation, Received
from losac.federation.work import Assignment, Kept, Message
from losac.prox import zero
from losac.simulation.engines.resident import precision
from losac.simulation.program.client import averages_by_weight
from losac.simulation.program.setup import cast_numbers
from losac.trees import add, map_trees, scale
from problems import drawn_clients


class Outcome(NamedTuple):
    """What a federation arrives at."""

    params: Any
    model_state: Any
    kept: list[Kept]
    gradients: float


def federate(
    algorithm: Any, workers: list[Any], params: Any, *, rounds: int, sampled: int, seed: int = 0,
    weights: Any = None, regularizer: Any = None, model_state: Any = (),
) -> Outcome:  # fmt: skip
    """Run a federation of workers from x⁰."""
    dtype = np.result_type(*jax.tree.leaves(params))
    with precision(dtype):
        return _federate(
            cast_numbers(algorithm, dtype), workers, params, rounds, sampled, seed,
            np.ones(len(workers)) if weights is None else len(workers) * np.asarray(weights),
            regularizer or zero(), model_state,
        )  # fmt: skip


def _federate(algorithm, workers, params, rounds, sampled, seed, weights, regularizer, model_state) -> Outcome:
    clients, gradients = len(workers), 0.0
    server = algorithm.at(0).init(params)
    kept = [worker.start(params) for worker in workers]
    rows = [algorithm.at(0).init_server_row(params) for _ in workers]
    here = Federation(clients, sampled, regularizer.prox)
    for r in range(rounds):
        now = algorithm.at(jnp.asarray(r, jnp.int32))
        key = jax.random.fold_in(jax.random.key(seed), r)
        steps = now.draw_steps(jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32))
        for place, phase in enumerate(now.phases()):
            if phase.chance is not None and not lot(jax.random.fold_in(key, place)) < phase.chance:
                continue
            who = np.arange(clients) if phase.clients == "all" else drawn_clients(seed, r, clients, sampled)
            message = Message(map_trees(np.asarray, phase.broadcast(server)), model_state)
            total, count = None, 0.0
            for slot, i in enumerate(int(c) for c in who):
                task = Assignment(
                    seed, r, place, i, slot, clients, sampled, float(weights[i]), None if steps is None else int(steps)
                )
                result = workers[i].work(task, message, kept[i])
                kept[i], content, gradients = result.kept, result.upload.content, gradients + result.gradients
                transforms = now.transforms_of(phase)
                content = transforms[-1].decode(content) if transforms else content
                if phase is now:
                    content, rows[i] = now.receive(rows[i], content)
                share = float(weights[i]) if averages_by_weight(phase) else 1.0
                sent = scale(share, (content, result.upload.model_state))
                total, count = sent if total is None else add(total, sent), count + share
            server = phase.update(here, server, Received(total[0], count))
            model_state = map_trees(lambda s, d, n=count: np.asarray(s + d / n, s.dtype), model_state, total[1])
    return Outcome(map_trees(np.asarray, algorithm.at(rounds).model(server)), model_state, kept, gradients)


def distance(a: Any, b: Any) -> float:
    """The largest difference of two trees, relative to the largest number of the second."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    pairs = [(np.asarray(u), np.asarray(v)) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(b))]
    return float(max(np.abs(u - v).max() for u, v in pairs) / max(np.abs(v).max() for _, v in pairs))
