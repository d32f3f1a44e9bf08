"""What is kept for each client between rounds, and how a round reads and writes the few it touches.

Rows hold one entry per client; the table of methods like LoSAC holds M, of which a client's T steps may touch fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from losac.algorithms.contract import Draw
from losac.simulation.drawing import block_of
from losac.trees import Tree, map_trees

Plan = Callable[[Array], Array] | None
"""Client → the blocks that its steps draw; None where all M are at hand."""


class Store(NamedTuple):
    """The state of all clients: leaves of ``rows`` lead with N, leaves of ``table`` with N, M."""

    rows: Tree
    table: Tree


class View(NamedTuple):
    """The table entries of one client that a round may touch: all M, or those of its T drawn blocks if T < M."""

    entries: Tree
    slots: Array | None

    def _at(self, step: Any, block: Any) -> Any:
        return block if self.slots is None else self.slots[step]

    def entry(self, step: Any, block: Any) -> Tree:
        """Return the y_j of a step."""
        at = self._at(step, block)
        return map_trees(lambda a: jax.lax.dynamic_index_in_dim(a, at, keepdims=False), self.entries)

    def replace(self, step: Any, block: Any, y: Tree) -> View:
        """Return the view with the y_j of a step replaced."""
        at = self._at(step, block)
        put = map_trees(lambda a, v: jax.lax.dynamic_update_index_in_dim(a, v.astype(a.dtype), at, 0), self.entries, y)
        return self._replace(entries=put)


def plan_blocks(draw: Draw, key: Array) -> Plan:
    """Return the plan of a phase: the drawn blocks where these are fewer than M."""
    if draw.steps is None or draw.steps >= draw.blocks:
        return None
    steps = jnp.arange(draw.steps)
    return lambda client: jax.vmap(lambda t: block_of(jax.random.fold_in(key, client), t, draw.blocks))(steps)


def read(store: Store, plan: Plan, client: Array) -> tuple[Tree, View | None]:
    """Return one client's row and its view of the table."""
    row = map_trees(lambda a: jax.lax.dynamic_index_in_dim(a, client, keepdims=False), store.rows)
    if not jax.tree.leaves(store.table):
        return row, None
    if plan is None:
        return row, View(map_trees(lambda a: jax.lax.dynamic_index_in_dim(a, client, keepdims=False), store.table), None)
    drawn = plan(client)
    slots = jnp.argmax(drawn[:, None] == drawn[None, :], axis=1)
    return row, View(map_trees(lambda a: a[client, drawn], store.table), slots)


def write_one(store: Store, plan: Plan, client: Array, active: Array, row: Tree, view: View | None) -> Store:
    """Put one client's row and view back in place; nothing changes where it is not active."""

    def put(a: Array, v: Array, *at: Any) -> Array:
        start = (*at, *(0,) * v.ndim)
        v = jnp.expand_dims(v.astype(a.dtype), tuple(range(len(at))))
        old = jax.lax.dynamic_slice(a, start, v.shape)
        return jax.lax.dynamic_update_slice(a, jnp.where(active, v, old), start)

    rows = map_trees(lambda a, v: put(a, v, client), store.rows, row)
    if view is None:
        return Store(rows, store.table)
    if view.slots is None:
        return Store(rows, map_trees(lambda a, v: put(a, v, client), store.table, view.entries))
    assert plan is not None
    table, drawn = store.table, plan(client)
    for t in range(drawn.shape[0]):  # a block drawn twice has one entry: its second writing changes nothing
        table = map_trees(lambda a, v, t=t: put(a, v[view.slots[t]], client, drawn[t]), table, view.entries)
    return Store(rows, table)


def write_many(store: Store, plan: Plan, clients: Array, active: Array, rows: Tree, views: View | None) -> Store:
    """Put the rows and views of many clients back; those not active change nothing."""
    leaves = jax.tree.leaves(store)
    if not leaves:
        return store
    to = jnp.where(active, clients, leaves[0].shape[0])  # beyond the end: dropped
    put = map_trees(lambda a, v: a.at[to].set(v, mode="drop"), store.rows, rows)
    if views is None:
        return Store(put, store.table)
    if views.slots is None:
        return Store(put, map_trees(lambda a, v: a.at[to].set(v, mode="drop"), store.table, views.entries))
    assert plan is not None
    drawn = jax.vmap(plan)(clients)
    kept = jax.vmap(lambda v, s: map_trees(lambda a: a[s], v))(views.entries, views.slots)
    return Store(put, map_trees(lambda a, v: a.at[to[:, None], drawn].set(v, mode="drop"), store.table, kept))
