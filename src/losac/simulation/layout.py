"""Where the sampled clients run: one at a time, in vectorised groups, over several devices.

An algorithm never knows. The default follows the hardware: on a CPU every core is a device of its own and takes one
client at a time (a client's weights then stay in its cache); on a GPU all clients are vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from losac._compat import shard_map
from losac.simulation.matrices import add_scaled, blank, weighted_total
from losac.simulation.store import (
    Plan,
    Store,
    View,
    read_rows,
    read_view,
    write_rows,
    write_view,
    write_views,
)
from losac.trees import Array, Tree, add, map_trees


class Who(NamedTuple):
    """A client and its place among those of the round."""

    client: Array
    slot: Array


Work = Callable[[Any, Who, Tree, View | None], tuple[Tree, Tree, View | None]]
"""(what all share, who, its row, its view of the table) → (what it contributes to the sum, row, view).

Whatever arrays it reads must be in what all share: every device has a copy of that."""
Sums = Callable[[Any], Sequence[Array]]
"""What all share → the arrays that contributions may be given as sums over."""
OwnWork = Callable[[Who, Tree, View | None], tuple[Tree, Tree, View | None]]


class Layout(NamedTuple):
    """``width`` clients are vectorised at a time, on each of ``devices`` devices."""

    width: int = 1
    devices: int = 1


SMALL = 2**14
"""Models with at most so many parameters are bound by overhead on a CPU, and are vectorised there too."""


def default_layout(sampled: int, large_table: bool, lazy: bool, parameters: int) -> Layout:
    """Return the layout for this machine.

    A large table is updated in place on one device: gathering it over several would move more than it saves. Clients
    whose models stay apart share the server's, and are vectorised on a CPU too.
    """
    if jax.default_backend() != "cpu" or parameters <= SMALL:
        return Layout(sampled, 1)
    devices = 1 if large_table else min(jax.local_device_count(), sampled)
    return Layout(-(-sampled // devices) if lazy else 1, devices)


def over_clients(
    layout: Layout,
    work: Work,
    sums: Sums,
    shared: Any,
    ids: Array,
    active: Array,
    weight: Array,
    store: Store,
    plan: Plan,
) -> tuple[Tree, Store]:
    """Let every client work; return the weighted sum of the contributions and the store renewed.

    A client that is not active has weight zero, and what it would keep is dropped. Rows are gathered before and
    scattered after; a table, M times as large, is updated in place where clients come one at a time.
    """
    width = max(1, min(layout.width, ids.shape[0] // layout.devices))
    ids, active, weight = _padded(width * layout.devices, ids, active, weight)
    rows = read_rows(store.rows, ids)
    who = Who(ids, jnp.arange(ids.shape[0], dtype=ids.dtype))
    if layout.devices == 1 and width == 1:
        total, rows, table = _one_at_a_time(
            partial(work, shared), sums(shared), who, active, weight, rows, store.table, plan
        )
    else:
        views = jax.vmap(lambda i: read_view(store.table, plan, i))(ids)
        if layout.devices == 1:
            total, rows, views = _in_groups(width, partial(work, shared), sums(shared), who, weight, rows, views)
        else:
            total, rows, views = _over_devices(layout, width, work, sums, shared, who, weight, rows, views)
        table = write_views(store.table, plan, ids, active, views)
    return total, Store(write_rows(store.rows, ids, active, rows), table)


def _one_at_a_time(
    work: OwnWork,
    arrays: Sequence[Array],
    who: Who,
    active: Array,
    weight: Array,
    rows: Tree,
    table: Tree,
    plan: Plan,
) -> tuple[Tree, Tree, Tree]:
    def visit(carry: tuple[Tree, Tree], each: Any) -> tuple[tuple[Tree, Tree], Tree]:
        total, table = carry
        who, on, w, row = each
        sent, row, view = work(who, row, read_view(table, plan, who.client))
        return (add_scaled(total, w, sent, arrays), write_view(table, plan, who.client, on, view)), row

    first = map_trees(lambda a: a[0], who)
    blank = _blank(work, first, map_trees(lambda a: a[0], rows), read_view(table, plan, first.client))
    (total, table), rows = jax.lax.scan(visit, (blank, table), (who, active, weight, rows))
    return total, rows, table


def _in_groups(
    width: int, work: OwnWork, arrays: Sequence[Array], who: Who, weight: Array, rows: Tree, views: View | None
) -> tuple[Tree, Tree, View | None]:
    """Vectorise over ``width`` clients at a time; the leading axis is a multiple of it."""
    if weight.shape[0] == width > 1:
        return _group(work, arrays, who, weight, rows, views)

    def visit(total: Tree, each: Any) -> tuple[Tree, tuple[Tree, View | None]]:
        if width == 1:
            who, w, row, view = each
            sent, row, view = work(who, row, view)
            return add_scaled(total, w, sent, arrays), (row, view)
        sent, row, view = _group(work, arrays, *each)
        return add(total, sent), (row, view)

    blank = _blank(work, *map_trees(lambda a: a[0], (who, rows, views)))
    everyone = (who, weight, rows, views)
    if width > 1:
        everyone = map_trees(lambda a: a.reshape(-1, width, *a.shape[1:]), everyone)
    total, kept = jax.lax.scan(visit, blank, everyone)
    if width > 1:
        kept = map_trees(lambda a: a.reshape(-1, *a.shape[2:]), kept)
    return total, *kept


def _over_devices(
    layout: Layout,
    width: int,
    work: Work,
    sums: Sums,
    shared: Any,
    who: Who,
    weight: Array,
    rows: Tree,
    views: View | None,
) -> tuple[Tree, Tree, View | None]:
    def on_device(shared: Any, *mine: Any) -> tuple[Tree, Tree, View | None]:
        total, rows, views = _in_groups(width, partial(work, shared), sums(shared), *mine)
        return jax.lax.psum(total, "clients"), rows, views

    each, same = PartitionSpec("clients"), PartitionSpec()
    return shard_map(on_device, _mesh(layout), (same, *(each,) * 4), (same, each, each))(
        shared, who, weight, rows, views
    )


def over_chunks(layout: Layout, function: Callable[[Any, Tree], Array], shared: Any, chunks: Tree) -> Array:
    """Sum a function over chunks [C, rows, …], shared out to the devices, each of which has them all."""
    number = jax.tree.leaves(chunks)[0].shape[0]

    blank = jnp.zeros((), jax.eval_shape(function, shared, map_trees(lambda a: a[0], chunks)).dtype)

    def every(shared: Any, chunks: Tree, first: Any, stride: int) -> Array:
        def add(k: Any, total: Array) -> Array:
            at = first + stride * k
            return total + function(
                shared, map_trees(lambda a: jax.lax.dynamic_index_in_dim(a, at, keepdims=False), chunks)
            )

        return jax.lax.fori_loop(0, number // stride, add, blank)

    if layout.devices == 1 or number % layout.devices:
        return every(shared, chunks, 0, 1)

    def on_device(shared: Any, chunks: Tree) -> Array:
        return jax.lax.psum(every(shared, chunks, jax.lax.axis_index("clients"), layout.devices), "clients")

    return shard_map(on_device, _mesh(layout), (PartitionSpec(),) * 2, PartitionSpec())(shared, chunks)


def _mesh(layout: Layout) -> Mesh:
    return Mesh(np.array(jax.local_devices()[: layout.devices]), ("clients",))


def member_mesh(layout: Layout) -> Mesh:
    """Return the devices of a layout as a mesh whose axis is the members of a sweep."""
    return Mesh(np.array(jax.local_devices()[: layout.devices]), ("members",))


def place(tree: Tree, layout: Layout) -> Tree:
    """Put arrays on the layout's devices, a copy on each."""
    if layout.devices == 1:
        return jax.device_put(tree, jax.local_devices()[0])
    return jax.device_put(tree, NamedSharding(_mesh(layout), PartitionSpec()))


def _group(
    work: OwnWork, arrays: Sequence[Array], who: Who, weight: Array, rows: Tree, views: View | None
) -> tuple[Tree, Tree, View | None]:
    sent, rows, views = jax.vmap(work)(who, rows, views)
    return weighted_total(weight, sent, arrays), rows, views


def _blank(work: OwnWork, who: Who, row: Tree, view: View | None) -> Tree:
    """Return zeros of the structure of a sum of contributions."""
    return blank(jax.eval_shape(lambda *given: work(*given)[0], who, row, view))


def _padded(multiple: int, ids: Array, active: Array, weight: Array) -> tuple[Array, Array, Array]:
    missing = -ids.shape[0] % multiple
    if not missing:
        return ids, active, weight
    return jnp.pad(ids, (0, missing)), jnp.pad(active, (0, missing)), jnp.pad(weight, (0, missing))
