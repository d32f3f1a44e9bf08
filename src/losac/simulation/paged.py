"""An engine for more clients than the device can hold: it has at hand only those of the next few rounds.

A run goes in blocks of R rounds. The clients of a block are known before it begins, at most R·S: their states and data
are gathered into small arrays, the compiled rounds run on these, and the states are written back. While a block is
computed, one thread writes back the block before and gathers the next; clients of two successive blocks are handed over
on the device. The arrays always have the same size, so that one program serves all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Algorithm
from losac.simulation import program, setup
from losac.simulation.arrays import anybody, cast
from losac.simulation.client import Resident
from losac.simulation.costs import Costs, costs
from losac.simulation.drawing import Rows
from losac.simulation.engine import Measured, adopted, precision
from losac.simulation.mesh import host_state, place
from losac.simulation.sampling import Sampler, draw_clients
from losac.simulation.spill import Spill
from losac.simulation.start import initial_state
from losac.simulation.state import Problem, Shape, State
from losac.simulation.store import Store
from losac.simulation.streaming import Evaluation
from losac.task import Task
from losac.trees import Array, Tree, map_trees

BLOCK_BYTES = 2**27
"""Of the clients of one block, their states and data together."""
MOST_ROUNDS = 64
"""In one block."""
CHUNK_BYTES = 2**22
"""Of states that go to the device at a time."""

NOWHERE = Store((), ())
"""The store of a state whose clients' states are not with it."""

_initial = jax.jit(initial_state, static_argnums=(0, 5))


class Piece(NamedTuple):
    """Some rounds of a run that are one block; ``stop``: it is evaluated after them."""

    first: int
    length: int
    stop: bool


class Block(NamedTuple):
    """A block ready to run: who is at which place, their data and states on the device, and the rounds' schedule.

    ``states`` lacks those clients that were in the block before; ``handed`` says where each was and is, and how many
    they are.
    """

    clients: np.ndarray
    visits: np.ndarray
    resident: Resident
    states: Store
    handed: tuple[Array, Array, int]
    places: Array
    active: Array


class Paged:
    """One run, like :class:`~losac.simulation.engine.Engine`, with the clients' states outside the device.

    Args:
      task, algorithm, plan, seed, state: as for the ordinary engine.
      folder: where the states lie, in files; in memory if None.
      ahead: whether the next block is prepared while one runs.
    """

    def __init__(
        self,
        task: Task,
        algorithm: Algorithm,
        plan: setup.Plan,
        seed: int,
        state: Any = None,
        *,
        folder: Path | None = None,
        ahead: bool = True,
    ) -> None:
        setup.check(task, algorithm, plan.sampled)
        if not pageable(algorithm):
            raise ValueError(f"{algorithm.label} asks all clients in one phase: their states must be on the device")
        self.task, self.algorithm, self.plan, self.seed, self.ahead = task, algorithm, plan, seed, ahead
        self.shape: Shape = setup.shapes(task, algorithm, plan)
        self.problem = _host_problem(task, algorithm, self.shape, plan)
        blank = self.problem._replace(
            resident=anybody(task, self.shape.client.most_rows, len(algorithm.phases()), plan.dtype)
        )
        self._blank: Problem = place(blank._replace(test=None), self.shape.layout)
        start = place(setup.start(task, seed, plan.dtype), self.shape.layout)
        first: State = _initial(self.shape, self._blank, *start, 1)
        self.costs: tuple[Costs, ...] = costs(self.shape, self._blank, first)
        self.spill = Spill(map_trees(lambda a: np.asarray(a[0]), first.store), task.data.num_clients, folder)
        self.state: State = first._replace(store=NOWHERE)
        if state is not None:
            self.state = self._adopt(first, state)
        self._evaluate = Evaluation(task, self.shape, blank, plan.dtype)
        self._first = first.store
        self._room = self._chunk = self._rows = 0
        self._fresh: Store = first.store
        self._free: list[Store] = []
        self._writing: Future[None] | None = None
        self._unwritten: tuple[np.ndarray, Store] | None = None
        self._longest = max(self.shape.client.full.rows, *(p.cut.rows for p in self.shape.client.phases))

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state as NumPy arrays."""
        x = self.algorithm.at(self.state.round).model(self.state.server)
        return map_trees(np.asarray, x), map_trees(np.asarray, self.state.model_state)

    def kept(self) -> State:
        """Return the state with the rows of all clients as NumPy arrays: that of the ordinary engine."""
        kept = host_state(self.state, self.task.data.num_clients)
        if self._writing is not None:
            self._writing.result()
        store = self.spill.everything()
        if self._unwritten is not None:
            clients, states = self._unwritten
            map_trees(lambda a, b: _put_rows(a, clients, _on_host(b)), store, states)
        return kept._replace(store=store)

    def rounds_of_block(self, longest: int) -> int:
        """Return R, for intervals of at most so many rounds between evaluations."""
        data = self.task.data
        row = data.x[:1].nbytes * len(data) / data.num_clients
        per_round = self.plan.sampled * (self.spill.row_bytes + row)
        return int(np.clip(BLOCK_BYTES / per_round, 1, min(MOST_ROUNDS, max(1, longest))))

    def run(self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]) -> Iterator[Measured]:
        """Run to each of the rounds in ``stops`` and evaluate there; the first may be the present round.

        With ``live`` the sampler is asked anew before every round, since it looks at the history.
        """
        start = int(self.state.round)
        most = self.rounds_of_block(int(np.diff([start, *stops]).max(initial=1)))
        self._make_room(min(most * self.plan.sampled, self.task.data.num_clients))
        prepare = partial(self._prepare, sampler, most, history if live else None)
        ahead = self.ahead and not live
        visits: list[np.ndarray] = []
        with ThreadPoolExecutor(1, "losac-store") as worker:
            coming: Future[Block] | None = None
            writing: Future[None] | None = None
            last: tuple[np.ndarray, Store] | None = None
            todo = list(pieces(start, stops, most))
            for k, piece in enumerate(todo):
                if piece.length:
                    coming = coming or worker.submit(prepare, piece, None)
                    block, coming = coming.result(), None
                    states = block.states
                    if last is not None:
                        states = _hand_over(states, last[1], *block.handed) if block.handed[2] else states
                        writing = self._settled(writing, worker.submit(self._write, *last))
                    following = todo[k + 1] if k + 1 < len(todo) else None
                    if ahead and following is not None:
                        coming = worker.submit(prepare, following, block.clients)
                    self.state, states = _run(
                        self.shape,
                        self._blank._replace(resident=block.resident),
                        self.state._replace(store=states),
                        block.places,
                        block.active,
                        np.int32(piece.length),
                    )
                    visits.append(block.visits)
                    last = (block.clients, states)
                    if not ahead or following is None:
                        self._settled(worker.submit(self._write, *last), None)
                        last = None
                self._writing, self._unwritten = writing, last
                if piece.stop:
                    metrics = {k: v[None] for k, v in self._evaluate(self.state).items()}
                    everyone = np.concatenate([*visits, np.zeros(0, np.int32)])
                    yield Measured(np.array([piece.first + piece.length]), metrics, [everyone], int(self.state.broken))
                    visits = []

    def _settled(self, before: Future[None] | None, now: Future[None] | None) -> Future[None] | None:
        """Wait for an earlier write, so that its errors are seen; return the present one."""
        if before is not None:
            before.result()
        return now

    def _write(self, clients: np.ndarray, states: Store) -> None:
        """Write the states of a block back; its arrays are then free for another."""
        self.spill.write(clients, map_trees(_on_host, states))
        self._free.append(states)

    def _make_room(self, room: int) -> None:
        """Settle on arrays for so many clients, filled by chunks of which the last may reach beyond."""
        if room == self._room:
            return
        self._room, self._free, self._rows = room, [], 0
        self._chunk = int(np.clip(CHUNK_BYTES // max(1, self.spill.row_bytes), 1, room))
        self._fresh = _repeated(self._first, self._chunk)

    def _states(self, clients: np.ndarray, known: int) -> Store:
        """Return the states of some clients on the device, of which the first so many have been written."""
        states = self._free.pop() if self._free else _repeated(self._first, self._room + self._chunk)
        for begin in range(0, known, self._chunk):
            rows = map_trees(lambda a: _aligned(a.shape, a.dtype), self._fresh)
            self.spill.read(clients[begin : min(begin + self._chunk, known)], rows)
            states = _put(states, place(rows, self.shape.layout), np.int32(begin))
        for begin in range(known, len(clients), self._chunk):
            states = _put(states, self._fresh, np.int32(begin))
        return states

    def _prepare(
        self, sampler: Sampler, most: int, history: Callable[[], Any] | None, piece: Piece, before: np.ndarray | None
    ) -> Block:
        """Gather the clients of some rounds; those of the block before, if there is one, are handed over later."""
        n, sampled = self.task.data.num_clients, self.plan.sampled
        ids, active = draw_clients(
            sampler, self.seed, piece.first, piece.length, n, sampled, None if history is None else history()
        )
        visits = ids[active]
        everyone = np.unique(visits)
        earlier = np.zeros(0, everyone.dtype) if before is None else np.intersect1d(everyone, before)
        fresh = np.setdiff1d(everyone, earlier, assume_unique=True)
        known = self.spill.written(fresh)
        clients = np.concatenate([fresh[known], fresh[~known], earlier])
        room, begin = self._room, len(fresh)
        places, mask = np.zeros((most, sampled), np.int32), np.zeros((most, sampled), bool)
        mask[: piece.length] = active
        places[mask] = place_of(clients, visits)
        source, target = np.zeros(room, np.int32), np.arange(begin, begin + room, dtype=np.int32)
        if before is not None:
            source[: len(earlier)] = place_of(before, earlier)
        with precision(self.plan.dtype):
            layout = self.shape.layout
            resident = place(self._resident(clients, room), layout)
            states = self._states(clients[:begin], int(known.sum()))
            source, target, places, mask = place((source, target, places, mask), layout)
        return Block(clients, visits, resident, states, (source, target, len(earlier)), places, mask)

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
        x, y = (_filled(cast(a[rows], self.plan.dtype), length) for a in (everyone.rows.x, everyone.rows.y))
        return Resident(
            Rows(x, y, _filled(offset.astype(np.int32), room), _filled(size, room)),
            _filled(weight, room),
            np.stack([_filled(s, room) for s in steps]),
            _filled(clients.astype(np.int32), room),
        )

    def _adopt(self, first: State, given: Any) -> State:
        """Take a state from outside, with the rows of all clients, after the ordinary engine's checks."""
        n = self.task.data.num_clients

        def spread(a: Any) -> Any:
            return jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype)

        own = first._replace(store=map_trees(spread, first.store))
        taken: State = adopted(own, given, self.algorithm, self.shape, self._blank)
        self.spill.adopt(taken.store)
        return place(taken._replace(store=NOWHERE), self.shape.layout)


def pageable(algorithm: Algorithm) -> bool:
    """Whether no phase of an algorithm asks all clients."""
    return all(phase.clients != "all" for phase in algorithm.phases())


def pieces(start: int, stops: Sequence[int], most: int) -> Iterator[Piece]:
    """Cut a run at its stops, and in blocks of at most so many rounds.

    >>> list(pieces(0, [0, 5], 3))
    [Piece(first=0, length=0, stop=True), Piece(first=0, length=3, stop=False), Piece(first=3, length=2, stop=True)]
    """
    for stop in stops:
        while stop - start > most:
            yield Piece(start, most, False)
            start += most
        yield Piece(start, stop - start, True)
        start = stop


def place_of(clients: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where each of the wanted clients is among the clients.

    >>> place_of(np.array([7, 2, 5]), np.array([5, 7, 5]))
    array([2, 0, 2])
    """
    order = np.argsort(clients)
    return np.asarray(order[np.searchsorted(clients, wanted, sorter=order)])


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return a new array that the CPU can work on where it is: its place in memory is a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _on_host(a: Any) -> np.ndarray:
    """Return an array's content; on a CPU it is not copied, and may be overwritten as soon as it is let go of."""
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


def _host_problem(task: Task, algorithm: Algorithm, shape: Shape, plan: setup.Plan) -> Problem:
    """Return the problem with the arrays of all clients on the host, the data as they are."""
    data, dtype, p = task.data, plan.dtype, task.client_weights
    sizes = np.asarray(data.sizes)
    resident = Resident(
        Rows(data.x, data.y, np.asarray(data.offsets[:-1]), sizes.astype(np.int32)),
        (len(sizes) * p).astype(dtype),
        np.stack([setup.step_counts(phase, algorithm, sizes, plan) for phase in algorithm.phases()]).astype(np.int32),
    )
    return Problem(
        setup.cast_numbers(algorithm, dtype),
        setup.cast_numbers(task.regularizer, dtype),
        resident,
        np.zeros((1, 1), dtype),
        setup.test_chunks(task, shape, dtype),
        np.asarray((p * sizes).sum() if task.reduction == "sum" else p.sum(), dtype),
    )


def _put_rows(everyone: np.ndarray, clients: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Put the first rows to clients, in place."""
    everyone[clients] = rows[: len(clients)]
    return everyone


@partial(jax.jit, static_argnums=1)
def _repeated(first: Store, places: int) -> Store:
    """Return so many copies of one client's state."""
    return map_trees(lambda a: jnp.broadcast_to(a[:1], (places, *a.shape[1:])), first)


@partial(jax.jit, donate_argnums=0)
def _put(states: Store, rows: Store, begin: Any) -> Store:
    """Put rows to successive places, in place."""
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


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def _run(
    shape: Shape, problem: Problem, state: State, places: Array, active: Array, length: Array
) -> tuple[State, Store]:
    def next_round(r: Array, state: State) -> State:
        return program.one_round(shape, problem, state, places[r], active[r])

    state = jax.lax.fori_loop(0, length, next_round, state)
    return state._replace(store=NOWHERE), state.store
