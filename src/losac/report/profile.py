"""What an algorithm costs, keeps and needs, measured on its real messages and states.

The costs are found by tracing the compiled program: nothing is run and no data is needed.

>>> from losac.algorithms import scaffold
>>> found = profile(scaffold(0.1, local_steps=5), blank_task("softmax"))
>>> found.down, found.up, found.client_state
(2.0, 2.0, 1.0)
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, Literal

import jax
import numpy as np

from losac import models, prox
from losac._devices import prepare_jax
from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm, Clients, Draw
from losac.algorithms.facts import Scale
from losac.data import FederatedData, quadratic
from losac.history import DivergedError
from losac.simulation import Layout, simulate
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.options import SimulationOptions
from losac.simulation.products.forms import entry_size
from losac.simulation.program import drawing, setup
from losac.simulation.program import rounds as program
from losac.simulation.program.costs import Costs
from losac.simulation.program.costs import costs as measured_costs
from losac.simulation.program.start import initial_state
from losac.task import Task, classification, parameter_count, regression
from losac.trees import nbytes

Model = Literal["2nn", "softmax"]
CLIENTS, ROWS, BLOCKS, BLOCK_ROWS = 4, 8, 4, 12
DRIFT_ROUNDS, DRIFT_TOLERANCE = 4000, 1e-6


def example(algorithm: str | type[Algorithm], curvature: float = 1.0, blocks: int = BLOCKS) -> Algorithm:
    """Return an algorithm with settings that suit a problem of this curvature with all clients taking part."""
    kind = ALGORITHMS[algorithm] if isinstance(algorithm, str) else algorithm
    return kind.for_scale(Scale(curvature, CLIENTS, CLIENTS, blocks))


@dataclasses.dataclass(frozen=True)
class PhaseProfile:
    """One phase, for one client that takes part in it: sizes in models, gradients in passes over its n_i samples."""

    clients: Clients
    chance: float
    down: float
    up: float
    steps: float
    gradients_per_step: int
    gradients: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """What was measured of an algorithm; states and messages are in sizes of the model.

    Args:
      algorithm: its name with its settings.
      parameters: of the model.
      model_bytes: of the model.
      phases: the exchanges of a round.
      client_state: what a client keeps between rounds besides its table.
      table_state: the entries that it keeps for its blocks, all together, with all gradients formed.
      table_factors: the same with the gradients of dense layers as products, for blocks of twelve rows.
      blocks: M, the number of these blocks.
      server_state: what the server keeps, the model included.
      server_rows: what the server keeps besides for each client.
      samples_clients: whether clients may be sampled.
      regulariser: whether a task with a regulariser is taken.
      single_uploads: whether the server must see single uploads; sums of them (secure aggregation) are not enough.
      distance: from the optimum, where :func:`drift` was measured.
    """

    algorithm: str
    parameters: int
    model_bytes: int
    phases: tuple[PhaseProfile, ...]
    client_state: float
    table_state: float
    table_factors: float
    blocks: int
    server_state: float
    server_rows: float
    samples_clients: bool
    regulariser: bool
    single_uploads: bool
    distance: float | None = None

    @property
    def down(self) -> float:
        """What a client of the round receives on average: a phase counts by its chance."""
        return sum(phase.chance * phase.down for phase in self.phases)

    @property
    def up(self) -> float:
        """What a client of the round sends on average."""
        return sum(phase.chance * phase.up for phase in self.phases)

    @property
    def gradients(self) -> float:
        """The single-sample gradients that a client of the round evaluates on average, over n_i."""
        return sum(phase.chance * phase.gradients for phase in self.phases)

    @property
    def gradients_per_step(self) -> int:
        """The gradients of one local step."""
        return max(phase.gradients_per_step for phase in self.phases)

    @property
    def corrects_drift(self) -> bool | None:
        """Whether the distance from the optimum vanishes; None if it was not measured."""
        return None if self.distance is None else self.distance <= DRIFT_TOLERANCE

    def record(self) -> dict[str, Any]:
        """Return everything by name, for files."""
        averages = {
            "down": self.down,
            "up": self.up,
            "bytes_down": round(self.down * self.model_bytes),
            "bytes_up": round(self.up * self.model_bytes),
            "gradients": self.gradients,
            "gradients_per_step": self.gradients_per_step,
            "corrects_drift": self.corrects_drift,
        }
        return dataclasses.asdict(self) | averages


def profile(algorithm: Algorithm, task: Task | None = None) -> Profile:
    """Measure what an algorithm costs and keeps, without running it, and whether it takes a regulariser.

    Args:
      algorithm: with its settings; all of this may depend on them.
      task: its model gives the sizes, and every client takes part; MNIST's 2NN on blank data by default.
    """
    prepare_jax()
    task = blank_task() if task is None else task
    options = SimulationOptions.of(task, rounds=1, gradients="formed")
    with precision(options.dtype):
        shape = setup.checked_shape(task, algorithm, options)
        problem = setup.program_inputs(task, algorithm, shape, options)
        start = setup.start(task, 0, options.dtype)
        state = jax.eval_shape(partial(initial_state, shape), problem, *start)
        costs = measured_costs(shape, problem, state)
    model, n = nbytes(start[0]), task.data.num_clients
    rows = state.store.rows
    phases = [_exchange(algorithm, phase_index, cost, model, task) for phase_index, cost in enumerate(costs)]
    return Profile(
        algorithm=repr(algorithm),
        parameters=sum(int(leaf.size) for leaf in jax.tree.leaves(start[0])),
        model_bytes=model,
        phases=tuple(phases),
        client_state=nbytes((rows.state, rows.transforms)) / n / model,
        table_state=nbytes(state.store.table) / n / model,
        table_factors=_factored_table(algorithm, task) if algorithm.table else 0.0,
        blocks=algorithm.draw.blocks,
        server_state=nbytes(state.server) / model,
        server_rows=nbytes(rows.server) / n / model,
        samples_clients=algorithm.partial,
        regulariser=takes_regulariser(algorithm),
        single_uploads=algorithm.server_rows,
    )


def _factored_table(algorithm: Algorithm, task: Task) -> float:
    """Return how many models a client's table takes with gradients as products, for blocks of this many rows."""
    blocks, (x, y) = algorithm.draw.blocks, task.data.client(0)
    rows = [(np.repeat(x[:1], BLOCK_ROWS * blocks, 0), np.repeat(y[:1], BLOCK_ROWS * blocks, 0))]
    wide = dataclasses.replace(task, data=FederatedData.from_clients(rows), weights="uniform")
    shape = setup.program_shape(wide, algorithm, SimulationOptions.of(wide, rounds=1, gradients="factored"))
    size = parameter_count(task)
    return blocks * entry_size(shape.client, size) / size


def _exchange(algorithm: Algorithm, phase_index: int, cost: Costs, model: int, task: Task) -> PhaseProfile:
    settled = algorithm.at(0)
    phase = settled.phases()[phase_index]
    steps = _mean_steps(settled, task) if phase is settled else float(phase.draw.steps or 0)
    return PhaseProfile(
        clients=phase.clients,
        chance=1.0 if phase.chance is None else float(phase.chance),
        down=cost.down / model,
        up=cost.up / model,
        steps=steps,
        gradients_per_step=cost.gradients_per_step,
        gradients=cost.gradients_per_step * _passes(phase.draw, steps, task) + cost.full_gradients,
    )


def _mean_steps(algorithm: Algorithm, task: Task) -> float:
    """Return the mean number of local steps, over clients or, if it is random, over its distribution."""
    uniform = (np.arange(2**14) + 0.5) / 2**14
    drawn = algorithm.draw_steps(uniform)
    return float(np.mean(drawing.step_counts(algorithm.draw, task.data.sizes) if drawn is None else drawn))


def _passes(draw: Draw, steps: float, task: Task) -> float:
    """Return how often clients go through their rows in this many steps, or, with shuffled batches, in their own."""
    if draw.batch_size is None:
        return steps / draw.blocks
    sizes = task.data.sizes
    return float(np.mean(drawing.rows_drawn(draw, sizes, drawing.step_counts(draw, sizes)) / sizes))


def blank_data() -> FederatedData:
    """Return clients with the shapes of MNIST and nothing in them."""
    clients = [(np.zeros((ROWS, 784), np.float32), np.zeros(ROWS, np.int32))] * CLIENTS
    return FederatedData.from_clients(clients, name="blank", num_classes=10)


def blank_task(model: Model = "2nn") -> Task:
    """Return a task with the shapes of MNIST and nothing in it."""
    data = blank_data()
    make = {"2nn": models.two_nn, "softmax": models.softmax_regression}[model]
    return classification(make(784, 10), data)


def takes_regulariser(algorithm: Algorithm) -> bool:
    """Run one round of a task with an ℓ₁ term; return whether the method accepts it."""
    data = quadratic(clients=CLIENTS, samples=ROWS, dim=2, seed=0)
    task = regression(models.linear(2), data, regularizer=prox.l1(0.1))
    options = SimulationOptions.of(task, rounds=1, layout=Layout(CLIENTS, 1), gradients="formed")
    try:
        with precision(options.dtype):
            engine = ResidentEngine(task, algorithm, options)
            everybody = np.arange(CLIENTS, dtype=np.int32), np.ones(CLIENTS, bool)
            _one_round(engine.shape, engine.problem, engine.state, *everybody)
    except ValueError as error:
        if "regulariser" not in str(error):
            raise
        return False
    return True


_one_round = jax.jit(program.one_round, static_argnums=0)


def drift(algorithm: str | type[Algorithm]) -> float:
    """Return how far from the optimum a method settles on clients that differ, in float64.

    All clients take part, with full gradients and K local steps, by the settings of its example;
    infinity if it diverges.
    """
    data = quadratic(clients=10, samples=16, dim=4, seed=1)
    curvature = max(float(np.linalg.norm(x, 2)) ** 2 for x, _ in map(data.client, range(data.num_clients)))
    task = regression(models.linear(4), data)
    method = example(algorithm, curvature, blocks=1)
    try:
        run = simulate(task, method, rounds=DRIFT_ROUNDS, eval_every=DRIFT_ROUNDS, dtype="float64")
    except DivergedError:
        return math.inf
    return float(np.abs(run.params - np.asarray(data.info["optimum"])).max())


def measure(algorithm: str | type[Algorithm], task: Task | None = None, *, with_drift: bool = False) -> Profile:
    """Return the profile of an algorithm's example, with its drift on request; by name, or of a class of your own."""
    found = profile(example(algorithm), task)
    return dataclasses.replace(found, distance=drift(algorithm)) if with_drift else found


def state_in_words(found: Profile) -> str:
    """Return what a client keeps, in models, with M for the number of blocks: ``"1 + M"``."""
    entries = found.table_state / found.blocks
    table = "" if not entries else "M" if entries == 1 else f"{entries:.3g} M"
    rows = f"{found.client_state:.3g}"
    return " + ".join(part for part in (rows if found.client_state or not table else "", table) if part)
