"""The devices of a layout, in one process or in several: what each holds, and how it moves between them.

The clients' state, if it is large, is divided: device k of D owns the k-th D-th of the clients. Frozen weights, if they
are too large for one device, are divided instead of the clients. Everything else, including the data, is on every
device. The number of clients is then rounded up to give all devices equally many; copies of a client fill the gap, and
their work is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from losac._checks import check_count, check_flag, check_kind
from losac.trees import Array, Tree, map_trees, nbytes

if TYPE_CHECKING:
    from losac.simulation.program.state import RunState

AXIS = "clients"
EACH, SAME = PartitionSpec(AXIS), PartitionSpec()


class Layout(NamedTuple):
    """``width`` clients are vectorised at a time, on each of ``devices`` devices (of all processes together).

    ``shared`` says whether each device keeps only a part of the clients' state, which then moves to where a client
    works; else each keeps a copy. By default it is shared if it is larger than :data:`COPIED`.

    With ``parts`` more than one, the clients are not divided: ``parts`` devices of this process hold a part of each
    frozen matrix, and XLA divides the products with them. By default only if a device has no room for all of them.
    """

    width: int = 1
    devices: int = 1
    shared: bool | None = None
    parts: int = 1

    @property
    def owners(self) -> int:
        """The number of parts of the clients' state."""
        return self.devices if self.shared else 1


COPIED = 2**30
"""The clients' state is copied to every device if it has at most this many bytes, to avoid moving it."""


class Share(NamedTuple):
    """The clients that one device owns: ``groups`` times ``width`` of them."""

    groups: int
    width: int

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self.groups * self.width


def share(layout: Layout, clients: int) -> Share:
    """Return the share of the clients that each owner has, in groups of nearly the layout's width."""
    if layout.owners == 1:
        return Share(clients, 1)
    least = -(-clients // layout.owners)
    groups = -(-least // min(layout.width, least))
    return Share(groups, -(-least // groups))


def store_rows(layout: Layout, clients: int) -> int:
    """Return how many clients the store has room for: their number, rounded up for their owners."""
    return layout.owners * share(layout, clients).clients


def check_layout(layout: Any) -> None:
    """Refuse a value that is not a layout."""
    if layout is None:
        return
    check_kind("layout", layout, Layout, "such as losac.simulation.Layout(width=4, devices=2)")
    check_count("layout: width", layout.width)
    check_count("layout: devices", layout.devices)
    check_count("layout: parts", layout.parts)
    if layout.parts > 1 and layout.devices > 1:
        raise ValueError(f"{layout} divides the clients by devices and the frozen weights by parts: choose one of them")
    if layout.shared is not None:
        check_flag("layout: shared", layout.shared)


def check_devices(layout: Layout) -> None:
    """Refuse a layout that this machine, or these processes, cannot hold."""
    processes, there = jax.process_count(), jax.device_count()
    if layout.devices > there:
        raise ValueError(f"{layout} asks for more devices than there are, {there}")
    if layout.parts > jax.local_device_count():
        raise ValueError(f"{layout} asks for more parts than this process has devices, {jax.local_device_count()}")
    if layout.devices > 1 and layout.devices % processes:
        raise ValueError(f"{layout} must take equally many devices of each of the {processes} processes, or one in all")
    fewest = min(np.bincount([d.process_index for d in jax.devices()]))
    if layout.devices > fewest * processes:
        raise ValueError(f"{layout} takes {layout.devices // processes} devices of each process; one has only {fewest}")


def mesh(layout: Layout, axis: str = AXIS) -> Mesh:
    """Return the devices of a layout: equally many of each process, or one device of this process."""
    if layout.devices == 1:
        return Mesh(np.array(jax.local_devices()[: layout.parts]), (axis,))
    each = layout.devices // jax.process_count()
    found = [[d for d in jax.devices() if d.process_index == p][:each] for p in range(jax.process_count())]
    return Mesh(np.array(found).reshape(-1), (axis,))


def to_device(tree: Tree, layout: Layout) -> Tree:
    """Put arrays on the layout's devices, a copy on each; those divided over them stay so."""
    if layout.parts == 1:
        return _put(tree, layout, SAME)
    there = mesh(layout)
    return map_trees(lambda a: a if _is_on(a, there) else jax.device_put(a, NamedSharding(there, SAME)), tree)


def frozen_to_device(frozen: Tree, layout: Layout) -> Tree:
    """Put frozen weights on the layout's devices: a copy on each, or a part of each array, cut along a long axis."""
    if layout.parts == 1:
        return to_device(frozen, layout)

    def put(a: Any) -> Array:
        axes = [k for k, length in enumerate(a.shape) if length % layout.parts == 0 and length]
        longest = max(axes, key=lambda k: a.shape[k], default=None)
        spec = PartitionSpec(*(AXIS if k == longest else None for k in range(a.ndim)))
        return jax.device_put(a, NamedSharding(mesh(layout), spec))

    return map_trees(put, frozen)


def _is_on(a: Any, there: Mesh) -> bool:
    return isinstance(a, jax.Array) and a.sharding.device_set == set(there.devices.flat)


SHARE_OF_MEMORY = 0.5
"""The share of the free memory that a run plans with."""


def free_memory() -> float:
    """Return the bytes that are free on the device (on a CPU: in the machine)."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))


def with_room_for(frozen: Tree, layout: Layout) -> Layout:
    """Return a layout that divides the frozen weights where one device, or all copies in one machine, lack the room."""
    devices = jax.local_device_count()
    copies = layout.devices if jax.default_backend() == "cpu" else 1
    if devices == 1 or jax.process_count() > 1 or nbytes(frozen) * copies <= SHARE_OF_MEMORY * free_memory():
        return layout
    return Layout(layout.width, parts=devices)


def store_spec(layout: Layout) -> PartitionSpec:
    """Return how the clients' state is placed on the devices."""
    return EACH if layout.owners > 1 else SAME


def state_to_device(state: RunState, layout: Layout, clients: int) -> RunState:
    """Put a state of NumPy arrays on the layout's devices, each client's on the one that owns it."""

    def fill(a: Any) -> Any:
        return np.concatenate([a, np.broadcast_to(a[-1:], (store_rows(layout, clients) - clients, *a.shape[1:]))])

    return _by_part(state, lambda a: _put(a, layout, SAME), lambda a: _put(fill(a), layout, store_spec(layout)))


def pin_state(state: RunState, layout: Layout) -> RunState:
    """Keep a state inside a compiled program where :func:`state_to_device` puts it."""
    if layout.devices * layout.parts == 1:
        return state

    def pin(spec: PartitionSpec) -> Callable[[Array], Array]:
        return lambda a: jax.lax.with_sharding_constraint(a, NamedSharding(mesh(layout), spec))

    return _by_part(state, pin(SAME), pin(store_spec(layout)))


def host_state(state: RunState, clients: int) -> RunState:
    """Return a state as NumPy arrays (its random key as a copy of the key), gathered from all devices and processes."""

    def fetch(a: Any) -> Any:
        if is_key(a):
            return jax.random.wrap_key_data(jnp.array(np.asarray(jax.random.key_data(a))), impl=jax.random.key_impl(a))
        if a.is_fully_addressable or a.is_fully_replicated:
            return np.array(a)
        from jax.experimental.multihost_utils import process_allgather

        return np.asarray(process_allgather(a, tiled=True))

    return _by_part(state, fetch, lambda a: fetch(a)[:clients])


def agreed(seconds: float, layout: Layout) -> float:
    """Return the first process's measurement, to make all processes of a run decide alike."""
    if layout.devices == 1 or jax.process_count() == 1:
        return seconds
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return float(broadcast_one_to_all(np.float32(seconds)))


def is_key(a: Any) -> bool:
    """Whether an array holds random keys."""
    return jnp.issubdtype(a.dtype, jax.dtypes.prng_key)


def to_workers(tree: Tree, mine: Array) -> Tree:
    """Hand each device its share of the round's clients, inside ``shard_map``.

    Every device brings an entry for each of the S clients, and ``mine`` says which of them it owns: summing the owned
    entries over the devices gives the owners' entries.
    """

    def travel(a: Array) -> Array:
        owned = jnp.where(mine.reshape(-1, *(1,) * (a.ndim - 1)), a, 0)
        number = owned.astype(jnp.uint8) if a.dtype == bool else owned
        return jax.lax.psum_scatter(number, AXIS, tiled=True).astype(a.dtype)

    return map_trees(travel, tree)


def to_owners(tree: Tree) -> Tree:
    """Hand every device the entries of all S clients; it keeps those it owns. Call it inside ``shard_map``."""
    return map_trees(lambda a: jax.lax.all_gather(a, AXIS, tiled=True), tree)


def _by_part(state: RunState, rest: Callable[[Any], Any], store: Callable[[Any], Any]) -> RunState:
    """Map one function over the clients' part of a state and another over the rest of it."""
    parts = (map_trees(store if name == "store" else rest, part) for name, part in state._asdict().items())
    return type(state)(*parts)


def _put(tree: Tree, layout: Layout, spec: PartitionSpec) -> Tree:
    if layout.devices * layout.parts == 1:
        return jax.device_put(tree, jax.local_devices()[0])
    sharding = NamedSharding(mesh(layout), spec)
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return map_trees(lambda a: _global(a, sharding), tree)


def _global(a: Any, sharding: NamedSharding) -> Array:
    """Make an array over several processes that all hold the same numbers."""
    if hasattr(a, "dtype") and is_key(a):
        return jax.random.wrap_key_data(_global(jax.random.key_data(a), sharding), impl=jax.random.key_impl(a))
    a = np.asarray(a)
    a = a.astype(jax.dtypes.canonicalize_dtype(a.dtype))
    return jax.make_array_from_callback(a.shape, sharding, lambda index: a[index])
