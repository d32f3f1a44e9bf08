"""Many runs at once: settings and seeds as one compiled program, vectorised or shared out to the cores."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from losac._compat import shard_map
from losac.algorithms.contract import Algorithm
from losac.simulation import program, setup
from losac.simulation.arrays import parameter_count
from losac.simulation.costs import Costs, costs
from losac.simulation.engine import CALL_SECONDS, MOST_INTERVALS, Measured, blank_schedule
from losac.simulation.layout import SMALL, Layout, member_mesh
from losac.simulation.sampling import Sampler, draw_clients
from losac.simulation.start import initial_state
from losac.simulation.state import Problem, Schedule, Shape, State
from losac.task import Task
from losac.trees import Array, Tree, map_trees

SHARE_OF_MEMORY = 0.5
ROOM_PER_STATE = 3  # a state, its successor, and what lies between


class Members:
    """Runs of one task that differ in the numbers of their algorithm and in their seeds only."""

    def __init__(self, task: Task, algorithms: Sequence[Algorithm], seeds: Sequence[int], plan: setup.Plan) -> None:
        setup.check(task, algorithms[0], plan.sampled)
        small = parameter_count(task) <= SMALL
        vectorised = small or jax.default_backend() != "cpu"
        self.plan = plan._replace(layout=Layout(plan.sampled if vectorised else 1, 1))
        self.task, self.algorithms, self.seeds = task, algorithms, seeds
        self.shape: Shape = setup.shapes(task, algorithms[0], self.plan)
        devices = 1 if vectorised else min(jax.local_device_count(), len(seeds))
        self.spread = Layout(len(seeds) if vectorised else 1, devices)
        problem = setup.problem(task, algorithms[0], self.shape, self.plan)
        missing = -len(seeds) % devices  # the last member is repeated to fill the devices, and forgotten
        padded = [*range(len(seeds)), *[len(seeds) - 1] * missing]
        starts = [setup.start(task, seeds[m], plan.dtype) for m in padded]
        stacked = setup.cast_numbers(
            map_trees(lambda *v: np.stack([np.asarray(a) for a in v]), *(algorithms[m] for m in padded)), plan.dtype
        )
        self.padded = padded
        self.problem: Problem = self._everywhere(problem._replace(algorithm=algorithms[0]))
        self.numbers: Algorithm = self._shared(stacked)
        self.state: State = _start(self.shape, self.spread, self.problem, self.numbers, self._shared(_stack(starts)))
        first = map_trees(lambda a: a[0], self.state)
        self.costs: tuple[Costs, ...] = costs(self.shape, problem, first)

    def models(self) -> list[tuple[Tree, Tree]]:
        """Return every member's parameters and model state."""
        host = map_trees(np.asarray, (self.algorithms[0].model(self.state.server), self.state.model_state))
        return [map_trees(lambda a, m=m: a[m], host) for m in range(len(self.seeds))]

    def run(self, sampler: Sampler, stops: Sequence[int]) -> Iterator[list[Measured]]:
        """Run all members to each of the rounds in ``stops``, the first of which may be 0; yield what they measure."""
        n, sampled = self.task.data.num_clients, self.plan.sampled
        lengths = np.diff([0, *stops])
        longest, most = int(lengths.max(initial=1)), min(len(stops), MOST_INTERVALS)
        done, take, first = 0, 1, 0
        while done < len(stops):
            part = lengths[done : done + take]
            schedules: dict[int, Schedule] = {}
            for seed in set(self.seeds):
                schedule = schedules[seed] = blank_schedule(most, longest, sampled)
                at = first
                for e, length in enumerate(part):
                    drawn = draw_clients(sampler, seed, at, int(length), n, sampled)
                    schedule.ids[e, :length], schedule.active[e, :length] = drawn
                    schedule.lengths[e] = length
                    at += int(length)
            first += int(part.sum())
            began = time.perf_counter()
            together = map_trees(lambda *a: np.stack(a), *(schedules[self.seeds[m]] for m in self.padded))
            together = together._replace(lengths=together.lengths[0])
            self.state, record = _run(
                self.shape,
                self.spread,
                self.problem,
                self.numbers,
                self.state,
                self._place(together),
                np.int32(len(part)),
            )
            record = {k: np.asarray(v) for k, v in record.items()}
            broken = np.asarray(self.state.broken)
            seconds = time.perf_counter() - began
            rounds = np.asarray(stops[done : done + len(part)])
            yield [
                Measured(
                    rounds,
                    {k: v[m, : len(part)] for k, v in record.items()},
                    _visits(schedules[s], part),
                    int(broken[m]),
                )
                for m, s in enumerate(self.seeds)
            ]
            done += len(part)
            take = int(np.clip(CALL_SECONDS / seconds * len(part), 1, min(most, 4 * take)))

    def _everywhere(self, tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(member_mesh(self.spread), PartitionSpec()))

    def _shared(self, tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(member_mesh(self.spread), PartitionSpec("members")))

    def _place(self, schedule: Schedule) -> Schedule:
        ids, active = self._shared((schedule.ids, schedule.active))
        return Schedule(ids, active, self._everywhere(schedule.lengths))


def fitting(task: Task, algorithm: Algorithm, plan: setup.Plan) -> int:
    """Return how many members fit into memory at once."""
    plan = plan._replace(layout=Layout(1, 1))
    shape = setup.shapes(task, algorithm, plan)
    problem = setup.problem(task, algorithm, shape, plan)
    state = jax.eval_shape(partial(initial_state, shape), problem, *setup.start(task, 0, plan.dtype))
    size = sum(leaf.size * getattr(leaf.dtype, "itemsize", 8) for leaf in jax.tree.leaves(state))
    return max(1, int(SHARE_OF_MEMORY * free_memory() / (ROOM_PER_STATE * size)))


def free_memory() -> float:
    """Return the bytes that are free on the device (on a CPU: in the machine)."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))


def _stack(trees: list[Any]) -> Any:
    return map_trees(lambda *a: jnp.stack(a), *trees)


def _visits(schedule: Schedule, part: np.ndarray) -> list[np.ndarray]:
    return [np.asarray(schedule.ids[e, :k][schedule.active[e, :k]]) for e, k in enumerate(part)]


def _each(spread: Layout, function: Any, shared: Any, same: Any) -> Any:
    """Map a function of (one member's share, what all have in common) over the members."""

    def several(shared: Any, same: Any) -> Any:
        if spread.width > 1:
            return jax.vmap(lambda mine: function(mine, same))(shared)
        return jax.lax.map(lambda mine: function(mine, same), shared)

    if spread.devices == 1:
        return several(shared, same)
    mine, all_ = PartitionSpec("members"), PartitionSpec()
    return shard_map(several, member_mesh(spread), (mine, all_), mine)(shared, same)


@partial(jax.jit, static_argnums=(0, 1))
def _start(shape: Shape, spread: Layout, problem: Problem, numbers: Algorithm, starts: Any) -> Any:
    def one(mine: Any, problem: Problem) -> State:
        algorithm, (params, model_state, key) = mine
        return initial_state(shape, problem._replace(algorithm=algorithm), params, model_state, key)

    return _each(spread, one, (numbers, starts), problem)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _run(
    shape: Shape, spread: Layout, problem: Problem, numbers: Algorithm, state: State, schedule: Schedule, count: Array
) -> Any:
    def one(mine: Any, same: Any) -> Any:
        algorithm, state, ids, active = mine
        problem, lengths, count = same
        return program.run(shape, problem._replace(algorithm=algorithm), state, Schedule(ids, active, lengths), count)

    return _each(spread, one, (numbers, state, schedule.ids, schedule.active), (problem, schedule.lengths, count))
