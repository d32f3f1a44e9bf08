"""Looks over the clients' shoulders: the local models of a round and the directions in which they moved.

The local steps are those of the simulator itself (:func:`losac.simulation.program.client.train`), with any algorithm,
whose phase is wrapped so that the model is noted after every step. The direction of a step is read off the models,
(x_i^t − x_i^{t+1})/η: the same thing for every method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm, Draw, Local, Phase
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.engines.schedule import blank_schedule
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.layout import Layout, default_layout, over_chunks
from losac.simulation.placement.store import plan_blocks, read_rows, read_view
from losac.simulation.program import rounds as program
from losac.simulation.program.client import ClientTurn, Message, Tally, train
from losac.simulation.program.objective import weighted_sum
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.simulation.sampling import Uniform, draw_clients
from losac.task import Task, parameter_count
from losac.trees import Array, Tree, map_trees
from losac_reproduction._random import probe_generator, probe_keys

EVERY = 5
"""Rounds between two looks at the loss, where a run waits for it to fall."""


class Trail(NamedTuple):
    """A phase's own local variables, the steps taken, and the models so far [T + 1, …]."""

    local: Tree
    taken: Array
    models: Tree


class Noted:
    """A phase that does what another does, and sends its local models instead of its upload."""

    def __init__(self, phase: Phase, steps: int) -> None:
        self.phase, self.steps = phase, steps
        self.draw: Draw = phase.draw
        self.weighting: str = getattr(phase, "weighting", "loss")

    def begin(self, here: Local, message: Tree, client: Tree) -> tuple[Trail, Tree]:
        """Note the first model."""
        local, client = self.phase.begin(here, message, client)
        blank = map_trees(lambda a: jnp.zeros((self.steps + 1, *a.shape), a.dtype).at[0].set(a), local_model(local))
        return Trail(local, jnp.zeros((), jnp.int32), blank), client

    def step(self, here: Local, message: Tree, client: Tree, trail: Trail, grad: Any, *y: Tree) -> Any:
        """Take the step and note the model."""
        found = self.phase.step(here, message, client, trail.local, grad, *y)
        local, entry = found if y else (found, None)
        taken = trail.taken + 1
        models = map_trees(lambda all_, a: all_.at[taken].set(a), trail.models, local_model(local))
        return (Trail(local, taken, models), entry) if y else Trail(local, taken, models)

    def end(self, here: Local, message: Tree, client: Tree, trail: Trail) -> tuple[Tree, Tree]:
        """Send the models."""
        return trail.models, client


def local_model(local: Tree) -> Tree:
    """Return the model among a method's local variables: these are it, or a named tuple with it in front."""
    return local[0] if hasattr(local, "_fields") else local


def play(shape: ProgramShape, problem: ProgramInputs, state: RunState, ids: Array, key: Array) -> Tree:
    """Return the local models [S, T + 1, …] of the round that these clients and this random key would make."""
    algorithm = problem.algorithm.at(state.round)
    for phase_index, phase in enumerate(algorithm.phases()):
        mine = _random.phase_key(key, phase_index)
        if phase is algorithm:
            return _local_models(shape, problem, state, ids, mine, phase_index)
        turn = program.PhaseTurn(algorithm, phase, phase_index, ids, jnp.ones(ids.shape, bool), mine, None)
        if phase.clients == "all":
            everybody = jnp.arange(shape.client.clients, dtype=ids.dtype)
            turn = turn._replace(ids=everybody, active=jnp.ones(everybody.shape, bool))
        state = program.perhaps(turn, partial(program.one_phase, shape, problem, turn), state)
    raise ValueError(f"{algorithm.label} has no phase of local steps")


def _local_models(
    shape: ProgramShape, problem: ProgramInputs, state: RunState, ids: Array, key: Array, phase_index: int
) -> Tree:
    algorithm = problem.algorithm.at(state.round)
    noted: Any = Noted(algorithm, _fixed_steps(shape, algorithm))
    steps = shape.client.phases[phase_index].steps
    blocks = plan_blocks(algorithm.draw, steps, key) if algorithm.table else None
    message = Message(algorithm.broadcast(state.server), state.model_state)
    common = _random.common_key(key, shape.client.clients)

    def one(who: tuple[Array, Array]) -> Tree:
        client, slot = who
        visit = ClientTurn(noted, noted, phase_index, client, slot, _random.client_key(key, client), common)
        row = read_rows(state.store.rows, client)
        view = read_view(state.store.table, blocks, client) if algorithm.table else None
        return train(
            shape.client, problem.resident, problem.regularizer, visit, message, row, view, Tally()
        )[2].content  # fmt: skip

    everyone = (ids, jnp.arange(ids.shape[0], dtype=ids.dtype))
    return jax.vmap(one)(everyone) if shape.layout.width > 1 else jax.lax.map(one, everyone)


def _fixed_steps(shape: ProgramShape, algorithm: Algorithm) -> int:
    """Return T; refuse a method whose number of local steps is random, or differs among the clients."""
    phase_index = next(k for k, phase in enumerate(algorithm.phases()) if phase is algorithm)
    steps = shape.client.phases[phase_index].steps
    if steps is None:
        raise ValueError(f"{algorithm.label} has no fixed number of local steps, which the probe needs")
    return steps


def global_gradient(shape: ProgramShape, problem: ProgramInputs, state: RunState, params: Tree) -> Tree:
    """Return ∇f, the gradient of Σ p_i f_i, at a model."""
    rows, weights, objective = problem.resident.rows, problem.train, shape.client.objective
    x, y = (a[: weights.size].reshape(*weights.shape, *a.shape[1:]) for a in (rows.x, rows.y))

    def part(p: Tree, chunk: Any) -> Array:
        value = lambda p, c, k: objective.call(p, c, k, state.model_state)[0]  # noqa: E731
        return weighted_sum(value, p, chunk, state.key, objective.coupled)

    total = lambda p: problem.scale * over_chunks(Layout(), part, p, (x, y, weights))  # noqa: E731
    return jax.grad(total)(params)


def flat(tree: Tree, lead: int = 0) -> Array:
    """Return all entries of a tree in a row, behind its leading axes."""
    return jnp.concatenate([leaf.reshape(*leaf.shape[:lead], -1) for leaf in jax.tree.leaves(tree)], axis=-1)


class Outlook(NamedTuple):
    """What the rounds that could follow a state look like; lists are over the local steps t = 0 … T − 1.

    With d = d_i^t over the clients and rounds played: the variance E‖d − E d‖²; E‖d‖²; E⟨d, ∇f(x)⟩, towards the
    gradient at the broadcast model, and its square ‖∇f(x)‖²; the spread mean_i ‖x_i^t − x̄^t‖ (t = 1 … T) and the way
    ‖x̄^t − x‖. With g = ∇f(x_i^t) besides, at the local steps that are graded and over the first clients of the rounds:
    the means of ⟨d, g⟩, ‖d‖² and ‖g‖². ``bias`` is ‖E d − c∇f(x)‖/‖c∇f(x)‖ at t = 0 with the best scalar c.
    """

    variance: Array
    square: Array
    towards: Array
    slope: Array
    spread: Array
    way: Array
    inner: Array | None
    length: Array | None
    gradient: Array | None
    bias: Array


@partial(jax.jit, static_argnums=(0, 1))
def look(
    shape: ProgramShape,
    graded: tuple[int, ...],
    problem: ProgramInputs,
    state: RunState,
    ids: Array,
    keys: Array,
) -> Outlook:
    """Play one round for each row of ids and return what was seen; its first client's steps ``graded`` are graded."""
    algorithm = problem.algorithm.at(state.round)
    server = flat(algorithm.model(state.server))

    def gradient(params: Tree) -> Array:
        return flat(global_gradient(shape, problem, state, params))

    g = gradient(algorithm.model(state.server))

    def one(total: Array, each: Any) -> Any:
        tree = play(shape, problem, state, *each)
        models = flat(tree, 2)
        moves = (models[:, :-1] - models[:, 1:]) / algorithm.step_size
        centre = models.mean(0)
        spread = jnp.linalg.norm(models - centre, axis=-1).mean(0)[1:]
        way = jnp.linalg.norm(centre - server, axis=-1)[1:]
        grades: Any = ()
        if graded:
            at = np.array(graded)
            mine, there = moves[0, at], jax.lax.map(gradient, map_trees(lambda a: a[0, at], tree))
            grades = tuple((a * b).sum(-1) for a, b in ((mine, there), (mine, mine), (there, there)))
        return total + moves.sum(0), ((moves * moves).sum(-1).mean(0), (moves @ g).mean(0), spread, way, *grades)

    blank = jnp.zeros((_fixed_steps(shape, algorithm), server.size), server.dtype)
    total, parts = jax.lax.scan(one, blank, (ids, keys))
    number = ids.size
    mean = total / number
    square, towards, spread, way, *grades = (p.mean(0) for p in parts)
    inner, length, size = grades or (None,) * 3
    variance = jnp.maximum(square - (mean * mean).sum(-1), 0) * (number / max(number - 1, 1))
    along = (mean[0] @ g) ** 2 / (g @ g)
    bias = jnp.sqrt(jnp.maximum(mean[0] @ mean[0] - along, 0) / along)
    return Outlook(variance, square, towards, g @ g, spread, way, inner, length, size, bias)


@partial(jax.jit, static_argnums=0)
def successors(shape: ProgramShape, problem: ProgramInputs, state: RunState, ids: Array, keys: Array) -> Array:
    """Return the server's models [plays, d] after each of the rounds that could follow a state, a row of ids for each.

    All phases of the method take place with the sampled clients.
    """

    def one(each: Any) -> Array:
        mine, key = each
        algorithm = problem.algorithm.at(state.round)
        after = state
        for phase_index, phase in enumerate(algorithm.phases()):
            active = jnp.ones(mine.shape, bool)
            turn = program.PhaseTurn(
                algorithm, phase, phase_index, mine, active, _random.phase_key(key, phase_index), None
            )
            after = program.one_phase(shape, problem, turn, after)
        return flat(algorithm.model(after.server))

    return jax.lax.map(one, (ids, keys))


_run = jax.jit(program.run, static_argnums=0)


class Stop(NamedTuple):
    """A run after some rounds: its program, its state and its metrics, and rounds that could follow."""

    round: int
    shape: ProgramShape
    problem: ProgramInputs
    state: RunState
    metrics: dict[str, float]
    ids: np.ndarray
    keys: Array


def stops_of(
    task: Task, algorithm: Algorithm, seed: int, *, sampled: int, stops: Sequence[int], plays: int, dtype: Any
) -> Iterator[Stop]:
    """Run an algorithm and yield where it is after some rounds, in order; end where it leaves the finite numbers."""
    prepare_jax()
    n = task.data.num_clients
    width = default_layout(sampled, algorithm.table, False, parameter_count(task)).width
    options = SimulationOptions.of(
        task,
        rounds=max(1, *stops),
        clients_per_round=sampled,
        seed=seed,
        dtype=dtype,
        layout=Layout(width, 1),
        gradients="formed",
    )
    longest, first = int(np.diff([0, *stops]).max(initial=1)), 0
    with precision(options.dtype):
        engine = ResidentEngine(task, algorithm, options)
        state = engine.state
        for stop in stops:
            gap = stop - first
            schedule = blank_schedule(1, longest, sampled)
            ids, active = draw_clients(Uniform(n, sampled), seed, first, gap, n, sampled)
            schedule.ids[0, :gap], schedule.active[0, :gap], schedule.lengths[0] = ids, active, gap
            state, record = _run(engine.shape, engine.problem, state, schedule, np.int32(1))
            first = stop
            if int(state.broken) >= 0:
                break
            rng = probe_generator(seed, stop)
            drawn = np.stack([rng.choice(n, sampled, replace=False) for _ in range(plays)]).astype(np.int32)
            keys = probe_keys(seed, stop, plays)
            metrics = {name: float(value[0]) for name, value in record.items()}
            yield Stop(stop, engine.shape, engine.problem, state, metrics, drawn, keys)


def trace(
    task: Task,
    algorithm: Algorithm,
    seed: int,
    *,
    sampled: int,
    at: Sequence[int],
    plays: int = 4,
    graded: Sequence[int] = (),
    below: float | None = None,
    dtype: Any = "float32",
) -> list[dict[str, Any]]:
    """Run an algorithm and look at its local steps after some rounds; return a record for each.

    Args:
      task: with a smooth objective.
      algorithm, seed, dtype: as for :func:`losac.simulate`.
      sampled: S.
      at: after how many rounds, in order.
      plays: how many possible next rounds to play at each of them.
      graded: the local steps at which ∇f is computed besides, for one client of each of these rounds.
      below: look also when the loss has first fallen so far, at a multiple of five rounds; marked ``reached``.
    """
    waiting, found = below is not None, []
    stops = sorted({*at, *(range(EVERY, max(at), EVERY) if below is not None else ())})
    for stop in stops_of(task, algorithm, seed, sampled=sampled, stops=stops, plays=plays, dtype=dtype):
        _fixed_steps(stop.shape, algorithm)
        reached = waiting and below is not None and stop.metrics["loss"] <= below
        if stop.round not in at and not reached:
            continue
        waiting = waiting and not reached
        seen = look(stop.shape, tuple(graded), stop.problem, stop.state, stop.ids, stop.keys)
        values = {name: np.asarray(value).tolist() for name, value in seen._asdict().items() if value is not None}
        found.append({"round": stop.round, "fixed": stop.round in at, "reached": reached, **stop.metrics, **values})
    return found


def accuracy(record: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return how well a record's directions estimate ∇f at every graded local step, in the mean square over clients.

    ``scalar`` is the c that brings c∇f nearest to the directions d, ``raw`` is ‖d − ∇f‖/‖∇f‖, ``scaled`` is
    ‖d − c∇f‖/‖c∇f‖, and ``cosine`` is ⟨d, ∇f⟩/‖d‖‖∇f‖, which no choice of the step size changes.

    >>> found = accuracy({"inner": [2.0], "length": [8.0], "gradient": [1.0]})
    >>> [round(found[name][0], 4) for name in ("scalar", "raw", "scaled", "cosine")]
    [2.0, 2.2361, 1.0, 0.7071]
    """
    inner, length, size = (np.asarray(record[name], float) for name in ("inner", "length", "gradient"))
    along = inner**2 / size
    return {
        "scalar": (inner / size).tolist(),
        "raw": np.sqrt(np.maximum(length - 2 * inner + size, 0) / size).tolist(),
        "scaled": np.sqrt(np.maximum(length - along, 0) / along).tolist(),
        "cosine": (inner / np.sqrt(length * size)).tolist(),
    }
