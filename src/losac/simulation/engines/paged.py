"""An engine for more clients than the device can hold: it loads only those of the next few rounds.

A run goes in blocks of R rounds. The clients of a block are known before it begins, at most R·S: their states and data
are gathered into small arrays, the compiled rounds run on these, and the states are written back. While a block is
computed, one thread writes back the block before and gathers the next; clients of two successive blocks are passed on
within the device. The arrays always have the same size, so one program serves all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from losac.algorithms.contract import Algorithm
from losac.history.measured import NOBODY, Measurements, Participation
from losac.simulation.engines.identity import Identity, identify
from losac.simulation.engines.intervals import Piece, ends, longest_interval, pieces
from losac.simulation.engines.resident import adopted, precision
from losac.simulation.engines.schedule import empty_schedule, fill
from losac.simulation.engines.spill import Spill
from losac.simulation.engines.streaming import Evaluation
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.mesh import frozen_to_device, host_state, to_device
from losac.simulation.placement.store import Store
from losac.simulation.program import rounds as program
from losac.simulation.program import setup
from losac.simulation.program.arrays import anybody, cast
from losac.simulation.program.cache import tracked
from losac.simulation.program.client import Resident
from losac.simulation.program.costs import Costs, costs
from losac.simulation.program.drawing import Rows
from losac.simulation.program.start import initial_state
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.simulation.program.whole import WholeMetrics
from losac.simulation.sampling import Sampler
from losac.task import Task
from losac.trees import Array, Tree, map_trees

BLOCK_BYTES = 2**27
"""For the states and data of one block's clients together."""
MOST_ROUNDS = 64
"""In one block."""
CHUNK_BYTES = 2**22
"""For the states that go to the device at a time."""

NOWHERE = Store((), ())
"""The store of a state that comes without its clients' states."""

_initial = tracked(static=1)(partial(initial_state, rows=1))


class Block(NamedTuple):
    """A block ready to run: the client at each index, their data and states on the device, and the rounds' schedule.

    ``states`` lacks those clients that were in the block before; ``handed`` says where each was and is, and how many
    they are.
    """

    clients: np.ndarray
    visits: Participation
    resident: Resident
    states: Store
    handed: tuple[Array, Array, int]
    indices: Array
    active: Array


class PagedEngine:
    """One run with the clients' states outside the device; each block of rounds loads the states of its clients.

    Args:
      task, algorithm, options, state, shape: as for the ordinary engine.
      folder: for the files with the states; in memory if None.
      ahead: whether the next block is prepared while one runs.
    """

    def __init__(
        self,
        task: Task,
        algorithm: Algorithm,
        options: SimulationOptions,
        state: Any = None,
        shape: ProgramShape | None = None,
        *,
        folder: Path | None = None,
        ahead: bool = True,
    ) -> None:
        if not pageable(algorithm):
            raise ValueError(f"{algorithm.label} asks all clients in one phase: their states must be on the device")
        self.task, self.algorithm, self.options, self.ahead = task, algorithm, options, ahead
        self.shape: ProgramShape = shape or setup.checked_shape(task, algorithm, options)
        self.problem = _host_problem(task, algorithm, self.shape, options)
        someone = anybody(task, self.shape.client.most_rows, len(algorithm.phases()), options.dtype)
        self._frozen: Tree = frozen_to_device(someone.frozen, self.shape.layout)
        blank = self.problem._replace(resident=someone._replace(frozen=self._frozen))
        self._blank: ProgramInputs = to_device(blank._replace(test=None), self.shape.layout)
        start = to_device(setup.start(task, options.seed, options.dtype), self.shape.layout)
        first: RunState = _initial(self.shape, self._blank, *start)
        self.costs: tuple[Costs, ...] = costs(self.shape, self._blank, first)
        self.spill = Spill(map_trees(lambda a: np.asarray(a[0]), first.store), task.data.num_clients, folder)
        self.state: RunState = first._replace(store=NOWHERE)
        if state is not None:
            self.state = self._adopt(first, state)
        self._evaluate = Evaluation(task, self.shape, blank, options.dtype)
        self._whole = WholeMetrics(task, options.dtype)
        self._first = first.store
        self._room = self._chunk = self._rows = 0
        self._fresh: Store = first.store
        self._free: list[Store] = []
        self._writing: Future[None] | None = None
        self._unwritten: tuple[np.ndarray, Store] | None = None
        self._longest = max(self.shape.client.full.rows, *(p.cut.rows for p in self.shape.client.phases))

    @cached_property
    def identity(self) -> Identity:
        """What the states of the run belong to."""
        return identify(self.task, self.algorithm, self.options)

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state as NumPy arrays."""
        x = self.algorithm.at(self.state.round).model(self.state.server)
        return map_trees(np.asarray, x), map_trees(np.asarray, self.state.model_state)

    def kept(self) -> RunState:
        """Return the state with the rows of all clients as NumPy arrays: that of the ordinary engine."""
        kept: RunState = host_state(self.state, self.task.data.num_clients)
        if self._writing is not None:
            self._writing.result()
        store = self.spill.everything()
        if self._unwritten is not None:
            clients, states = self._unwritten
            map_trees(lambda a, b: _put_rows(a, clients, _on_host(b)), store, states)
        kept = kept._replace(store=store)
        return kept._replace(identity=self.identity.sealed(kept))

    def rounds_of_block(self, longest: int) -> int:
        """Return R, given the largest number of rounds between evaluations."""
        data = self.task.data
        row = data.x[:1].nbytes * len(data) / data.num_clients
        per_round = self.options.sampled * (self.spill.row_bytes + row)
        return int(np.clip(BLOCK_BYTES / per_round, 1, min(MOST_ROUNDS, max(1, longest))))

    def run(
        self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]
    ) -> Iterator[Measurements]:
        """Run to each of the rounds in ``stops`` and evaluate there; the first may be the present round.

        With ``live`` the sampler is asked before every round, since it looks at the history.
        """
        start = int(self.state.round)
        most = self.rounds_of_block(longest_interval(start, stops))
        self._make_room(min(most * self.options.sampled, self.task.data.num_clients))
        prepare = partial(self._prepare, sampler, most, history if live else None)
        ahead = self.ahead and not live
        with ThreadPoolExecutor(1, "losac-store") as worker:
            coming: Future[Block] | None = None
            writing: Future[None] | None = None
            last: tuple[np.ndarray, Store] | None = None
            todo = pieces(start, stops, most)
            following = next(todo, None)
            while (piece := following) is not None:
                following, visits = next(todo, None), NOBODY
                if piece.length:
                    coming = coming or worker.submit(prepare, piece, None)
                    block, coming = coming.result(), None
                    states = block.states
                    if last is not None:
                        states = _hand_over(states, last[1], *block.handed) if block.handed[2] else states
                        writing = self._settled(writing, worker.submit(self._write, *last))
                    if ahead and following is not None:
                        coming = worker.submit(prepare, following, block.clients)
                    self.state, states = _run(
                        self.shape,
                        self._blank._replace(resident=block.resident),
                        self.state._replace(store=states),
                        block.indices,
                        block.active,
                        np.int32(piece.length),
                    )
                    visits = block.visits
                    last = (block.clients, states)
                    if not ahead or following is None:
                        self._settled(worker.submit(self._write, *last), None)
                        last = None
                self._writing, self._unwritten = writing, last
                metrics = {k: v[None] for k, v in self._evaluate(self.state).items()} if piece.stop else {}
                whole = self._whole(*self.model()) if self._whole and piece.stop else {}
                broken = int(self.state.broken)
                yield Measurements(metrics=metrics, visits=[visits], broken=broken, whole=whole, **ends([piece]))

    def _settled(self, before: Future[None] | None, now: Future[None] | None) -> Future[None] | None:
        """Wait for an earlier write, to raise its errors; return the present one."""
        if before is not None:
            before.result()
        return now

    def _write(self, clients: np.ndarray, states: Store) -> None:
        """Write the states of a block back; its arrays are then free for another."""
        self.spill.write(clients, map_trees(_on_host, states))
        self._free.append(states)

    def _make_room(self, room: int) -> None:
        """Prepare arrays for this many clients, filled by chunks; the last chunk may reach beyond."""
        if room == self._room:
            return
        self._room, self._free, self._rows = room, [], 0
        self._chunk = int(np.clip(CHUNK_BYTES // max(1, self.spill.row_bytes), 1, room))
        self._fresh = _repeated(self._first, self._chunk)

    def _states(self, clients: np.ndarray, known: int) -> Store:
        """Return the states of some clients on the device; only the first ``known`` have been written before."""
        states = self._free.pop() if self._free else _repeated(self._first, self._room + self._chunk)
        for begin in range(0, known, self._chunk):
            rows = map_trees(lambda a: _aligned(a.shape, a.dtype), self._fresh)
            self.spill.read(clients[begin : min(begin + self._chunk, known)], rows)
            states = _put(states, to_device(rows, self.shape.layout), np.int32(begin))
        for begin in range(known, len(clients), self._chunk):
            states = _put(states, self._fresh, np.int32(begin))
        return states

    def _prepare(
        self, sampler: Sampler, most: int, history: Callable[[], Any] | None, piece: Piece, before: np.ndarray | None
    ) -> Block:
        """Gather the clients of some rounds; those of the block before, if there is one, are passed on later."""
        schedule = empty_schedule(1, most, self.options.sampled)
        seen = None if history is None else history()
        (visits,) = fill(schedule, [piece], sampler, self.options.seed, self.task.data.num_clients, seen)
        everyone = np.unique(visits.ids)
        earlier = np.zeros(0, everyone.dtype) if before is None else np.intersect1d(everyone, before)
        fresh = np.setdiff1d(everyone, earlier, assume_unique=True)
        known = self.spill.written(fresh)
        clients = np.concatenate([fresh[known], fresh[~known], earlier])
        room, begin = self._room, len(fresh)
        indices, mask = np.zeros_like(schedule.ids[0]), schedule.active[0]
        indices[mask] = indices_of(clients, visits.ids)
        source, target = np.zeros(room, np.int32), np.arange(begin, begin + room, dtype=np.int32)
        if before is not None:
            source[: len(earlier)] = indices_of(before, earlier)
        with precision(self.options.dtype):
            layout = self.shape.layout
            resident = to_device(self._resident(clients, room), layout)
            states = self._states(clients[:begin], int(known.sum()))
            source, target, indices, mask = to_device((source, target, indices, mask), layout)
        return Block(clients, visits, resident, states, (source, target, len(earlier)), indices, mask)

    def _resident(self, clients: np.ndarray, room: int) -> Resident:
        """Return the data, weights and numbers of steps of some clients, in arrays with room for more."""
        everyone = self.problem.resident
        size, weight, steps = everyone.rows.size[clients], everyone.weight[clients], everyone.steps[:, clients]
        offset = np.cumsum(size) - size
        rows = np.repeat(everyone.rows.offset[clients] - offset, size) + np.arange(size.sum())
        everyones = everyone.rows.size
        expected = int(room * everyones.mean() + 4 * room**0.5 * everyones.std())
        self._rows = max(self._rows, len(rows), min(expected, room * self.shape.client.most_rows))
        length = self._rows + self._longest
        x, y = (_filled(cast(a[rows], self.options.dtype), length) for a in (everyone.rows.x, everyone.rows.y))
        return Resident(
            Rows(x, y, _filled(offset.astype(np.int32), room), _filled(size, room)),
            _filled(weight, room),
            np.stack([_filled(s, room) for s in steps]),
            _filled(clients.astype(np.int32), room),
            self._frozen,
        )

    def _adopt(self, first: RunState, given: Any) -> RunState:
        """Take a state from outside, with the rows of all clients, after the ordinary engine's checks."""
        n = self.task.data.num_clients

        def spread(a: Any) -> Any:
            return jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype)

        own = first._replace(store=map_trees(spread, first.store))
        taken: RunState = adopted(own, given, self.algorithm, self.shape, self._blank, self.identity)
        self.spill.adopt(taken.store)
        return to_device(taken._replace(store=NOWHERE), self.shape.layout)


def pageable(algorithm: Algorithm) -> bool:
    """Whether no phase of an algorithm asks all clients."""
    return all(phase.clients != "all" for phase in algorithm.phases())


def indices_of(clients: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where each of the wanted clients is among the clients.

    >>> indices_of(np.array([7, 2, 5]), np.array([5, 7, 5]))
    array([2, 0, 2])
    """
    order = np.argsort(clients)
    return np.asarray(order[np.searchsorted(clients, wanted, sorter=order)])


def _aligned(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Return a new array that the CPU can use without a copy: its address is a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _on_host(a: Any) -> np.ndarray:
    """Return an array's content; on a CPU it is not copied, and may be overwritten as soon as nothing refers to it."""
    on_cpu = next(iter(a.sharding.device_set)).platform == "cpu"
    if a.sharding.is_fully_replicated and on_cpu and a.dtype.kind in "fiub":
        return np.from_dlpack(a.addressable_shards[0].data)
    return np.asarray(a)


def _filled(a: np.ndarray, length: int) -> np.ndarray:
    """Extend an array by copies of its first entry."""
    out = np.empty((length, *a.shape[1:]), a.dtype)
    out[: len(a)] = a
    out[len(a) :] = a[:1]
    return out


def _host_problem(task: Task, algorithm: Algorithm, shape: ProgramShape, options: SimulationOptions) -> ProgramInputs:
    """Return the problem with the arrays of all clients on the host, the data unchanged."""
    data, dtype, p = task.data, options.dtype, task.client_weights
    sizes = np.asarray(data.sizes)
    resident = Resident(
        Rows(data.x, data.y, np.asarray(data.offsets[:-1]), sizes.astype(np.int32)),
        (len(sizes) * p).astype(dtype),
        setup.all_step_counts(algorithm, sizes, options),
    )
    return ProgramInputs(
        setup.cast_numbers(algorithm, dtype),
        setup.cast_numbers(task.regularizer, dtype),
        resident,
        np.zeros((1, 1), dtype),
        setup.test_chunks(task, shape, dtype),
        np.asarray((p * sizes).sum() if task.reduction == "sum" else p.sum(), dtype),
        setup.cast_numbers(options.run.attackers, dtype),
    )


def _put_rows(everyone: np.ndarray, clients: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Put the first rows to clients, in place."""
    everyone[clients] = rows[: len(clients)]
    return everyone


@partial(jax.jit, static_argnums=1)
def _repeated(first: Store, copies: int) -> Store:
    """Return copies of one client's state."""
    return map_trees(lambda a: jnp.broadcast_to(a[:1], (copies, *a.shape[1:])), first)


@partial(jax.jit, donate_argnums=0)
def _put(states: Store, rows: Store, begin: Any) -> Store:
    """Put rows to successive indices, in place."""
    return map_trees(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, begin, 0), states, rows)


@partial(jax.jit, donate_argnums=0)
def _hand_over(states: Store, before: Store, source: Array, target: Array, number: Any) -> Store:
    """Put the last states of some clients of the block before to their places in this one."""

    def one(i: Array, states: Store) -> Store:
        def put(a: Array, b: Array) -> Array:
            row = jax.lax.dynamic_index_in_dim(b, source[i])
            return jax.lax.dynamic_update_slice_in_dim(a, row, target[i], 0)

        return map_trees(put, states, before)

    handed: Store = jax.lax.fori_loop(0, number, one, states)
    return handed


@tracked(static=1, donate=(2,))
def _run(
    shape: ProgramShape, problem: ProgramInputs, state: RunState, indices: Array, active: Array, length: Array
) -> tuple[RunState, Store]:
    def next_round(r: Array, state: RunState) -> RunState:
        return program.one_round(shape, problem, state, indices[r], active[r])

    state = jax.lax.fori_loop(0, length, next_round, state)
    return state._replace(store=NOWHERE), state.store
