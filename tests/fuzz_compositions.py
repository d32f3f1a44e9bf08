"""Random compositions of all that a run is made of; a seed and a number decide each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import losac
import losac.algorithms as A
from catalogue import CATALOGUE, REFUSED, Regime
from losac import prox
from losac.algorithms import Algorithm, Transform
from losac.algorithms.compression import Qsgd, RandomK, TopK
from losac.simulation import Layout

Rng = np.random.Generator


@dataclass(frozen=True)
class Composition:
    """One run: a task, an algorithm and the options of :func:`losac.simulate`."""

    seed: int
    number: int
    name: str
    task: losac.Task
    algorithm: Algorithm
    run: dict[str, Any]
    kind: str
    reckless: bool
    """Whether the step is so long that the run may leave the finite numbers."""
    checks: Rng = field(repr=False)
    """Decides what is checked besides what is always checked."""

    def __str__(self) -> str:
        sizes = self.task.data.sizes.tolist()
        options = ", ".join(f"{name}={value!r}" for name, value in self.run.items())
        return (
            f"{self.number}: {self.algorithm!r}, {self.kind}, rows {sizes}, f_i = {self.task.reduction}, weights "
            f"{np.round(self.task.client_weights, 3).tolist()}, Ψ = {self.task.regularizer!r}; {options}"
        )


def compose(seed: int, number: int) -> Composition:
    """Draw a composition; what an algorithm's own settings forbid is drawn again."""
    rng = np.random.default_rng([seed, number])
    clients = int(rng.integers(1, 7))
    sizes = rng.integers(1, 9, clients)
    kind = str(rng.choice(["squares", "classes", "network", "nested"]))
    while True:
        entry = CATALOGUE[rng.integers(len(CATALOGUE))]
        everyone = entry.sampling == REFUSED or rng.random() < 0.2
        sampled = clients if everyone else int(rng.integers(1, clients + 1))
        if entry.name == "tamuna" and sampled < 2:
            continue
        reckless = rng.random() < 0.05
        try:
            algorithm = draw_algorithm(rng, entry, sampled, sizes, reckless)
            task = draw_task(rng, kind, sizes, algorithm)
            break
        except ValueError:
            continue
    if np.random.default_rng([seed, number, 1]).random() < 0.15:  # a rule without jumps, which rounding would decide
        algorithm = tolerant(algorithm, {"aggregation": (A.centred_clipping(start="zero"),)})
    run = draw_run(rng, algorithm, task, sampled, entry.sampling == REFUSED)
    return Composition(seed, number, entry.name, task, algorithm, run, kind, reckless, rng)


# ---------------------------------------------------------------- tasks


def squares(params: Any, batch: Any) -> Any:
    """Half the squared error of a linear model."""
    return 0.5 * jnp.mean((outputs(params, batch[0])[:, 0] - batch[1]) ** 2)


def classes(params: Any, batch: Any) -> Any:
    """The cross-entropy of a linear model."""
    return optax.softmax_cross_entropy_with_integer_labels(outputs(params, batch[0]), batch[1]).mean()


def nested(params: Any, batch: Any) -> Any:
    """A loss whose parameters are a tuple of a dictionary, a scalar and a list."""
    first, scale, (shift,) = params
    return jnp.mean(jnp.log1p((batch[0] @ first["w"] * (1 + 0.1 * scale) + shift - batch[1]) ** 2))


def outputs(params: Any, x: Any) -> Any:
    """A linear model, its parameters named as PyTorch names them."""
    return x @ params["weight"].T + params["bias"]


def size(params: Any, batch: Any) -> Any:
    """A metric for any task."""
    return jnp.mean(jnp.abs(batch[0]) > 0.5)


def draw_task(rng: Rng, kind: str, sizes: np.ndarray, algorithm: Algorithm) -> losac.Task:
    """Draw data of clients that differ, a loss, weights and, where the method takes one, a regulariser."""
    width, labels = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    if any(isinstance(transform, TopK) for transform in algorithm.transforms()):
        labels = 3  # the gradients of two classes are equal in modulus, and rounding would decide what is sent

    def rows(count: int, centre: float) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(count, width)) + centre
        return x, rng.integers(0, labels, count) if kind in ("classes", "network") else rng.normal(size=count) + centre

    parts = [rows(int(n), float(rng.normal())) for n in sizes]
    test = rows(int(rng.integers(1, 6)), 0.0) if rng.random() < 0.5 else None
    data = losac.FederatedData.from_clients(parts, test=test)
    options: dict[str, Any] = {"reduction": str(rng.choice(["sum", "mean"])), "weights": draw_weights(rng, len(sizes))}
    if algorithm.composite and rng.random() < 0.4:
        options["regularizer"] = draw_regularizer(rng)
    metrics = {"size": size} if rng.random() < 0.3 else {}
    if kind == "network":
        return losac.classification(losac.models.Dense((width, 2, labels)), data, **options)
    if kind == "nested":
        start: Any = ({"w": rng.normal(size=width)}, np.array(0.3), [np.zeros(1)])
        return losac.Task(nested, start, data, metrics=metrics, **options)
    count = labels if kind == "classes" else 1
    start = {"weight": 0.1 * rng.normal(size=(count, width)), "bias": np.zeros(count)}
    return losac.Task(classes if kind == "classes" else squares, start, data, metrics=metrics, **options)


def draw_weights(rng: Rng, clients: int) -> Any:
    """Draw p: uniform, by samples, or numbers."""
    words: list[Any] = ["uniform", "samples", rng.uniform(0.2, 3.0, clients).tolist()]
    return words[rng.integers(3)]


def draw_regularizer(rng: Rng) -> Any:
    """Draw Ψ."""
    made = (
        prox.l1(0.01), prox.elastic_net(0.01, 0.02), prox.group_l2(0.02), prox.nuclear(0.02), prox.box(-0.5, 0.5),
    )  # fmt: skip
    return made[rng.integers(len(made))]


# ---------------------------------------------------------------- algorithms


class Decay:
    """A schedule; one object for each value, so that programs are shared."""

    def __init__(self, first: float) -> None:
        self.first = first

    def __call__(self, round_index: Any) -> Any:
        return self.first / (1 + round_index)

    def __repr__(self) -> str:
        return f"Decay({self.first:.3g})"


def draw_algorithm(rng: Rng, entry: Any, sampled: int, sizes: np.ndarray, reckless: bool) -> Algorithm:
    """Draw the settings of one of the catalogue's methods."""
    blocks = int(rng.integers(1, min(3, sizes.min()) + 1))
    curvature = 30.0 * float(sizes.max()) * (1e-9 if reckless else 1.0)
    algorithm: Algorithm = entry.make(curvature, Regime("", sampled, blocks))
    known = algorithm.settings()
    changes: dict[str, Any] = {}
    if "local_steps" in known and known["local_steps"] is not None:
        changes["local_steps"] = int(rng.integers(1, 4))
    if rng.random() < 0.4 and "batch_size" in known and not algorithm.table:
        changes |= {"blocks": None, "batch_size": int(rng.integers(1, 6))}
        if rng.random() < 0.5 and not algorithm.same_steps:
            changes |= {"local_steps": None, "epochs": int(rng.integers(1, 3))}
        elif rng.random() < 0.5:
            changes |= {"local_steps": int(rng.integers(1, 6))}
        elif algorithm.same_steps:
            changes |= {"local_steps": 2}
    if "weighting" in known and rng.random() < 0.4:
        changes["weighting"] = "average"
    if rng.random() < 0.1:
        changes["step_size"] = Decay(algorithm.step_size)
    if "clip_norm" in known and not algorithm.tailored_steps and rng.random() < 0.2:
        changes["clip_norm"] = 0.5
    if "local_optimizer" in known and not algorithm.tailored_steps and rng.random() < 0.1:
        changes["local_optimizer"] = optax.adam
    if rng.random() < 0.35:
        changes["uploads"] = draw_uploads(rng)
    if algorithm.worded() and rng.random() < 0.5:
        changes["step_size"] = "auto"
    return tolerant(algorithm, changes)


def tolerant(algorithm: Algorithm, changes: dict[str, Any]) -> Algorithm:
    """Apply what the algorithm takes: a method may refuse mini-batches, schedules or transforms."""
    together = [{k: v for k, v in changes.items() if k in _DRAW}]
    together += [{name: value} for name, value in changes.items() if name not in _DRAW]
    for part in together:
        try:
            algorithm = algorithm.replace(**part)
        except ValueError:
            continue
    return algorithm


_DRAW = ("local_steps", "blocks", "batch_size", "epochs")


def draw_uploads(rng: Rng) -> tuple[Transform, ...]:
    """Draw transforms, one or two."""
    feedback = bool(rng.random() < 0.5)

    def packing() -> dict[str, Any]:
        return {"over": str(rng.choice(["array", "model"])), "bits": (None, 8, 16)[rng.integers(3)]}

    made: Sequence[Callable[[], Transform]] = (
        lambda: Qsgd(int(rng.choice([1, 7, 127, 300])), shrink=bool(rng.random() < 0.3)),
        lambda: TopK(float(rng.uniform(0.1, 1)), error_feedback=feedback, **packing()),
        lambda: RandomK(
            float(rng.uniform(0.1, 1)), error_feedback=feedback, same_places=bool(rng.random() < 0.3), **packing()
        ),
        lambda: A.fixed_point(1e3, int(rng.integers(8, 40))),
        lambda: A.power_sgd(int(rng.integers(1, 3)), error_feedback=feedback, bits=rng.choice([None, 8, 16])),
        lambda: A.gaussian(1.0, 0.01, noise_at=str(rng.choice(["client", "server"])), other_clip=1.0),
    )
    first = made[rng.integers(len(made))]()
    if rng.random() < 0.8 or first.on_the_sum:
        return (first,)
    return (first, made[rng.integers(len(made))]())


# ---------------------------------------------------------------- runs


def draw_run(rng: Rng, algorithm: Algorithm, task: losac.Task, sampled: int, everyone: bool) -> dict[str, Any]:
    """Draw the options of :func:`losac.simulate`."""
    clients = task.data.num_clients
    run: dict[str, Any] = {
        "rounds": int(rng.integers(2, 7)),
        "clients_per_round": sampled,
        "seed": int(rng.integers(2**32)),
        "eval_every": int(rng.integers(1, 4)),
        "dtype": "float64" if rng.random() < 0.7 else "float32",
    }
    if not (everyone or algorithm.needs_all_replies) and rng.random() < 0.5:
        run["sampling"] = draw_sampling(rng, clients, sampled)
    if rng.random() < 0.15 and algorithm.local_steps is not None and not algorithm.same_steps:
        run["local_steps"] = rng.integers(1, 5, clients).tolist()
    if rng.random() < 0.1:
        run["loss_every"] = int(rng.integers(2, 4))
    if rng.random() < 0.5:
        run["gradients"] = str(rng.choice(["formed", "factored"], p=[0.7, 0.3]))
    if algorithm.table and not (algorithm.uploads or algorithm.aggregation) and rng.random() < 0.3:
        run["table_dtype"] = str(rng.choice(["bfloat16", "float16", "float32"]))
    if rng.random() < 0.4:
        run["layout"] = Layout(int(rng.integers(1, sampled + 1)), draw_devices(rng))
    fixed = algorithm.at(0).draw_steps(0.5) is None and not algorithm.same_steps and "local_steps" not in run
    if fixed and algorithm.draw.steps != 0 and rng.random() < 0.15 and takes_steps(algorithm):
        run["random_steps"] = f"{rng.integers(1, 3)}:{rng.integers(3, 6)}"
    if rng.random() < 0.1:
        run["until"] = "loss=-1e9"  # which no run reaches
    return run


def draw_devices(rng: Rng) -> int:
    """Draw the number of devices: one or, where they are there, two."""
    return min(int(rng.integers(1, 3)), jax.local_device_count())


def takes_steps(algorithm: Algorithm) -> bool:
    """Whether the method has local steps whose number may be drawn."""
    try:
        algorithm.replace(local_steps=2)
    except ValueError:
        return False
    return True


class Turns:
    """A sampler of a user's own: each round the next clients, whose number changes too."""

    def __init__(self, clients: int, sampled: int) -> None:
        self.clients, self.sampled = clients, sampled

    def __call__(self, round_index: int, rng: Rng, history: Any) -> np.ndarray:
        count = 1 + round_index % self.sampled
        return np.sort((round_index + rng.permutation(self.clients)[:count]) % self.clients)

    def __repr__(self) -> str:
        return f"Turns({self.clients}, {self.sampled})"


def draw_sampling(rng: Rng, clients: int, sampled: int) -> Any:
    """Draw how the clients of a round are chosen: lists, a trace, a function."""
    which = rng.integers(3)
    if which == 0:
        counts = rng.integers(1, sampled + 1, int(rng.integers(1, 4)))
        return [rng.permutation(clients)[:count].tolist() for count in counts]
    if which == 1:
        trace = rng.random((int(rng.integers(1, 5)), clients)) < 0.5
        trace[:, int(rng.integers(clients))] = True
        return trace
    return Turns(clients, sampled)
