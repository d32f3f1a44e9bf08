"""From a task and an algorithm to the program's arguments: static shapes, arrays on the device, the first state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from losac import _random
from losac._checks import shown
from losac.algorithms.aggregation import check_aggregation
from losac.algorithms.contract import Algorithm, Federation
from losac.algorithms.privacy import refuse_model_state
from losac.data.checks import check_arrays
from losac.simulation.attackers import Attackers
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.layout import default_layout
from losac.simulation.placement.mesh import COPIED, check_devices, frozen_to_device, to_device, with_room_for
from losac.simulation.products.forms import entry_size, formed_table, with_factoring
from losac.simulation.program import drawing
from losac.simulation.program.arrays import anybody, cast, chunk_rows, frozen_weights, pad, whole
from losac.simulation.program.cache import tracked
from losac.simulation.program.client import ClientShape, PhaseShape, Resident
from losac.simulation.program.objective import Cut, Objective
from losac.simulation.program.rowmeans import check_loss, only_means, row_means
from losac.simulation.program.start import initial_state
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.task import Task, parameter_count
from losac.trees import Tree, check_params, map_trees


def check(task: Task, algorithm: Algorithm, sampled: int, attackers: Attackers | None = None) -> None:
    """Refuse combinations of task, algorithm, sampling and attackers that cannot be."""
    n = task.data.num_clients
    check_algorithm(algorithm)
    if isinstance(task.test, tuple):
        x, y = map(np.asarray, task.test)
        check_arrays(x, y, np.array([0, len(x)]), "test")
    if not 1 <= sampled <= n:
        raise ValueError(f"clients_per_round={sampled} must lie between 1 and the number of clients, {n}")
    if sampled < n and not algorithm.partial:
        raise ValueError(
            f"{algorithm.label} needs every client in every round: use clients_per_round={n}, or a method that "
            "supports client sampling"
        )
    refuse_model_state(algorithm, task.state)
    check_aggregation(algorithm, sampled, n, f"clients_per_round={sampled}", task.state)
    if attackers is not None:
        attackers.check(algorithm, n)
    if task.is_composite and not algorithm.composite:
        raise ValueError(
            f"{algorithm.label} has no proximal step, so it cannot minimise a task with the regulariser "
            f"{task.regularizer}; losac, scaffold, dsgd, fedadmm, feddualavg and fedmid can"
        )


def check_algorithm(algorithm: Any) -> Algorithm:
    """Return an algorithm; refuse anything else."""
    if not isinstance(algorithm, Algorithm):
        name = f"the class {algorithm.__name__}" if isinstance(algorithm, type) else shown(algorithm)
        raise TypeError(
            f"{name} is not an algorithm; make one with losac.algorithms, such as losac.algorithms.losac(…)"
        )
    return algorithm


def checked_shape(task: Task, algorithm: Algorithm, options: SimulationOptions) -> ProgramShape:
    """Return the static part of the program, after checking that the method supports the task and the sampling."""
    check(task, algorithm, options.sampled, options.run.attackers)
    return program_shape(task, algorithm, options)


def program_shape(task: Task, algorithm: Algorithm, options: SimulationOptions) -> ProgramShape:
    """Return the static part of the program."""
    if options.compute.table_dtype is not None and algorithm.table:
        for name, given in (("uploads", algorithm.transforms()), ("aggregation", algorithm.aggregation)):
            if given:
                raise ValueError(
                    f"{algorithm.label} puts what is left out of its uploads back into its table, where table_dtype="
                    f"{options.compute.table_dtype!r} would round it away: use either {name} or table_dtype"
                )
    sizes = np.asarray(task.data.sizes)
    random_steps, drawn = algorithm.at(0).draw_steps(0.5) is not None, options.run.steps_range
    phases = []
    for phase in algorithm.phases():
        counts = step_counts(phase, algorithm, sizes, options)
        passes = drawing.pass_count(phase.draw, sizes, counts)
        least = drawn[0] if drawn is not None and phase is algorithm else None
        varies = counts.min() != counts.max() or (random_steps and phase is algorithm) or least is not None
        static = None if varies else int(counts[0])
        phases.append(PhaseShape(drawing.cut(phase.draw, sizes), static, passes, least=least))
    client = ClientShape(
        Objective.of(task),
        task.reduction,
        len(sizes),
        options.sampled,
        int(sizes.max()),
        Cut(int(sizes.max()), tuple(int(s) for s in np.unique(sizes))),
        tuple(phases),
        options.compute.table_dtype if algorithm.table else None,
    )
    one_by_one = algorithm.aggregation or options.run.attackers is not None
    if options.compute.gradients != "formed" and not one_by_one:
        client = with_factoring(task, algorithm, client, options)
    size = parameter_count(task)
    large_table = algorithm.table and entry_size(client, size) > size / 2
    lazy = any(form.factoring is not None and form.factoring.lazy_shapes for form in client.phases)
    layout = options.compute.layout
    if layout is None:
        layout = default_layout(options.sampled, large_table, lazy, size)
        layout = layout if task.frozen is None else with_room_for(task.frozen, layout)
    check_devices(layout)
    check_loss(task, model_of(task, options.dtype), options.dtype)
    return ProgramShape(client, layout, mean_metrics(task, options.dtype), options.loss_every, task.is_composite)


def mean_metrics(task: Task, dtype: Any) -> tuple[tuple[str, Callable[..., Any]], ...]:
    """Return the metrics that the program takes, tried out; :mod:`losac.simulation.program.whole` takes the others."""
    if Objective.of(task).whole:  # all rows are then evaluated at once in any case
        return tuple(only_means(task.metrics).items())
    examples = task.test if isinstance(task.test, tuple) else (task.data.x, task.data.y)
    return row_means(task.metrics, model_of(task, dtype), examples, dtype)


def model_of(task: Task, dtype: Any) -> Callable[[], tuple[Tree, Tree, Tree]]:
    """Return a function that makes the first model: parameters, model state and frozen weights."""
    return lambda: (*start(task, 0, dtype)[:2], frozen_weights(task, dtype))


def program_inputs(task: Task, algorithm: Algorithm, shape: ProgramShape, options: SimulationOptions) -> ProgramInputs:
    """Return the arrays of a run, on the devices of its layout."""
    data, dtype = task.data, options.dtype
    sizes = np.asarray(data.sizes)
    longest = max(shape.client.full.rows, *(p.cut.rows for p in shape.client.phases))
    n, p = len(data), task.client_weights
    per_row = np.repeat(p if task.reduction == "sum" else p / sizes, sizes)
    coupled = shape.client.objective.whole
    chunk = n if coupled else chunk_rows(data.x)
    padded = whole(n + longest, chunk * shape.layout.devices)
    x, y = (pad(cast(a, dtype), padded) for a in (data.x, data.y))
    used = n if coupled else whole(n, chunk * shape.layout.devices)
    train_weights = np.zeros(used)
    train_weights[:n] = per_row / per_row.sum()
    resident = Resident(
        drawing.Rows(x, y, np.asarray(data.offsets[:-1], np.int32), sizes.astype(np.int32)),
        (len(sizes) * p).astype(dtype),
        all_step_counts(algorithm, sizes, options),
        frozen=frozen_to_device(frozen_weights(task, dtype), shape.layout),
    )
    arrays = ProgramInputs(
        cast_numbers(algorithm, dtype),
        cast_numbers(task.regularizer, dtype),
        resident,
        train_weights.reshape(-1, chunk).astype(dtype),
        test_chunks(task, shape, dtype),
        np.asarray(per_row.sum(), dtype),
        cast_numbers(options.run.attackers, dtype),
    )
    return to_device(arrays, shape.layout)


def start(task: Task, seed: int, dtype: Any) -> tuple[Tree, Tree, Any]:
    """Return x⁰, the model's first state and the random key of a seed."""
    params = map_trees(lambda a: cast(a, dtype), start_params(task, seed))
    model_state = () if task.state is None else map_trees(lambda a: cast(a, dtype), task.state)
    return params, model_state, _random.run_key(seed)


class StateSizes(NamedTuple):
    """The bytes of a state: of one client's row in the store, and of all that is not in the store."""

    row: int
    rest: int


def state_sizes(task: Task, algorithm: Algorithm, shape: ProgramShape, options: SimulationOptions) -> StateSizes:
    """Return how large a state is, without making one."""
    one = anybody(task, shape.client.most_rows, len(algorithm.phases()), options.dtype)
    method, regularizer = cast_numbers((algorithm, task.regularizer), options.dtype)
    arguments = ProgramInputs(method, regularizer, one, one.weight, None, one.weight)
    state = jax.eval_shape(partial(initial_state, shape, rows=1), arguments, *start(task, 0, options.dtype))

    def size(tree: Tree) -> int:
        return sum(int(leaf.size) * int(getattr(leaf.dtype, "itemsize", 8)) for leaf in jax.tree.leaves(tree))

    return StateSizes(size(state.store), size(state._replace(store=())))


def share_out(task: Task, algorithm: Algorithm, shape: ProgramShape, options: SimulationOptions) -> ProgramShape:
    """Decide, if the layout does not, whether the devices share the clients' state or have a copy each."""
    if shape.layout.shared is not None or shape.layout.devices == 1:
        return shape
    size = task.data.num_clients * state_sizes(task, algorithm, shape, options).row
    return shape._replace(layout=shape.layout._replace(shared=size > COPIED))


def first_state(task: Task, shape: ProgramShape, problem: ProgramInputs, seed: int, dtype: Any) -> RunState:
    """Return the state before the first round."""
    state: RunState = _initial(shape, problem, *to_device(start(task, seed, dtype), shape.layout))
    return state


def start_params(task: Task, seed: int) -> Tree:
    """Return x⁰ as NumPy arrays; drawn in single precision for every run, to start all precisions alike."""
    from losac._compat import enable_x64

    with enable_x64(False):
        params = task.init_params(_random.weights_key(seed))
    check_params(params)
    return map_trees(np.asarray, params)


def _factored(shape: ProgramShape) -> bool:
    return any(form.factoring is not None for form in shape.client.phases)


def check_given(algorithm: Algorithm, shape: ProgramShape, problem: ProgramInputs, state: RunState) -> None:
    """Refuse a given start that contradicts the method's invariant."""
    here = Federation(shape.client.clients, shape.client.sampled, problem.regularizer.prox)
    if algorithm.table and problem.resident.weight.shape[0] < shape.client.clients and _factored(shape):
        return  # forming the table takes the data of all clients, which a paged run does not hold
    table = formed_table(shape, problem, state.store.table) if algorithm.table else ()
    algorithm.at(0).check_state(here, state.server, state.store.rows.state, table)


_initial = tracked(static=1)(initial_state)


def step_counts(phase: Any, algorithm: Algorithm, sizes: np.ndarray, options: SimulationOptions) -> np.ndarray:
    """Return every client's number of local steps in a phase: their own, or as the phase draws its data."""
    own, drawn = (options.local_steps, options.run.steps_range) if phase is algorithm else (None, None)
    if drawn is not None:
        _check_random_steps(algorithm, drawn)
        own = np.full(len(sizes), drawn[1])
    for count in () if own is None else {int(own.min()), int(own.max())}:
        algorithm.replace(local_steps=count, epochs=None)  # methods of one step, or of random ones, refuse others
    counts = drawing.step_counts(phase.draw, sizes) if own is None else drawing.check_steps(own)
    if phase is algorithm and algorithm.same_steps and counts.min() != counts.max():
        raise ValueError(
            f"{algorithm.label} needs equally many local steps of all clients, and here they take {counts.min()} to "
            f"{counts.max()}: its corrections would no longer add up to zero, and it would end at a wrong point; give "
            "the algorithm one number of local_steps"
        )
    return counts


def _check_random_steps(algorithm: Algorithm, drawn: tuple[int, int]) -> None:
    """Refuse random numbers of local steps for methods that draw their own, or need the same of all clients."""
    said = f"random_steps={drawn[0]}:{drawn[1]}"
    if algorithm.at(0).draw_steps(0.5) is not None:
        raise ValueError(f"{algorithm.label} draws its own number of local steps, so {said} cannot be used")
    if algorithm.same_steps and drawn[0] != drawn[1]:
        raise ValueError(f"{algorithm.label} needs equally many local steps of all clients, so {said} cannot be used")


def all_step_counts(algorithm: Algorithm, sizes: np.ndarray, options: SimulationOptions) -> np.ndarray:
    """Return every client's number of local steps in every phase: [phases, N]."""
    return np.stack([step_counts(phase, algorithm, sizes, options) for phase in algorithm.phases()]).astype(np.int32)


def cast_numbers(settings: Any, dtype: Any) -> Any:
    """Return settings with numbers of the run's dtype."""
    return map_trees(lambda v: np.asarray(v, dtype), settings)


def test_chunks(task: Task, shape: ProgramShape, dtype: Any) -> Any:
    """Return the test data in chunks of x, y and weights; None if there is none."""
    if task.test is None:
        return None
    x, y = (np.asarray(a) for a in task.test)
    chunk = len(x) if shape.client.objective.whole else chunk_rows(x)
    padded = len(x) if shape.client.objective.whole else whole(len(x), chunk * shape.layout.devices)
    weights = np.zeros(padded)
    weights[: len(x)] = 1 / len(x)
    fold = (pad(cast(x, dtype), padded), pad(cast(y, dtype), padded), weights.astype(dtype))
    return tuple(a.reshape(-1, chunk, *a.shape[1:]) for a in fold)
