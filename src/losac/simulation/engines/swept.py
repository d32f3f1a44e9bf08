"""Many runs at once: settings and seeds as one compiled program, vectorised or divided among the cores."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from losac._compat import shard_map
from losac.algorithms.contract import Algorithm
from losac.history.measured import Measurements
from losac.simulation.engines.intervals import ends
from losac.simulation.engines.schedule import Calls, fill
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.layout import SMALL, Layout, member_mesh
from losac.simulation.placement.mesh import SHARE_OF_MEMORY, free_memory
from losac.simulation.program import rounds as program
from losac.simulation.program import setup
from losac.simulation.program.cache import tracked
from losac.simulation.program.costs import Costs, costs
from losac.simulation.program.start import initial_state
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState, Schedule
from losac.simulation.program.whole import WholeMetrics
from losac.simulation.sampling import Sampler
from losac.task import Task, parameter_count
from losac.trees import Array, Tree, map_trees

SMALL_BATCH = 2**12
"""On a CPU, vectorised members gather the numbers of their batches one by one; with more than this, one at a time is
faster, although it has the overhead of every operation for each."""
ROOM_PER_STATE = 3  # a state, its successor, and intermediate values


class SweptEngine:
    """Runs of one task that differ in the numbers of their algorithm and in their seeds only."""

    def __init__(
        self,
        task: Task,
        algorithms: Sequence[Algorithm],
        seeds: Sequence[int],
        options: SimulationOptions,
        shape: ProgramShape | None = None,
    ) -> None:
        self.task, self.algorithms, self.seeds, self.options = task, algorithms, seeds, options
        shape = shape or member_shape(task, algorithms[0], options)
        small = parameter_count(task) <= SMALL and _batch_numbers(task, shape) <= SMALL_BATCH
        vectorised = small or jax.default_backend() != "cpu"
        self.shape: ProgramShape = shape._replace(layout=Layout(options.sampled if vectorised else 1, 1))
        devices = 1 if vectorised else min(jax.local_device_count(), len(seeds))
        self.spread = Layout(len(seeds) if vectorised else 1, devices)
        problem = setup.program_inputs(task, algorithms[0], self.shape, options)
        missing = -len(seeds) % devices  # the last member is repeated to fill the devices, and forgotten
        padded = [*range(len(seeds)), *[len(seeds) - 1] * missing]
        starts = [setup.start(task, seeds[m], options.dtype) for m in padded]
        stacked = setup.cast_numbers(
            map_trees(lambda *v: np.stack([np.asarray(a) for a in v]), *(algorithms[m] for m in padded)), options.dtype
        )
        self.padded = padded
        self.problem: ProgramInputs = self._everywhere(problem._replace(algorithm=algorithms[0]))
        self.numbers: Algorithm = self._shared(stacked)
        self.state: RunState = _start(self.shape, self.spread, self.problem, self.numbers, self._shared(_stack(starts)))
        first = map_trees(lambda a: a[0], self.state)
        self.costs: tuple[Costs, ...] = costs(self.shape, problem, first)
        self.whole = WholeMetrics(task, options.dtype)

    def models(self) -> list[tuple[Tree, Tree]]:
        """Return every member's parameters and model state."""
        host = map_trees(np.asarray, (self.algorithms[0].model(self.state.server), self.state.model_state))
        return [map_trees(lambda a, m=m: a[m], host) for m in range(len(self.seeds))]

    def run(self, sampler: Sampler, stops: Sequence[int]) -> Iterator[list[Measurements]]:
        """Run all members to each of the rounds in ``stops`` (the first may be 0); yield what they measure."""
        clients, sampled = self.task.data.num_clients, self.options.sampled
        calls = Calls(0, stops, sampled * len(self.padded), alone=bool(self.whole))
        for part in calls:
            schedules = {seed: calls.blank(sampled) for seed in self.seeds}
            visits = {seed: fill(each, part, sampler, seed, clients) for seed, each in schedules.items()}
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
            calls.took(time.perf_counter() - began)
            measure = self.whole if part[-1].stop else None
            whole = [measure(*model) for model in self.models()] if measure else [{}] * len(self.seeds)
            yield [
                Measurements(
                    metrics={k: v[m, : len(part)] for k, v in record.items()},
                    visits=visits[s],
                    broken=int(broken[m]),
                    whole=whole[m],
                    **ends(part),
                )
                for m, s in enumerate(self.seeds)
            ]

    def _everywhere(self, tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(member_mesh(self.spread), PartitionSpec()))

    def _shared(self, tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(member_mesh(self.spread), PartitionSpec("members")))

    def _place(self, schedule: Schedule) -> Schedule:
        ids, active = self._shared((schedule.ids, schedule.active))
        return Schedule(ids, active, self._everywhere(schedule.lengths))


def member_shape(task: Task, algorithm: Algorithm, options: SimulationOptions) -> ProgramShape:
    """Return the static part of the program of members that differ from an algorithm in its numbers only."""
    return setup.checked_shape(task, algorithm, options.with_compute(layout=Layout(1, 1)))


def _batch_numbers(task: Task, shape: ProgramShape) -> int:
    """Return how many numbers the rows of the largest batch hold."""
    return max(form.cut.rows for form in shape.client.phases) * math.prod(task.data.x.shape[1:])


def fitting(task: Task, algorithm: Algorithm, options: SimulationOptions, shape: ProgramShape) -> int:
    """Return how many members fit into memory at once."""
    sizes = setup.state_sizes(task, algorithm, shape, options)
    size = task.data.num_clients * sizes.row + sizes.rest
    return max(1, int(SHARE_OF_MEMORY * free_memory() / (ROOM_PER_STATE * size)))


def _stack(trees: list[Any]) -> Any:
    return map_trees(lambda *a: jnp.stack(a), *trees)


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


@tracked(static=2)
def _start(shape: ProgramShape, spread: Layout, problem: ProgramInputs, numbers: Algorithm, starts: Any) -> Any:
    def one(mine: Any, problem: ProgramInputs) -> RunState:
        algorithm, (params, model_state, key) = mine
        return initial_state(shape, problem._replace(algorithm=algorithm), params, model_state, key)

    return _each(spread, one, (numbers, starts), problem)


@tracked(static=2, donate=(4,))
def _run(
    shape: ProgramShape,
    spread: Layout,
    problem: ProgramInputs,
    numbers: Algorithm,
    state: RunState,
    schedule: Schedule,
    count: Array,
) -> Any:
    def one(mine: Any, same: Any) -> Any:
        algorithm, state, ids, active = mine
        problem, lengths, count = same
        return program.run(shape, problem._replace(algorithm=algorithm), state, Schedule(ids, active, lengths), count)

    return _each(spread, one, (numbers, state, schedule.ids, schedule.active), (problem, schedule.lengths, count))
