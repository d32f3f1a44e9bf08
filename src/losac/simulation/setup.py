"""From a task and an algorithm to the program's arguments: static shapes, arrays on the device, the first state."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from losac.algorithms.contract import Algorithm, Federation
from losac.algorithms.privacy import refuse_model_state
from losac.simulation import drawing
from losac.simulation.arrays import cast, chunk_rows, pad, parameter_count, whole
from losac.simulation.client import ClientShape, PhaseShape, Resident
from losac.simulation.forms import entry_size, formed_table, with_factoring
from losac.simulation.layout import Layout, default_layout
from losac.simulation.mesh import COPIED, check_devices, place
from losac.simulation.objective import Cut, Objective
from losac.simulation.start import initial_state
from losac.simulation.state import Problem, Shape, State
from losac.task import Task
from losac.trees import Tree, map_trees, nbytes

Gradients = Literal["auto", "formed", "factored"]


class Plan(NamedTuple):
    """How to simulate, besides what: as given by the user, checked."""

    sampled: int
    dtype: Any
    layout: Layout | None
    local_steps: np.ndarray | None
    loss_every: int
    gradients: Gradients = "formed"
    table_dtype: str | None = None


def check(task: Task, algorithm: Algorithm, sampled: int) -> None:
    """Refuse combinations of task, algorithm and sampling that the method does not support."""
    n = task.data.num_clients
    if not isinstance(algorithm, Algorithm):
        raise TypeError(
            f"{algorithm!r} is not an algorithm; make one with losac.algorithms, such as losac.algorithms.losac(…)"
        )
    if not 1 <= sampled <= n:
        raise ValueError(f"clients_per_round={sampled} must lie between 1 and the number of clients, {n}")
    if sampled < n and not algorithm.partial:
        raise ValueError(
            f"{algorithm.label} needs every client in every round: use clients_per_round={n}, or a method that "
            "supports client sampling"
        )
    refuse_model_state(algorithm, task.state)
    if task.is_composite and not algorithm.composite:
        raise ValueError(
            f"{algorithm.label} has no proximal step, so it cannot minimise a task with the regulariser "
            f"{task.regularizer}; losac, scaffold, dsgd, fedadmm, feddualavg and fedmid can"
        )


def shapes(task: Task, algorithm: Algorithm, plan: Plan) -> Shape:
    """Return the static part of the program."""
    if plan.table_dtype is not None and algorithm.table and algorithm.transforms():
        raise ValueError(
            f"{algorithm.label} puts what a transform leaves out back into its table, where table_dtype="
            f"{plan.table_dtype!r} would round it away: use either uploads or table_dtype"
        )
    sizes = np.asarray(task.data.sizes)
    random_steps = algorithm.at(0).draw_steps(0.5) is not None
    phases = []
    for phase in algorithm.phases():
        counts = step_counts(phase, algorithm, sizes, plan)
        per_epoch = int(np.ceil(sizes.min() / (phase.draw.batch_size or sizes.max())))
        passes = phase.draw.epochs or int(-(-counts.max() // per_epoch))
        varies = counts.min() != counts.max() or (random_steps and phase is algorithm)
        static = None if varies else int(counts[0])
        phases.append(PhaseShape(drawing.cut(phase.draw, sizes), static, passes))
    client = ClientShape(
        Objective.of(task),
        task.reduction,
        len(sizes),
        plan.sampled,
        int(sizes.max()),
        Cut(int(sizes.max()), tuple(int(s) for s in np.unique(sizes))),
        tuple(phases),
        plan.table_dtype if algorithm.table else None,
    )
    if plan.gradients != "formed":
        client = with_factoring(task, algorithm, client, plan)
    size = parameter_count(task)
    large_table = algorithm.table and entry_size(client, size) > size / 2
    lazy = any(form.factoring is not None and form.factoring.lazy_shapes for form in client.phases)
    layout = plan.layout or default_layout(plan.sampled, large_table, lazy, size)
    check_devices(layout)
    return Shape(client, layout, tuple(task.metrics.items()), plan.loss_every, task.is_composite)


def problem(task: Task, algorithm: Algorithm, shape: Shape, plan: Plan) -> Problem:
    """Return the arrays of a run, on the devices of its layout."""
    data, dtype = task.data, plan.dtype
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
        np.stack([step_counts(phase, algorithm, sizes, plan) for phase in algorithm.phases()]).astype(np.int32),
    )
    arrays = Problem(
        cast_numbers(algorithm, dtype),
        cast_numbers(task.regularizer, dtype),
        resident,
        train_weights.reshape(-1, chunk).astype(dtype),
        test_chunks(task, shape, dtype),
        np.asarray(per_row.sum(), dtype),
    )
    return place(arrays, shape.layout)


def start(task: Task, seed: int, dtype: Any) -> tuple[Tree, Tree, Any]:
    """Return x⁰, the model's first state and the random key of a seed."""
    params = map_trees(lambda a: cast(a, dtype), start_params(task, seed))
    model_state = () if task.state is None else map_trees(lambda a: cast(a, dtype), task.state)
    return params, model_state, jax.random.key(seed)


def share_out(task: Task, shape: Shape, problem: Problem, dtype: Any) -> Shape:
    """Decide, where the layout leaves it open, whether the devices share the clients' state or have a copy each."""
    if shape.layout.shared is not None or shape.layout.devices == 1:
        return shape
    state = jax.eval_shape(partial(initial_state, shape), problem, *start(task, 0, dtype))
    return shape._replace(layout=shape.layout._replace(shared=nbytes(state.store) > COPIED))


def first_state(task: Task, shape: Shape, problem: Problem, seed: int, dtype: Any) -> State:
    """Return the state before the first round."""
    state: State = _initial(shape, problem, *place(start(task, seed, dtype), shape.layout))
    return state


def start_params(task: Task, seed: int) -> Tree:
    """Return x⁰ as NumPy arrays; drawn in single precision whatever the run's, so that both start alike."""
    from losac._compat import enable_x64

    with enable_x64(False):
        params = task.init_params(jax.random.key(seed))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not np.issubdtype(np.asarray(leaf).dtype, np.floating):
            raise ValueError(
                f"parameter {jax.tree_util.keystr(path) or 'x'} has dtype {np.asarray(leaf).dtype}; "
                "parameters must be floating-point numbers"
            )
    return map_trees(np.asarray, params)


def _factored(shape: Shape) -> bool:
    return any(form.factoring is not None for form in shape.client.phases)


def check_given(algorithm: Algorithm, shape: Shape, problem: Problem, state: State) -> None:
    """Refuse a given start that contradicts the method's invariant."""
    here = Federation(shape.client.clients, shape.client.sampled, problem.regularizer.prox)
    if algorithm.table and problem.resident.weight.shape[0] < shape.client.clients and _factored(shape):
        return  # to form the table takes the data of all clients, which a paged run does not have at hand
    table = formed_table(shape, problem, state.store.table) if algorithm.table else ()
    algorithm.at(0).check_state(here, state.server, state.store.rows.state, table)


_initial = jax.jit(initial_state, static_argnums=0)


def step_counts(phase: Any, algorithm: Algorithm, sizes: np.ndarray, plan: Plan) -> np.ndarray:
    """Return every client's number of local steps in a phase: the plan's, or as the phase draws its data."""
    if phase is algorithm and plan.local_steps is not None:
        return plan.local_steps
    return drawing.step_counts(phase.draw, sizes)


def cast_numbers(settings: Any, dtype: Any) -> Any:
    """Return settings whose numbers have the run's dtype."""
    return map_trees(lambda v: np.asarray(v, dtype), settings)


def test_chunks(task: Task, shape: Shape, dtype: Any) -> Any:
    """Return the test data in chunks of x, y and weights; None where there is none."""
    if task.test is None:
        return None
    x, y = (np.asarray(a) for a in task.test)
    chunk = len(x) if shape.client.objective.whole else chunk_rows(x)
    padded = len(x) if shape.client.objective.whole else whole(len(x), chunk * shape.layout.devices)
    weights = np.zeros(padded)
    weights[: len(x)] = 1 / len(x)
    fold = (pad(cast(x, dtype), padded), pad(cast(y, dtype), padded), weights.astype(dtype))
    return tuple(a.reshape(-1, chunk, *a.shape[1:]) for a in fold)
