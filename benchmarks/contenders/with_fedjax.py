"""FedJAX: its federated averaging on its compiled backend, as its examples use it.

The check follows the planned clients and batches; the timed rounds follow the planned clients and FedJAX's own shuffled
batches, which are as many and as large.
"""

from __future__ import annotations

import time
from typing import Any

import fedjax
import jax
import numpy as np
from protocol import Job, serve


def dense(params: list[Any], x: Any) -> Any:
    """Return the logits of fully connected layers with ReLU between them."""
    for w, b in zip(params[:-2:2], params[1:-2:2]):
        x = jax.nn.relu(x @ w + b)
    return x @ params[-2] + params[-1]


def cnn(params: list[Any], x: Any) -> Any:
    """Return the logits of two 3 × 3 convolutions, 2 × 2 max-pooling and two dense layers."""
    for w, b in zip(params[:4:2], params[1:4:2]):
        x = jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + b)
    n, h, w, c = x.shape
    return dense(params[4:], x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4)).reshape(n, -1))


class Averaging:
    """fedjax.algorithms.fed_avg with plain SGD on both sides."""

    plan, about = "clients and batches", "timed on its own shuffled batches"

    def __init__(self, job: Job) -> None:
        self.job, self.round = job, 0
        apply = cnn if job.model == "cnn" else dense

        def loss(params: list[Any], batch: dict[str, Any]) -> Any:
            logits = jax.nn.log_softmax(apply(params, batch["x"]))
            return -jax.numpy.take_along_axis(logits, batch["y"][:, None], 1).mean()

        self.loss = jax.jit(loss)
        self.planned, self.shuffled = (
            fedjax.algorithms.fed_avg.federated_averaging(
                lambda params, batch, rng: jax.grad(loss)(params, batch),
                fedjax.optimizers.sgd(job.rate),
                fedjax.optimizers.sgd(1.0),
                fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch, num_epochs=1, skip_shuffle=skip),
            )
            for skip in (True, False)
        )
        self.state = self.shuffled.init([jax.numpy.asarray(w) for w in job.weights])
        self.datasets = {i: self._dataset(slice(job.offsets[i], job.offsets[i + 1])) for i in range(job.clients)}

    def _dataset(self, rows: Any) -> fedjax.ClientDataset:
        return fedjax.ClientDataset({"x": self.job.x[rows], "y": self.job.y[rows]})

    def _keys(self) -> Any:
        return jax.random.split(jax.random.PRNGKey(self.round), self.job.sampled)

    def check(self, rounds: int) -> float:
        for _ in range(rounds):
            clients = [
                (i, self._dataset(self.job.planned_rows(self.round, slot)), key)
                for slot, (i, key) in enumerate(zip(self.job.clients_of(self.round), self._keys()))
            ]
            self.state, _ = self.planned.apply(self.state, clients)
            self.round += 1
        rows, total = self.job.judged(), 0.0
        for part in (rows[i : i + 1000] for i in range(0, len(rows), 1000)):
            batch = {"x": self.job.x[part], "y": self.job.y[part]}
            total += len(part) * float(self.loss(self.state.params, batch))
        return total / len(rows)

    def run(self, rounds: int) -> float:
        began = time.perf_counter()
        for _ in range(rounds):
            ids = np.asarray(self.job.clients_of(self.round))
            clients = [(i, self.datasets[i], key) for i, key in zip(ids, self._keys())]
            self.state, _ = self.shuffled.apply(self.state, clients)
            self.round += 1
        jax.block_until_ready(self.state.params)
        return time.perf_counter() - began


if __name__ == "__main__":
    serve(Averaging)
