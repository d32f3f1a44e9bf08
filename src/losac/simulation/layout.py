"""Where the sampled clients run: one at a time, in vectorised groups, over several devices.

An algorithm never knows. The default follows the hardware: on a CPU every core is a device of its own and takes one
client at a time (a client's weights then stay in its cache); on a GPU all clients are vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from losac._compat import shard_map
from losac.simulation.store import Plan, Store, View, read, write_many, write_one
from losac.trees import Tree, add, map_trees

Work = Callable[[Array, Tree, View | None], tuple[Tree, Tree, View | None]]
"""(client, its row, its view of the table) → (what it contributes to the sum, row, view)."""


class Layout(NamedTuple):
    """``width`` clients are vectorised at a time, on each of ``devices`` devices."""

    width: int = 1
    devices: int = 1


def default_layout(sampled: int, table: bool) -> Layout:
    """Return the layout for this machine.

    A table is updated in place on one device: gathering it over several would move more than it saves.
    """
    if jax.default_backend() == "cpu":
        return Layout(1, 1 if table else min(jax.local_device_count(), sampled))
    return Layout(sampled, 1)


def over_clients(
    layout: Layout, work: Work, ids: Array, active: Array, weight: Array, store: Store, plan: Plan
) -> tuple[Tree, Store]:
    """Let every client work; return the weighted sum of the contributions and the store renewed.

    A client that is not active has weight zero, and what it would keep is dropped.
    """
    width = max(1, min(layout.width, ids.shape[0] // layout.devices or 1))
    ids, active, weight = _padded(width * layout.devices, ids, active, weight)
    if layout.devices > 1:
        return _over_devices(layout, width, work, ids, active, weight, store, plan)
    if ids.shape[0] == width > 1:
        total, rows, views = _group(work, ids, weight, *jax.vmap(lambda i: read(store, plan, i))(ids))
        return total, write_many(store, plan, ids, active, rows, views)

    def visit(carry: tuple[Tree, Store], who: tuple[Array, Array, Array]) -> tuple[tuple[Tree, Store], None]:
        total, store = carry
        i, on, w = who
        if width == 1:
            sent, row, view = work(i, *read(store, plan, i))
            return (_add_scaled(total, w, sent), write_one(store, plan, i, on, row, view)), None
        sent, rows, views = _group(work, i, w, *jax.vmap(lambda i: read(store, plan, i))(i))
        return (add(total, sent), write_many(store, plan, i, on, rows, views)), None

    blank = _blank(work, ids, lambda i: read(store, plan, i))
    groups = ids.shape[0] // width
    shape = (groups,) if width == 1 else (groups, width)
    who = (ids.reshape(shape), active.reshape(shape), weight.reshape(shape))
    return jax.lax.scan(visit, (blank, store), who)[0]


def over_rows(layout: Layout, function: Callable[[Tree], Array], chunks: Tree) -> Array:
    """Sum a function over chunks [C, rows, …], the rows shared out to the devices where that divides them."""
    if layout.devices == 1 or jax.tree.leaves(chunks)[0].shape[1] % layout.devices:
        return function(chunks)
    share = PartitionSpec(None, "clients")
    total = shard_map(lambda c: jax.lax.psum(function(c), "clients"), _mesh(layout), (share,), PartitionSpec())
    return total(chunks)  # type: ignore[no-any-return]


def _mesh(layout: Layout) -> Mesh:
    return Mesh(np.array(jax.local_devices()[: layout.devices]), ("clients",))


def place(tree: Tree, layout: Layout) -> Tree:
    """Put arrays on the layout's devices, a copy on each."""
    if layout.devices == 1:
        return jax.device_put(tree, jax.local_devices()[0])
    return jax.device_put(tree, NamedSharding(_mesh(layout), PartitionSpec()))


def _over_devices(
    layout: Layout, width: int, work: Work, ids: Array, active: Array, weight: Array, store: Store, plan: Plan
) -> tuple[Tree, Store]:
    rows, views = jax.vmap(lambda i: read(store, plan, i))(ids)

    def on_device(ids: Array, weight: Array, rows: Tree, views: View | None) -> tuple[Tree, Tree, View | None]:
        def visit(total: Tree, who: Any) -> tuple[Tree, tuple[Tree, View | None]]:
            if width == 1:
                i, w, row, view = who
                sent, row, view = work(i, row, view)
                return _add_scaled(total, w, sent), (row, view)
            sent, row, view = _group(work, *who)
            return add(total, sent), (row, view)

        blank = _blank(work, ids, lambda i: map_trees(lambda a: a[0], (rows, views)))
        if width == 1:
            total, kept = jax.lax.scan(visit, blank, (ids, weight, rows, views))
        else:
            folded = map_trees(lambda a: a.reshape(-1, width, *a.shape[1:]), (ids, weight, rows, views))
            total, kept = jax.lax.scan(visit, blank, folded)
            kept = map_trees(lambda a: a.reshape(-1, *a.shape[2:]), kept)
        return jax.lax.psum(total, "clients"), *kept

    each, same = PartitionSpec("clients"), PartitionSpec()
    run = shard_map(on_device, _mesh(layout), (each, each, each, each), (same, each, each))
    total, rows, views = run(ids, weight, rows, views)
    return total, write_many(store, plan, ids, active, rows, views)


def _group(work: Work, ids: Array, weight: Array, rows: Tree, views: View | None) -> tuple[Tree, Tree, View | None]:
    sent, rows, views = jax.vmap(work)(ids, rows, views)
    return map_trees(lambda u: jnp.tensordot(weight.astype(u.dtype), u, 1), sent), rows, views


def _add_scaled(total: Tree, weight: Array, sent: Tree) -> Tree:
    return map_trees(lambda a, u: a + weight.astype(u.dtype) * u, total, sent)


def _blank(work: Work, ids: Array, entry: Callable[[Array], Any]) -> Tree:
    """Return zeros of the structure of a contribution."""
    sent = jax.eval_shape(lambda i: work(i, *entry(i))[0], ids[0])
    return map_trees(lambda s: jnp.zeros(s.shape, s.dtype), sent)


def _padded(multiple: int, ids: Array, active: Array, weight: Array) -> tuple[Array, Array, Array]:
    missing = -ids.shape[0] % multiple
    if not missing:
        return ids, active, weight
    return jnp.pad(ids, (0, missing)), jnp.pad(active, (0, missing)), jnp.pad(weight, (0, missing))
