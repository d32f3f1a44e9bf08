"""Attack all uploads of a client at once, by running a guess of its data through its whole work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac.attacks.attack import (
    Attack,
    Data,
    Recovered,
    apart,
    bases_of,
    best_of_starts,
    check_classes,
    row_loss,
    search_one,
)
from losac.attacks.parts import ModelParts
from losac.attacks.replay import Oracle, Query, replay, visits_of
from losac.attacks.transcript import Transcript
from losac.federation.draws import LocalWork
from losac.trees import Array, Tree, map_trees


def run_unrolled(
    attack: Attack,
    loss: Callable[..., Any],
    seen: Transcript,
    labels: np.ndarray,
    data: Data,
    *,
    span: np.ndarray | None = None,
    restarts: int = 1,
    seed: int = 0,
) -> Recovered:
    """Attack one client by all that it sent, differentiating through its local steps over all rounds.

    A guess of the data runs through the client's whole work and is compared with every upload. No gradient needs to be
    known, and the attack uses what the algebra cannot: all gradients come from the same rows.

    Args:
      attack, loss, data, restarts, seed: as for :func:`run`.
      seen: the client's transcript.
      labels: of its rows.
      span: of its rows, if the attack keeps to it.
    """
    check_classes(attack, data)
    bases = bases_of(attack, [span], 1, int(np.prod(data.shape)))
    keys = _random.start_keys(seed, (1, restarts))
    labels, visits = np.asarray(labels)[None], visits_of(seen)

    @jax.jit
    def all_starts(uploads: Array, labels: Array, bases: Array, keys: Array) -> tuple[Array, Array, Array]:
        gap = uploads_apart(attack.distance, loss, seen, visits, uploads)
        one = partial(search_one, attack, data, gap)
        return jax.vmap(jax.vmap(one, in_axes=(None, None, 0)))(labels, bases, keys)

    return best_of_starts(*all_starts(innovations(seen), labels, bases, keys))


def innovations(seen: Transcript) -> Array:
    """Return the uploads less those of a client without gradients, part by part: [parts, d]."""
    messages, start = map_trees(
        lambda a: np.asarray(a, np.float64), ([one.message for one in seen.exchanges], seen.start)
    )
    sent = [one.upload for one in seen.exchanges]
    known = replay(seen, visits_of(seen), messages, start, lambda query, params: map_trees(np.zeros_like, params), sent)
    parts = ModelParts(seen.start)
    found = [parts.flat(a) - parts.flat(b) for a, b in zip(parts.list(sent), parts.list(known))]
    if not found:
        raise ValueError(
            f"{seen.algorithm.label} does not send whole arrays of the model's shape, and cannot be attacked by them"
        )
    return np.stack(found).astype(np.float32)


def uploads_apart(
    kind: str, loss: Any, seen: Transcript, visits: Sequence[LocalWork], observed: Array
) -> Callable[[Array, Array], Array]:
    """Return how far the uploads of a client with some rows and labels are from the observed ones."""
    messages, start = map_trees(jnp.asarray, ([one.message for one in seen.exchanges], seen.start))
    sent, parts = [one.upload for one in seen.exchanges], ModelParts(seen.start)

    def uploads(oracle: Oracle) -> Array:
        found = parts.list(replay(seen, visits, messages, start, oracle, sent))
        return jnp.stack([jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(part)]) for part in found])

    known = uploads(lambda query, params: map_trees(jnp.zeros_like, params))

    def gap(x: Array, y: Array) -> Array:
        def oracle(query: Query, params: Tree) -> Tree:
            rows = np.array(query.rows)
            return jax.grad(lambda p: query.factor * jax.vmap(partial(row_loss, loss, p))(x[rows], y[rows]).sum())(
                params
            )

        return jax.vmap(partial(apart, kind))(uploads(oracle) - known, observed).mean()

    return gap
