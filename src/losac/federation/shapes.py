"""The structure of the messages, found by tracing an algorithm without any data: gradients have the model's shapes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Algorithm, Local
from losac.trees import Tree, map_trees, zeros


def message_like(algorithm: Algorithm, place: int, params: Tree) -> Tree:
    """Return the shapes of what the clients of a phase receive."""
    return jax.eval_shape(lambda x: algorithm.at(0).phases()[place].broadcast(algorithm.at(0).init(x)), params)


def payload_like(algorithm: Algorithm, place: int, params: Tree, clients: int, sampled: int) -> Tree:
    """Return the shapes of what a client sends in a phase, as it travels."""
    return jax.eval_shape(lambda x: _exchange(algorithm.at(0), place, x, clients, sampled)[0], params)


def credit_zeros(algorithm: Algorithm, params: Tree, clients: int, sampled: int) -> Tree:
    """Return the credit of nothing."""
    place, now = own_place(algorithm), algorithm.at(0)
    like = jax.eval_shape(lambda x: now.credit(_exchange(now, place, x, clients, sampled)[1]), params)
    return map_trees(lambda a: np.zeros(a.shape, a.dtype), like)


def own_place(algorithm: Algorithm) -> int:
    """Return the place of the algorithm itself among its phases."""
    return next(place for place, phase in enumerate(algorithm.phases()) if phase is algorithm)


def decode(algorithm: Algorithm, place: int, payload: Tree) -> Tree:
    """Return what the server reads in a payload."""
    transforms = algorithm.transforms_of(algorithm.phases()[place])
    return map_trees(np.asarray, transforms[-1].decode(payload)) if transforms else payload


def transform_states(algorithm: Algorithm, params: Tree) -> Tree:
    """Return a client's first state of every transform of its uploads."""
    if not algorithm.transforms():
        return ()
    like = jax.eval_shape(lambda x: _upload(algorithm, own_place(algorithm), x, 2, 2), params)
    upload, states = map_trees(lambda a: jnp.zeros(a.shape, a.dtype), like), []
    for transform in algorithm.transforms():
        states.append(transform.init(upload))
        upload = transform.decode(transform.encode(jax.random.key(0), states[-1], upload)[0])
    return tuple(states)


def _upload(algorithm: Algorithm, place: int, params: Tree, clients: int, sampled: int) -> Tree:
    """Return an upload as the algorithm makes it."""
    phase, nought = algorithm.phases()[place], jnp.zeros((), jnp.int32)
    here = Local(
        clients, sampled, lambda x, step: x, phase.draw.blocks, nought + 1, zeros, nought, jax.random.key(0)
    )  # fmt: skip
    message = phase.broadcast(algorithm.init(params))
    local, client = phase.begin(here, message, algorithm.init_client(params))
    entry: Any = (algorithm.init_entry(params),) if phase.table else ()
    if phase.draw.steps != 0:
        local = phase.step(here, message, client, local, zeros, *entry)
        local = local[0] if phase.table else local
    return phase.end(here, message, client, local)[0]


def _exchange(algorithm: Algorithm, place: int, params: Tree, clients: int, sampled: int) -> tuple[Tree, Tree]:
    """Return a payload, and what is read in it."""
    payload = upload = _upload(algorithm, place, params, clients, sampled)
    for transform in algorithm.transforms_of(algorithm.phases()[place]):
        payload, _ = transform.encode(jax.random.key(0), transform.init(upload), upload)
        upload = transform.decode(payload)
    return payload, upload
