"""Where the sampled clients run: one at a time, in vectorised groups, over several devices.

Algorithms do not see this. The default follows the hardware: on a CPU every core is a device and takes one
client at a time (a client's weights then stay in its cache); on a GPU all clients are vectorised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from losac._compat import shard_map
from losac.simulation.placement.mesh import AXIS, EACH, SAME, mesh, share, store_spec, to_owners, to_workers
from losac.simulation.placement.mesh import Layout as Layout
from losac.simulation.placement.store import (
    BlockPlan,
    Store,
    View,
    read_rows,
    read_view,
    write_rows,
    write_view,
    write_views,
)
from losac.simulation.products.matrices import add_scaled, blank, weighted_total
from losac.trees import Array, Tree, add, map_trees


class ClientSlot(NamedTuple):
    """A client and its place among those of the round."""

    client: Array
    slot: Array


Work = Callable[[Any, ClientSlot, Tree, View | None], tuple[Tree, Tree, View | None]]
"""(what all share, who, its row, its view of the table) → (what it contributes to the sum, row, view).

All arrays it reads must be in what all share: every device has a copy of that."""
Sums = Callable[[Any], Sequence[Array]]
"""What all share → the arrays that contributions may be sums of."""


class CohortWork(NamedTuple):
    """What the clients of a round do, with what they share, and the plan of the blocks that they draw.

    ``one_by_one``: contributions are returned as they are, led by the clients of the round, instead of summed.
    """

    work: Work
    sums: Sums
    shared: Any
    plan: BlockPlan
    one_by_one: bool = False


class Cohort(NamedTuple):
    """The clients of a round, which of them take part, and the weights of their contributions."""

    ids: Array
    active: Array
    weight: Array


OwnWork = Callable[[ClientSlot, Tree, View | None], tuple[Tree, Tree, View | None]]


CPU_GROUP = 6
"""On a CPU, clients with models that stay apart are vectorised in groups of at most this size, which fit its cache."""
SMALL = 2**14
"""Models with at most this many parameters are bound by overhead on a CPU, and are vectorised there too."""


def default_layout(sampled: int, large_table: bool, lazy: bool, parameters: int) -> Layout:
    """Return the layout for this machine, or for these processes; all their devices are used.


    A large table is updated in place on one device: gathering it over several would move more than it saves. Clients
    with models that stay apart share the server's, and are vectorised on a CPU too, in small groups.
    """
    vectorised = jax.default_backend() != "cpu" or parameters <= SMALL
    if jax.process_count() > 1:
        return Layout(-(-sampled // jax.device_count()) if vectorised else 1, jax.device_count())
    devices = jax.device_count()
    if vectorised and (parameters <= SMALL or sampled < devices):
        return Layout(sampled, 1)
    if vectorised:
        return Layout(-(-sampled // devices), devices)
    devices = 1 if large_table else min(devices, sampled)
    return Layout(_even_groups(-(-sampled // devices)) if lazy else 1, devices)


def _even_groups(clients: int) -> int:
    """Return the size of equal groups of at most :data:`CPU_GROUP` clients.

    >>> _even_groups(25), _even_groups(5), _even_groups(8)
    (5, 5, 4)
    """
    groups = -(-clients // CPU_GROUP)
    return -(-clients // groups)


def over_clients(layout: Layout, clients: int, duty: CohortWork, sample: Cohort, store: Store) -> tuple[Tree, Store]:
    """Let some of the clients work; return the weighted sum of the contributions and the new store.

    A client that is not active has weight zero, and what it would keep is dropped. Rows are gathered before and
    scattered after; a table, M times as large, is updated in place where clients come one at a time.
    """
    if layout.devices > 1:
        return _over_devices(layout, clients, duty, sample, store)
    work, sums, shared, plan = _kept_aside(duty)
    ids, active, weight = sample
    number, width = ids.shape[0], max(1, min(layout.width, ids.shape[0]))
    ids, active, weight = _padded(width, ids, active, weight)
    rows = read_rows(store.rows, ids)
    who = ClientSlot(ids, jnp.arange(ids.shape[0], dtype=ids.dtype))
    if width == 1:
        total, rows, table = _one_at_a_time(
            partial(work, shared), sums(shared), who, active, weight, rows, store.table, plan
        )
    else:
        views = jax.vmap(lambda i: read_view(store.table, plan, i))(ids)
        total, rows, views = _in_groups(width, partial(work, shared), sums(shared), who, weight, rows, views)
        table = write_views(store.table, plan, ids, active, views)
    if duty.one_by_one:
        rows, sent = rows
        total = map_trees(lambda a: a[:number], sent)
    return total, Store(write_rows(store.rows, ids, active, rows), table)


def _kept_aside(duty: CohortWork) -> tuple[Work, Sums, Any, BlockPlan]:
    """Return a duty in which contributions that are not to be summed come with the rows."""

    def aside(shared: Any, who: ClientSlot, row: Tree, view: View | None) -> tuple[Tree, Tree, View | None]:
        sent, row, view = duty.work(shared, who, row, view)
        return (), (row, sent), view

    return (aside if duty.one_by_one else duty.work), duty.sums, duty.shared, duty.plan


def _one_at_a_time(
    work: OwnWork,
    arrays: Sequence[Array],
    who: ClientSlot,
    active: Array,
    weight: Array,
    rows: Tree,
    table: Tree,
    plan: BlockPlan,
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
    width: int, work: OwnWork, arrays: Sequence[Array], who: ClientSlot, weight: Array, rows: Tree, views: View | None
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


def _over_devices(layout: Layout, clients: int, duty: CohortWork, sample: Cohort, store: Store) -> tuple[Tree, Store]:
    """Give each device an equal share of the clients of a round.

    If the clients' state is divided as well and all clients work, each works on the device that owns its state; if only
    some work, the state moves to where they do. What a client keeps moves back to its owner, or to the copies.
    """
    work, sums, shared, plan = _kept_aside(duty)
    ids, active, weight = sample
    asked = ids
    own, at_home = share(layout, clients), layout.owners > 1 and ids.shape[0] == clients
    travels = layout.owners > 1 and not at_home
    slot = jnp.arange(ids.shape[0], dtype=ids.dtype)
    if at_home:
        width = own.width
        ids, active, weight, slot = _by_client(layout.devices * own.clients, ids, active, weight, slot)
    else:
        width = max(1, min(layout.width, ids.shape[0] // layout.devices))
        ids, active, weight, slot = _padded(width * layout.devices, ids, active, weight, slot)
    who = ClientSlot(jnp.minimum(ids, clients - 1), slot)

    def on_device(
        shared: Any, store: Store, ids: Array, active: Array, who: ClientSlot, weight: Array
    ) -> tuple[Tree, Store, Tree]:
        here = jax.lax.axis_index(AXIS).astype(ids.dtype) if layout.owners > 1 else jnp.zeros((), ids.dtype)
        at = jnp.clip(ids - here * own.clients, 0, own.clients - 1)
        mine = ids // own.clients == here
        drawn: BlockPlan = None if plan is None else lambda i: plan(i + here * own.clients)

        def read(at: Array) -> tuple[Tree, View | None]:
            return read_rows(store.rows, at), jax.vmap(lambda i: read_view(store.table, drawn, i))(at)

        kept = to_workers(read(at), mine) if travels else read(at if at_home else who.client)
        total, rows, views = _in_groups(width, partial(work, shared), sums(shared), who, weight, *kept)
        rows, sent = rows if duty.one_by_one else (rows, ())
        if not at_home:
            rows, views = to_owners((rows, views))
        on = active & mine
        store = Store(write_rows(store.rows, at, on, rows), write_views(store.table, drawn, at, on, views))
        return jax.lax.psum(total, AXIS), store, sent

    some, kept = EACH if at_home else SAME, store_spec(layout)
    total, store, sent = shard_map(on_device, mesh(layout), (SAME, kept, some, some, EACH, EACH), (SAME, kept, EACH))(
        shared, store, ids, active, who, weight
    )
    if duty.one_by_one:
        total = map_trees(lambda a: a[asked] if at_home else a[: asked.shape[0]], sent)
    return total, store


def over_chunks(layout: Layout, function: Callable[[Any, Tree], Array], shared: Any, chunks: Tree) -> Array:
    """Sum a function over chunks [C, rows, …], divided among the devices, which all hold every chunk."""
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
        return jax.lax.psum(every(shared, chunks, jax.lax.axis_index(AXIS), layout.devices), AXIS)

    return shard_map(on_device, mesh(layout), (SAME, SAME), SAME)(shared, chunks)


def member_mesh(layout: Layout) -> Mesh:
    """Return the devices of a layout as a mesh; its axis is the members of a sweep."""
    return Mesh(np.array(jax.local_devices()[: layout.devices]), ("members",))


def _group(
    work: OwnWork, arrays: Sequence[Array], who: ClientSlot, weight: Array, rows: Tree, views: View | None
) -> tuple[Tree, Tree, View | None]:
    sent, rows, views = jax.vmap(work)(who, rows, views)
    return weighted_total(weight, sent, arrays), rows, views


def _blank(work: OwnWork, who: ClientSlot, row: Tree, view: View | None) -> Tree:
    """Return zeros of the structure of a sum of contributions."""
    return blank(jax.eval_shape(lambda *given: work(*given)[0], who, row, view))


def _padded(multiple: int, *arrays: Array) -> tuple[Array, ...]:
    missing = -arrays[0].shape[0] % multiple
    return tuple(jnp.pad(a, (0, missing)) for a in arrays) if missing else arrays


def _by_client(rows: int, ids: Array, *arrays: Array) -> tuple[Array, ...]:
    """Put the entries of the active clients (the first of ``arrays`` says who is active) at the client's place."""
    at = jnp.where(arrays[0], ids, rows)
    put = (jnp.zeros(rows, a.dtype).at[at].set(a, mode="drop") for a in arrays)
    return jnp.arange(rows, dtype=ids.dtype), *put
