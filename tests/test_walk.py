"""The two versions of a client's walk, compiled in the simulator and in plain Python, are one for every algorithm."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
import losac.algorithms as A
from catalogue import ONE_EACH
from losac import _random
from losac.algorithms.contract import Federation, Received
from losac.algorithms.one_gradient import OneGradient
from losac.federation.compiled import CompiledWorker
from losac.federation.draws import plain
from losac.federation.numpy import numpy_worker
from losac.federation.work import Assignment, Message
from losac.prox import l1, zero
from losac.simulation.engines.resident import precision
from losac.testing.regimes import Regime
from losac.trees import map_trees
from serving import distance

ROWS, DIM, ROUNDS, BLOCKS = 7, 3, 2, 3
CLIENTS, SAMPLED, CLIENT, SLOT, WEIGHT = 5, 3, 4, 1, 1.5
DATA = losac.data.quadratic(clients=1, samples=ROWS, dim=DIM, seed=1)
START = {"w": np.array([0.5, -1.0, 2.0]), "b": np.array(0.25)}
CURVATURE = float(np.linalg.norm(np.c_[DATA.client(0)[0], np.ones(ROWS)], 2) ** 2)


def loss(params: Any, batch: Any) -> Any:
    x, y = batch
    return 0.5 * jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def loss_gradient(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    residual = x @ params["w"] + params["b"] - y
    return {"w": x.T @ residual / len(x), "b": residual.mean()}


def half_square(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    return loss(params, (x, y))


def on_blocks(entry: Any) -> Any:
    return entry.make(CURVATURE, Regime("", SAMPLED, BLOCKS))


def on_batches(entry: Any) -> Any:
    """The algorithm on shuffled batches, over more than one pass where it may take several steps."""
    algorithm = on_blocks(entry)
    knows_steps = isinstance(algorithm, OneGradient | A.padamfed)
    return algorithm.replace(blocks=None, batch_size=3, **{} if knows_steps else {"local_steps": None, "epochs": 2})


def without_batches(entry: Any) -> bool:
    """Whether the algorithm only works on fixed blocks: it keeps a table of them, or draws its number of steps."""
    return on_blocks(entry).table or on_blocks(entry).draw_steps(0.5) is not None


def transformed(entry: Any) -> Any:
    """The algorithm with uploads that differ from what it computed, so that it records what was sent."""
    if entry.name == "tamuna":  # its own uplink is sparse, and takes no transforms
        return on_blocks(entry)
    return on_blocks(entry).replace(uploads=(A.random_k(0.5, error_feedback=False), A.qsgd(64)))


def assert_one_walk(algorithm: Any, regularizer: Any = None, reduction: str = "sum", compiled: bool = False) -> None:
    """Take a client through all phases of some rounds, by the simulator's program and in plain Python.

    The program runs operation by operation unless ``compiled``: most of the time would go into compiling.
    """
    options = {} if regularizer is None else {"regularizer": regularizer}
    task = losac.Task(loss, START, DATA, test=None, reduction=reduction, **options)
    workers = (
        CompiledWorker(task, algorithm, "float64"),
        numpy_worker(algorithm, loss_gradient, *DATA.client(0), loss=half_square, reduction=reduction, **options),
    )
    with precision(np.float64), contextlib.nullcontext() if compiled else jax.disable_jit():
        server = algorithm.at(0).init(START)
        kept = [worker.start(START) for worker in workers]
        assert_same(kept)
        for r in range(ROUNDS):
            now = plain(algorithm, r)
            steps = now.draw_steps(_random.steps_uniform(_random.round_key(_random.run_key(3), r)))
            for index, phase in enumerate(now.phases()):
                steps_of = None if steps is None else int(steps)
                task_of = Assignment(3, r, index, CLIENT, SLOT, CLIENTS, SAMPLED, WEIGHT, steps_of)
                message = Message(map_trees(np.asarray, phase.broadcast(server)))
                results = [worker.work(task_of, message, own) for worker, own in zip(workers, kept)]
                assert_same([result[:2] for result in results])
                kept = [result.kept for result in results]
                upload = results[0].upload.content
                if phase is now:
                    upload = now.transforms()[-1].decode(upload) if now.transforms() else upload
                    upload, _ = now.receive(now.init_server_row(START), upload)
                here = Federation(CLIENTS, SAMPLED, (regularizer or zero()).prox)
                server = phase.update(here, server, Received(upload, np.asarray(1.0)))
    assert distance(map_trees(np.asarray, now.model(server)), START) > 1e-6, "nothing was learnt"


def assert_same(pair: Any) -> None:
    first, second = (jax.tree_util.tree_leaves_with_path(one) for one in pair)
    assert [path for path, _ in first] == [path for path, _ in second]
    for (path, a), (_, b) in zip(first, second):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=jax.tree_util.keystr(path))


def named(entry: Any) -> str:
    return str(entry.name)


@pytest.mark.parametrize("entry", ONE_EACH, ids=named)
def test_transformed_uploads_on_blocks(entry: Any):
    assert_one_walk(transformed(entry))


@pytest.mark.parametrize("entry", ONE_EACH, ids=named)
def test_plain_uploads_on_batches(entry: Any):
    assert_one_walk(on_blocks(entry) if without_batches(entry) else on_batches(entry))


@pytest.mark.parametrize("entry", [entry for entry in ONE_EACH if on_blocks(entry).composite], ids=named)
def test_proximal_steps_on_means(entry: Any):
    assert_one_walk(on_blocks(entry), l1(0.1 * CURVATURE), "mean")


def test_as_one_compiled_program():
    assert_one_walk(A.losac(0.1 / CURVATURE, 4, BLOCKS, scaling="exact"), compiled=True)
