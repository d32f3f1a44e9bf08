"""The structure of the messages, found by tracing an algorithm without any data: gradients have the model's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac.algorithms.aggregation import told_of
from losac.algorithms.contract import Algorithm, Gradient, Local, checked_upload, valued
from losac.algorithms.walk import Step, walk
from losac.trees import Tree, map_trees, zeros


def message_like(algorithm: Algorithm, phase_index: int, params: Tree) -> Tree:
    """Return the shapes of what the clients of a phase receive."""
    return jax.eval_shape(lambda x: algorithm.at(0).phases()[phase_index].broadcast(algorithm.at(0).init(x)), params)


def payload_like(algorithm: Algorithm, phase_index: int, params: Tree, clients: int, sampled: int) -> Tree:
    """Return the shapes of what a client sends in a phase, as it travels."""
    return _traced(algorithm, params, phase_index, clients, sampled)[0]


def credit_zeros(algorithm: Algorithm, params: Tree, clients: int, sampled: int) -> Tree:
    """Return the credit of nothing."""
    like = _traced(algorithm, params, own_phase_index(algorithm), clients, sampled)[1]
    return map_trees(lambda a: np.zeros(a.shape, a.dtype), like)


def share_like(algorithm: Algorithm, params: Tree, clients: int, sampled: int) -> Mapping[str, Tree] | None:
    """Return the shapes of what a client is told of its accepted upload; None where it is told nothing."""
    if not algorithm.acknowledges:
        return None

    def shares(params: Tree) -> Tree:
        upload = _exchange(algorithm.at(0), own_phase_index(algorithm), params, clients, sampled)[1]
        return told_of(algorithm, upload, sampled)

    like: Mapping[str, Tree] = jax.eval_shape(shares, params)
    return like


def _traced(algorithm: Algorithm, params: Tree, *rest: int) -> tuple[Tree, Tree]:
    """Return the shapes of a payload and of its credit; equal algorithms are traced once."""
    numbers, settings = jax.tree.flatten(algorithm)
    kinds = map_trees(lambda a: jax.ShapeDtypeStruct(np.shape(a), jnp.result_type(a)), params)
    leaves, structure = jax.tree.flatten(kinds)
    typed = tuple((getattr(number, "dtype", None), float(number)) for number in numbers)
    return _shapes(jnp.result_type(float), settings, typed, structure, tuple(leaves), *rest)


@lru_cache(maxsize=256)
def _shapes(
    floats: Any, settings: Any, typed: Any, structure: Any, leaves: Any, phase_index: int, clients: int, sampled: int
) -> tuple[Tree, Tree]:
    numbers = [number if dtype is None else np.asarray(number, dtype) for dtype, number in typed]
    algorithm = jax.tree.unflatten(settings, numbers).at(0)

    def sent(params: Tree) -> tuple[Tree, Tree]:
        payload, upload = _exchange(algorithm, phase_index, params, clients, sampled)
        return payload, algorithm.credit(upload) if phase_index == own_phase_index(algorithm) else ()

    shapes: tuple[Tree, Tree] = jax.eval_shape(sent, jax.tree.unflatten(structure, leaves))
    return shapes


def own_phase_index(algorithm: Algorithm) -> int:
    """Return the index of the algorithm itself among its phases."""
    return next(phase_index for phase_index, phase in enumerate(algorithm.phases()) if phase is algorithm)


def decode(algorithm: Algorithm, phase_index: int, payload: Tree) -> Tree:
    """Return what the server reads in a payload."""
    transforms = algorithm.transforms_of(algorithm.phases()[phase_index])
    return map_trees(np.asarray, transforms[-1].decode(payload)) if transforms else payload


def transform_states(algorithm: Algorithm, params: Tree) -> Tree:
    """Return a client's first state of every transform of its uploads."""
    if not algorithm.transforms():
        return ()
    like = jax.eval_shape(lambda x: traced_upload(algorithm, own_phase_index(algorithm), x, 2, 2), params)
    upload, states = map_trees(lambda a: jnp.zeros(a.shape, a.dtype), like), []
    for transform in algorithm.transforms():
        states.append(transform.init(upload))
        upload = transform.decode(transform.encode(_random.any_key(), states[-1], upload)[0])
    return tuple(states)


def traced_upload(
    algorithm: Algorithm,
    phase_index: int,
    params: Tree,
    clients: int,
    sampled: int,
    gradient: Gradient = zeros,
    full: Gradient = zeros,
) -> Tree:
    """Return an upload as the algorithm makes it, after one local step; ``gradient`` and ``full`` see what it asks."""
    phase, nought = algorithm.phases()[phase_index], jnp.zeros((), jnp.int32)
    here = Local(
        clients, sampled, lambda x, step: x, phase.draw.blocks, nought + 1, full, nought, _random.any_key()
    )  # fmt: skip
    steps = [Step(valued(gradient))] if phase.draw.steps != 0 else []
    table = {0: algorithm.init_entry(params)} if phase.table else None
    message = phase.broadcast(algorithm.init(params))
    walked = walk(phase, here, message, algorithm.init_client(params), steps, table)
    return checked_upload(algorithm, walked.upload)


def _exchange(algorithm: Algorithm, phase_index: int, params: Tree, clients: int, sampled: int) -> tuple[Tree, Tree]:
    """Return a payload, and what is read in it."""
    payload = upload = traced_upload(algorithm, phase_index, params, clients, sampled)
    for transform in algorithm.transforms_of(algorithm.phases()[phase_index]):
        payload, _ = transform.encode(_random.any_key(), transform.init(upload), upload)
        upload = transform.decode(payload)
    return payload, upload
