r"""The stage between the uploads and the server: what it uses instead of their plain sum.

Every rule here is linear in each entry of the uploads: it chooses weights :math:`w_i`, one number for each client or
one for each entry, and the server takes :math:`\sum_i a_i u_i` with

.. math:: a_i = n w_i \;\text{ for what moves the model only}, \qquad
   a_i = \min(1, n w_i) \;\text{ for what clients record},

where n is the number of uploads and the plain mean has :math:`w_i = 1/n`, so :math:`a_i = 1`. What clients record are
the parts of an upload that enter their control variates, tables or duals, such as LoSAC's Δφ and SCAFFOLD's Δc: a
client that is told :math:`a_i` records :math:`a_i u_i` there, and the server's sum stays the sum of the clients' states
to rounding (φ = κ Σ y, Σ c_i = N c). There :math:`a_i \le 1`: a client's new state lies between what it was and what
it would be. What was not accepted it sends again later.

Each part of an upload (the fields of its named tuple) is weighed on its own: in one norm over all of them the part with
the largest unit would hide lies in the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac import _random
from losac._settings import Settings, choice
from losac.algorithms.parts import as_rows, map_arrays, parts, replaced
from losac.trees import Array, Tree, map_trees


class Stage(Settings):
    """A step of the aggregation; ``uploads`` below is [n, d], of which only the rows that are ``active`` are there."""

    def check(self, uploads: int) -> int:
        """Refuse a number of uploads that is too small; return how many vectors leave this stage."""
        return uploads


class Mixing(Stage):
    """A stage in front of an aggregator: it replaces the uploads by averages of some of them."""

    def mix(self, key: Any, uploads: Array, active: Array) -> tuple[Array, Array]:
        """Return the shares [m, n] of the uploads in the averages, and which of these are there."""
        raise NotImplementedError


class Aggregator(Stage):
    """The last stage: it weighs the uploads."""

    acknowledged: bool = choice(default=True, choices=(True, False), kw_only=True)
    """Whether clients are told which share of their upload was used, to record it; only for comparisons without."""

    def weigh(self, uploads: Array, active: Array) -> Array:
        """Return the weights, [n] or [n, d]; those of uploads that are not there do not count."""
        raise NotImplementedError


class Collected(NamedTuple):
    """What the server uses of the uploads.

    ``total`` replaces their sum. ``shares`` are the a_i, in shapes that multiply the uploads.
    """

    total: Tree
    shares: Tree


@partial(jax.jit, static_argnums=4)
def aggregate(
    stages: tuple[Stage, ...], key: Any, uploads: Tree, active: Array, recorded: tuple[str, ...]
) -> Collected:
    """Return what the server uses of some uploads.

    Args:
      stages: mixings, then an aggregator; none: the plain sum.
      key: for stages that draw random numbers.
      uploads: a tree of arrays led by the uploads.
      active: which of them are there.
      recorded: the names of the parts that clients record.

    >>> import losac, numpy as np
    >>> uploads = np.array([[1.0], [2.0], [3.0], [1e9]])
    >>> stages = (losac.algorithms.trimmed_mean(liars=1),)
    >>> aggregate(stages, None, uploads, np.ones(4, bool), ()).total.tolist()
    [10.0]
    """
    active = jnp.asarray(active)
    found = {name: _part(stages, key, part, active, name in recorded) for name, part in parts(uploads).items()}
    totals, shares = ({name: one[k] for name, one in found.items()} for k in range(2))
    return Collected(replaced(uploads, totals), replaced(uploads, shares))


def told(shares: Tree, recorded: Sequence[str]) -> dict[str, Tree]:
    """Return of the shares what clients must be told: those of the parts that they record."""
    return {name: part for name, part in parts(shares).items() if name in recorded}


def told_of(algorithm: Any, upload: Tree, uploads: int) -> dict[str, Tree]:
    """Return what a client is told of its upload if all send the same, for its shapes; {} where it is told nothing."""
    if not algorithm.acknowledges:
        return {}
    several, recorded = map_trees(lambda a: jnp.stack([a] * uploads), upload), algorithm.records(upload)
    there = jnp.ones(uploads, bool)
    found = aggregate(algorithm.aggregation, _random.any_key(), several, there, recorded)
    return map_trees(lambda a: a[0], told(found.shares, recorded))


def accepted(upload: Tree, share: Mapping[str, Tree]) -> Tree:
    """Return a client's upload as the server used it, from what it was told."""
    used = {
        name: map_trees(lambda a, u: a * u, share[name], part) for name, part in parts(upload).items() if name in share
    }
    return replaced(upload, used)


def _part(stages: Sequence[Stage], key: Any, part: Tree, active: Array, recorded: bool) -> Collected:
    rows, back = as_rows(part)
    rows = jnp.where(active[:, None], rows, 0)
    shares = active.astype(rows.dtype)
    if stages:
        shares = _weights(stages, key, rows, active) * active.sum().astype(rows.dtype)
        shares = jnp.where(_lead(active, shares), shares, 0)
        if recorded:
            shares = jnp.minimum(shares, 1)
    each = back(shares.reshape(len(active), -1))
    total = map_trees(lambda a, u: jnp.where(_lead(active, u), a * u, 0).sum(0), each, map_arrays(part))
    return Collected(total, each)


def _weights(stages: Sequence[Stage], key: Any, uploads: Array, active: Array) -> Array:
    """Return the weights of the uploads behind those of the averages that are aggregated."""
    *mixings, last = stages
    shares: Any = None
    for index, stage in enumerate(mixings):
        found, active = stage.mix(None if key is None else _random.stage_key(key, index), uploads, active)  # type: ignore[attr-defined]
        uploads = found @ uploads
        shares = found if shares is None else found @ shares
    weights = jnp.where(_lead(active, found := last.weigh(uploads, active)), found, 0)  # type: ignore[attr-defined]
    return weights if shares is None else shares.T @ weights


def _lead(few: Array, like: Array) -> Array:
    """Return an array with as many axes as another, the first ones its own."""
    return few.reshape(few.shape + (1,) * (like.ndim - few.ndim))


def check_stages(label: str, stages: Any) -> None:
    """Refuse what is not some mixings and one aggregator."""
    good = isinstance(stages, tuple) and all(isinstance(stage, Stage) for stage in stages)
    if not good or (stages and not isinstance(stages[-1], Aggregator)):
        raise ValueError(
            f"{label}: aggregation={stages!r} must be a tuple of mixings and an aggregator as the last, such as "
            "aggregation=(losac.algorithms.nearest_mixing(liars=1), losac.algorithms.trimmed_mean(liars=1))"
        )
    if any(not isinstance(stage, Mixing) for stage in stages[:-1]):
        raise ValueError(f"{label}: aggregation={stages!r} has two aggregators: only mixings go before the last stage")


def check_aggregation(algorithm: Any, sampled: int, clients: int, words: str, model_state: Tree) -> None:
    """Refuse an algorithm's aggregation where it cannot work.

    Args:
      algorithm: the method.
      sampled, clients: how many uploads come in a round, and in a phase that asks all clients.
      words: where the first of these numbers comes from.
      model_state: the model's; it travels beside the uploads and is averaged.
    """
    stages = algorithm.aggregation
    if stages and jax.tree.leaves(model_state):
        raise ValueError(
            f"{algorithm.label} is to aggregate robustly, but the model has a state (such as batch statistics) that is "
            "averaged beside the uploads: use a model without one, such as group instead of batch norm"
        )
    for phase in algorithm.phases():
        number = clients if phase.clients == "all" else sampled
        for stage in stages:
            try:
                number = stage.check(number)
            except ValueError as error:
                raise ValueError(f"{algorithm.label} with {words}: {error}") from error
