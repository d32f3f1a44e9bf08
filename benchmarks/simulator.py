"""A job on losac's simulator: used by the contender, the quick look and the profile."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jobs import STRENGTH

import losac
from losac._devices import prepare_jax
from losac.simulation.engines.resident import ResidentEngine
from losac.simulation.options import SimulationOptions
from losac.simulation.sampling import Uniform

NEVER = 10**9


def cnn(params: list[dict[str, Any]], x: Any) -> Any:
    """Return the logits of pfl's small network: two 3 × 3 convolutions, 2 × 2 max-pooling, two dense layers.

    A convolution is a product of its patches with the filters: inside a compiled loop XLA's own convolution takes about
    twenty times as long on a CPU.
    """
    x = x.reshape(-1, 32, 32, 3)
    for layer in params[:2]:
        height, width, w = x.shape[1] - 2, x.shape[2] - 2, layer["w"]
        patches = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        x = jax.nn.relu(jnp.concatenate(patches, -1) @ w.reshape(-1, w.shape[-1]) + layer["b"])
    n, h, w, c = x.shape
    x = x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4)).reshape(n, -1)
    x = jax.nn.relu(x @ params[2]["w"] + params[2]["b"])
    return x @ params[3]["w"] + params[3]["b"]


def cnn5() -> losac.models.ConvNet:
    """Return the network of the job of 1 M parameters."""
    return losac.models.ConvNet((28, 28, 1), 10, channels=(32, 64), hidden=(300,))


def make_task(job: Any, data: losac.FederatedData, weights: list[np.ndarray]) -> losac.Task:
    """Return the job's problem, started from the given weights; nothing but the training loss is measured."""
    options = {"reduction": "sum" if job.data == "mnist" else "mean", "test": None}
    if job.model == "matrix":
        loss, params = losac.losses.SquaredError(losac.models.Inner((64, 64)), 1.0), weights[0]
        options["regularizer"] = losac.prox.nuclear(STRENGTH)
    else:
        nets = {"2nn": losac.models.two_nn(), "softmax": losac.models.softmax_regression(784, 10)}
        net = cnn5() if job.model == "cnn5" else nets.get(job.model) or losac.models.Function(lambda key: None, cnn)
        loss = losac.losses.CrossEntropy(net)
        params = [{"w": w, "b": b} for w, b in zip(weights[::2], weights[1::2])]
        params = {"filters": params[:2], "dense": params[2:]} if job.model == "cnn5" else params
    return losac.Task(loss, params, data, **options)


def make_algorithm(job: Any) -> losac.algorithms.Algorithm:
    """Return the job's method."""
    method = getattr(losac.algorithms, job.method)
    if job.batch_size:
        return method(job.step, batch_size=job.batch_size, epochs=1)
    return method(job.step, job.steps, job.blocks)


class Simulator:
    """A run that can be continued at any time; nothing is evaluated in the timed rounds."""

    def __init__(self, task: losac.Task, algorithm: losac.algorithms.Algorithm, sampled: int, seed: int = 0) -> None:
        prepare_jax()
        options = SimulationOptions.of(task, rounds=1, clients_per_round=sampled, seed=seed, loss_every=NEVER)
        self.engine = ResidentEngine(task, algorithm, options)
        self.sampler = Uniform(task.data.num_clients, sampled)

    def run(self, rounds: int) -> float:
        """Run some rounds as one call of the program; return the seconds. The first call of a length compiles."""
        stop = int(self.engine.state.round) + rounds
        began = time.perf_counter()
        list(self.engine.run(self.sampler, [stop], False, lambda: None))
        jax.block_until_ready(self.engine.state)
        return time.perf_counter() - began

    def params(self) -> Any:
        """Return the server's model."""
        return self.engine.model()[0]


def mean_loss(task: losac.Task, params: Any, rows: np.ndarray, chunk: int = 1000) -> float:
    """Return the mean loss over some training rows."""
    loss = jax.jit(task.loss)
    parts = [rows[i : i + chunk] for i in range(0, len(rows), chunk)]
    return float(sum(len(p) * loss(params, (task.data.x[p], task.data.y[p])) for p in parts) / len(rows))
