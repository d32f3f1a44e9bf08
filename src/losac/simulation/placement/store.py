"""What is kept for each client between rounds, and how a round reads and writes the few it touches.

Rows hold one entry per client; the table of methods like LoSAC holds M, and a client's T steps may touch fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int, Key

from losac import _random
from losac.algorithms.contract import Draw
from losac.simulation.program.drawing import block_of
from losac.trees import Array, Tree, map_trees

BlockPlan = Callable[[Array], Array] | None
"""Client → the blocks that its steps draw; None if all M are available."""


class Store(NamedTuple):
    """The state of all clients: leaves of ``rows`` lead with N, leaves of ``table`` with N, M."""

    rows: Tree
    table: Tree


class View(NamedTuple):
    """The table entries of one client that a round may touch: all M, or those of its T drawn blocks if T < M."""

    entries: Tree
    slots: Int[Array, "... steps"] | None

    def _at(self, step: Array, block: Array) -> Array:
        return block if self.slots is None else self.slots[step]

    def entry(self, step: Array, block: Array) -> Tree:
        """Return the y_j of a step."""
        at = self._at(step, block)
        return map_trees(lambda a: jax.lax.dynamic_index_in_dim(a, at, keepdims=False), self.entries)

    def replace(self, step: Array, block: Array, y: Tree) -> View:
        """Return the view with the y_j of a step replaced."""
        at = self._at(step, block)
        put = map_trees(lambda a, v: jax.lax.dynamic_update_index_in_dim(a, v.astype(a.dtype), at, 0), self.entries, y)
        return self._replace(entries=put)

    def spread(self, block: Callable[[Array], Array], steps: Array, change: Tree) -> View:
        """Return the view with equal parts of a change added to the entries of the first ``steps`` steps."""
        number = jax.tree.leaves(self.entries)[0].shape[0]
        visited = jax.lax.fori_loop(
            0, steps, lambda t, seen: seen.at[self._at(t, block(t))].set(1), jnp.zeros(number, jnp.int32)
        )

        def add(a: Array, c: Array) -> Array:
            share = (visited / visited.sum()).astype(a.dtype)
            return a + share.reshape(-1, *[1] * c.ndim) * c

        return self._replace(entries=map_trees(add, self.entries, change))


def plan_blocks(draw: Draw, steps: int | None, key: Key[Array, ""]) -> BlockPlan:
    """Return the plan of a phase: the drawn blocks where these are fewer than M.

    ``steps`` is the number of steps of every client; None if clients differ in it.
    """
    if steps is None or steps >= draw.blocks:
        return None
    each = jnp.arange(steps)
    return lambda client: jax.vmap(lambda t: block_of(_random.client_key(key, client), t, draw.blocks))(each)


def read_rows(rows: Tree, clients: Int[Array, ...]) -> Tree:
    """Return the rows of one client or of many."""
    return map_trees(lambda a: a[clients], rows)


def write_rows(rows: Tree, clients: Int[Array, " sampled"], active: Bool[Array, " sampled"], new: Tree) -> Tree:
    """Put the rows of many clients back; those not active change nothing."""
    return map_trees(lambda a, v: a.at[_places(a, clients, active)].set(v, mode="drop"), rows, new)


def read_view(table: Tree, plan: BlockPlan, client: Int[Array, ""]) -> View | None:
    """Return one client's view of the table."""
    if not jax.tree.leaves(table):
        return None
    if plan is None:
        return View(map_trees(lambda a: jax.lax.dynamic_index_in_dim(a, client, keepdims=False), table), None)
    drawn = plan(client)
    slots = jnp.argmax(drawn[:, None] == drawn[None, :], axis=1)
    return View(map_trees(lambda a: a[client, drawn], table), slots)


def write_view(
    table: Tree, plan: BlockPlan, client: Int[Array, ""], active: Bool[Array, ""], view: View | None
) -> Tree:
    """Put one client's view back in place; nothing changes if it is not active."""
    if view is None:
        return table

    def put(a: Array, v: Array, *at: Array) -> Array:
        start = (*at, *(jnp.zeros((), jnp.int32),) * v.ndim)
        v = jnp.expand_dims(v, tuple(range(len(at))))
        old = jax.lax.dynamic_slice(a, start, v.shape)
        return jax.lax.dynamic_update_slice(a, jnp.where(active, v, old), start)

    if view.slots is None:
        return map_trees(lambda a, v: put(a, v, client), table, view.entries)
    assert plan is not None
    drawn, slots = plan(client), view.slots
    for t in range(drawn.shape[0]):  # a block drawn twice has one entry: its second writing changes nothing
        table = map_trees(lambda a, v, t=t: put(a, v[slots[t]], client, drawn[t]), table, view.entries)
    return table


def write_views(
    table: Tree, plan: BlockPlan, clients: Int[Array, " sampled"], active: Bool[Array, " sampled"], views: View | None
) -> Tree:
    """Put the views of many clients back; those not active change nothing."""
    if views is None:
        return table
    if views.slots is None:
        return write_rows(table, clients, active, views.entries)
    assert plan is not None
    drawn = jax.vmap(plan)(clients)
    kept = jax.vmap(lambda entries, slots: map_trees(lambda a: a[slots], entries))(views.entries, views.slots)
    return map_trees(lambda a, v: a.at[_places(a, clients, active)[:, None], drawn].set(v, mode="drop"), table, kept)


def _places(a: Array, clients: Array, active: Array) -> Array:
    """Return where to write: beyond the end, and so nowhere, for clients that are not active."""
    return jnp.where(active, clients, a.shape[0])
