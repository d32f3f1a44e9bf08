"""Writes a job to files that every contender reads: the clients' data, the first weights, and the plan of every round.

Clients and blocks are losac's own draws for seed 0: losac runs as its users run it, and the others follow the plan.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np
from jobs import RANK, STRENGTH, SWEPT_SEEDS, SWEPT_STEPS, Job
from simulator import cnn5

import losac
from losac.simulation.sampling import Uniform, draw_clients

PLANNED = 200
"""The number of planned rounds; longer runs start again from the first."""


def export(name: str, job: Job, folder: Path) -> Path:
    """Write the job's files where they are missing; return the path of its description."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{job.data}-{job.clients}"
    if not (data / "offsets.npy").exists():
        _write_data(federated(job), data)
    plan = folder / f"{name}.npz"
    np.savez(plan, **schedule(job), **{f"w{i:02}": w for i, w in enumerate(first_weights(job))})
    path = folder / f"{name}.json"
    more = {"name": name, "files": str(data), "plan": str(plan), "batch": job.batch, "rate": job.rate}
    more |= {"swept_steps": SWEPT_STEPS, "swept_seeds": SWEPT_SEEDS, "strength": STRENGTH}
    path.write_text(json.dumps(asdict(job) | more))
    return path


def federated(job: Job) -> losac.FederatedData:
    """Return the clients' data."""
    if job.data == "mnist":
        return losac.data.load("mnist", clients=job.clients, partition="sorted")
    if job.data == "lowrank":
        from losac_reproduction.lowrank import lowrank_data

        return lowrank_data(job.rows, RANK)
    return images(job.clients, job.rows)


def images(clients: int, rows: int) -> losac.FederatedData:
    """Return noise of CIFAR-10's shape around one faint picture per class; clients are alike."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=clients * rows)
    centres = 0.1 * rng.standard_normal((10, 32, 32, 3), dtype=np.float32)
    x = rng.standard_normal((len(y), 32, 32, 3), dtype=np.float32)
    x *= 0.1
    x += centres[y]
    return losac.FederatedData(x, y.astype(np.int32), rows * np.arange(clients + 1), name="images", num_classes=10)


def first_weights(job: Job) -> list[np.ndarray]:
    """Return the weights that all start from: matrices and biases in turn, images and filters with channels last."""
    if job.model == "matrix":
        return [np.zeros((64, 64), np.float32)]
    if job.model == "cnn":
        rng = np.random.default_rng(0)
        shapes = [(3, 3, 3, 32), (3, 3, 32, 64), (14 * 14 * 64, 128), (128, 10)]
        drawn = [(rng.standard_normal(s) * (2 / np.prod(s[:-1])) ** 0.5).astype(np.float32) for s in shapes]
        return [a for w in drawn for a in (w, np.zeros(w.shape[-1], np.float32))]
    if job.model == "cnn5":
        drawn = cnn5().init(jax.random.key(0))
        return [np.asarray(layer[k]) for layer in drawn["filters"] + drawn["dense"] for k in ("w", "b")]
    model = losac.models.two_nn() if job.model == "2nn" else losac.models.softmax_regression(784, 10)
    return [np.asarray(layer[k]) for layer in model.init(jax.random.key(0)) for k in ("w", "b")]


def schedule(job: Job) -> dict[str, np.ndarray]:
    """Return the clients [rounds, S], and the blocks [rounds, S, T] or the clients' shuffled rows [rounds, S, n]."""
    ids, _ = draw_clients(Uniform(job.clients, job.sampled), 0, 0, PLANNED, job.clients, job.sampled)

    def of_client(r: jax.Array, client: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), r), 0), client)
        if job.batch_size is None:
            draw = jax.vmap(lambda t: jax.random.randint(jax.random.fold_in(key, t), (), 0, job.blocks))
            return draw(np.arange(job.steps))
        return jax.numpy.argsort(jax.random.uniform(jax.random.fold_in(key, 0), (job.rows,)))

    drawn = jax.jit(jax.vmap(jax.vmap(of_client, (None, 0))))(np.arange(PLANNED), ids)
    return {"clients": ids, "blocks" if job.batch_size is None else "orders": np.asarray(drawn, np.int32)}


def _write_data(data: losac.FederatedData, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    np.save(folder / "x.npy", np.asarray(data.x, np.float32))
    np.save(folder / "y.npy", np.asarray(data.y, np.float32 if data.y.dtype.kind == "f" else np.int32))
    np.save(folder / "offsets.npy", np.asarray(data.offsets, np.int64))
