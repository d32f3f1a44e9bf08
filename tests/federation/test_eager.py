"""Clients that work uncompiled, in NumPy, are those of the simulator."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import losac
import losac.algorithms as A
from losac import prox
from losac.federation.eager import EagerWorker
from losac.federation.numpy import numpy_worker
from losac.federation.work import Assignment, Message
from losac.simulation.engines.resident import precision
from serving import distance, federate

SIZES, DIM, ROUNDS, SAMPLED = [7, 4, 9, 5, 6], 3, 6, 3
N = len(SIZES)
DATA = losac.data.quadratic(clients=N, samples=SIZES, dim=DIM, seed=1)
START = {"w": np.array([0.5, -1.0, 2.0]), "b": np.array(0.25)}
CURVATURE = max(np.linalg.norm(np.c_[x, np.ones(len(x))], 2) ** 2 for x, _ in map(DATA.client, range(N)))
STEP = 0.1 / CURVATURE


def loss(params: Any, batch: Any) -> Any:
    """Least squares with an intercept, whose parameter has no dimension."""
    x, y = batch
    return 0.5 * jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def loss_numpy(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    return 0.5 * np.mean((x @ params["w"] + params["b"] - y) ** 2)


def loss_gradient(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    assert isinstance(x, np.ndarray)
    assert isinstance(params["w"], np.ndarray)
    residual = x @ params["w"] + params["b"] - y
    return {"w": x.T @ residual / len(x), "b": residual.mean()}


def workers(algorithm: Any, **options: Any) -> list[EagerWorker]:
    clients = map(DATA.client, range(N))
    return [numpy_worker(algorithm, loss_gradient, x, y, loss=loss_numpy, **options) for x, y in clients]


def simulated(algorithm: Any, sampled: int = SAMPLED, **options: Any) -> losac.History:
    steps = options.pop("local_steps", None)
    return losac.simulate(
        losac.Task(loss, START, DATA, test=None, **options), algorithm, rounds=ROUNDS, clients_per_round=sampled,
        seed=3, eval_every=ROUNDS, dtype="float64", local_steps=steps,
    )  # fmt: skip


def eager(algorithm: Any, sampled: int = SAMPLED, weights: Any = None, **options: Any) -> Any:
    given = workers(algorithm, **options)
    regularizer = options.get("regularizer")
    return federate(
        algorithm, given, START, rounds=ROUNDS, sampled=sampled, seed=3, weights=weights, regularizer=regularizer
    )


def assert_same(algorithm: Any, sampled: int = SAMPLED, **options: Any) -> None:
    history, outcome = simulated(algorithm, sampled, **options), eager(algorithm, sampled, **options)
    assert distance(history.params, START) > 1e-3, "nothing was learnt, so nothing is compared"
    assert distance(outcome.params, history.params) < 1e-9


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(A.fedavg(STEP, batch_size=4), marks=pytest.mark.quick),
        A.scaffold(STEP, batch_size=2, epochs=2),
        A.mime(STEP, 5, batch_size=3, optimizer="adam", epsilon=1.0),
        pytest.param(A.tamuna(STEP, blocks=2, probability=0.3, sparsity=2), marks=pytest.mark.quick),
        A.fedavg(lambda r: STEP / (1 + r), 4, 2),
        A.fedprox(STEP, 4, 2, mu=1.0, local_optimizer=optax.adam, clip_norm=3.0),
        pytest.param(A.losac(STEP, 2, 4, scaling="exact"), marks=pytest.mark.quick),
        A.scaffold(STEP, 4, 3, option=1),
        A.fedadmm(STEP, 4, 3, variant="gong", rho=0.3 * CURVATURE),
    ],
    ids=repr,
)
def test_every_way_of_drawing_and_stepping_is_the_simulators(algorithm: Any):
    assert_same(algorithm)


@pytest.mark.parametrize(
    "algorithm",
    [
        A.fedavg(STEP, 4, 3, uploads=(A.top_k(0.7), A.qsgd(300))),
        A.scaffold(STEP, 4, 3, uploads=(A.random_k(0.5, error_feedback=False),)),
        A.losac(STEP, 4, 3, scaling="exact", uploads=(A.qsgd(64),)),
        A.losac_lean(STEP, 4, 3, uploads=(A.power_sgd(error_feedback=False),)),
        A.fedmid(STEP, 4, 3, uploads=(A.qsgd(64),)),
    ],
    ids=repr,
)
def test_uploads_are_transformed_as_in_the_simulator(algorithm: Any):
    assert_same(algorithm)


def test_weights_and_reduction_are_the_simulators():
    algorithm, options = A.scaffold(STEP, 4, 3), {"reduction": "mean", "weights": [1, 2, 3, 4, 5]}
    outcome = eager(algorithm, weights=np.arange(1, 6) / 15, reduction="mean")
    assert distance(outcome.params, simulated(algorithm, **options).params) < 1e-9


def test_weights_may_act_in_the_average():
    algorithm = A.fedavg(STEP, 4, 3, weighting="average")
    history = simulated(algorithm, weights="samples")
    outcome = eager(algorithm, weights=np.array(SIZES) / sum(SIZES))
    assert distance(outcome.params, history.params) < 1e-9


@pytest.mark.parametrize("regularizer", [prox.l1(0.2), prox.group_l2(0.2)], ids=repr)
def test_the_proximal_steps_are_the_simulators(regularizer: Any):
    assert_same(A.losac(STEP, 4, 3, scaling="exact"), regularizer=regularizer)


def test_a_client_may_take_its_own_number_of_steps():
    algorithm, steps = A.fedcm(STEP, 4, 3), [1, 2, 3, 4, 5]
    given = [worker for i, k in enumerate(steps) for worker in workers(algorithm, local_steps=k)[i : i + 1]]
    outcome = federate(algorithm, given, START, rounds=ROUNDS, sampled=SAMPLED, seed=3)
    assert distance(outcome.params, simulated(algorithm, local_steps=steps).params) < 1e-9


def test_single_precision_stays_single_whatever_the_gradients_are():
    algorithm = A.fedmid(STEP, 4, 3)
    worker, start = workers(algorithm)[0], jax.tree.map(np.float32, START)
    assert loss_gradient(start, *DATA.client(0))["w"].dtype == np.float64
    task = Assignment(seed=0, round=0, phase_index=0, client=0, slot=0, clients=N, sampled=SAMPLED, weight=1.0)
    result = worker.work(task, Message(start), worker.start(start))
    assert {leaf.dtype for leaf in jax.tree.leaves(result.upload)} == {np.dtype(np.float32)}


def test_gradients_are_counted_by_rows():
    algorithm = A.mime_svrg(STEP, 4, batch_size=2)
    outcome = federate(algorithm, workers(algorithm), START, rounds=1, sampled=N)
    batches = [2 * sum(min(2, n - 2 * (t % -(-n // 2))) for t in range(4)) for n in SIZES]
    assert outcome.gradients == sum(SIZES) + sum(batches)


def test_work_leaves_its_arguments_alone_and_repeats_itself():
    algorithm = A.losac(STEP, 3, 4, uploads=(A.qsgd(8),))
    worker = workers(algorithm)[2]
    with precision(np.float64):
        message = Message(jax.tree.map(np.asarray, algorithm.init(START)))
    kept = worker.start(START)
    before = jax.tree.map(np.copy, (message, kept))
    task = Assignment(seed=0, round=4, phase_index=0, client=2, slot=0, clients=N, sampled=SAMPLED, weight=1.0)
    first, second = worker.work(task, message, kept), worker.work(task, message, kept)
    assert all(np.array_equal(u, v) for u, v in zip(jax.tree.leaves(before), jax.tree.leaves((message, kept))))
    assert all(np.array_equal(u, v) for u, v in zip(jax.tree.leaves(first), jax.tree.leaves(second)))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves((first.upload, first.kept)))
    assert np.abs(first.kept.table["w"]).max() > 0


def test_the_simulator_and_the_eager_client_call_one_function(monkeypatch: pytest.MonkeyPatch):
    calls: list[type] = []
    step = A.fedavg.step

    def counted(self: Any, here: Any, message: Any, client: Any, local: Any, grad: Any) -> Any:
        calls.append(type(jax.tree.leaves(message)[0]))
        return step(self, here, message, client, local, grad)

    monkeypatch.setattr(A.fedavg, "step", counted)
    algorithm = A.fedavg(STEP, 7, 3)
    simulated(algorithm)
    traced = len(calls)
    assert traced > 0
    assert all(issubclass(kind, jax.core.Tracer) for kind in calls)
    eager(algorithm)
    assert len(calls) == traced + ROUNDS * SAMPLED * 7
    assert all(issubclass(kind, np.ndarray) for kind in calls[traced:])


def test_evaluation_is_the_mean_over_all_rows(monkeypatch: pytest.MonkeyPatch):
    x, y = DATA.client(2)
    metrics = {"bias": lambda p, x, y: np.mean(x @ p["w"] + p["b"] - y)}
    worker = numpy_worker(A.fedavg(STEP), loss_gradient, x, y, loss=loss_numpy, metrics=metrics)
    monkeypatch.setattr("losac.federation.eager.CHUNK", 4)
    values = worker.evaluate(START, ())
    assert values["loss"] == pytest.approx(float(loss(START, (x, y))), rel=1e-5)
    assert values["bias"] == pytest.approx(float(np.mean(x @ START["w"] + START["b"] - y)), rel=1e-12)
    with pytest.raises(ValueError, match="without the function that computes its loss"):
        numpy_worker(A.fedavg(STEP), loss_gradient, x, y).evaluate(START, ())


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (A.fedavg(STEP, 1, 8), {}, "blocks=8, but the client has only 7 rows: use at most blocks=7"),
        (A.fedavg(STEP), {"reduction": "total"}, "reduction='total' must be 'sum'"),
        (A.fedavg(STEP), {"local_steps": 0}, "local_steps=0 must be at least 1"),
        (A.fedavg(STEP), {"regularizer": prox.l1(0.1)}, "fedavg has no proximal step"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(algorithm: Any, options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        numpy_worker(algorithm, loss_gradient, *DATA.client(0), **options)


def test_targets_must_fit_the_inputs():
    with pytest.raises(ValueError, match="x has 7 rows but y has 6"):
        numpy_worker(A.fedavg(STEP), loss_gradient, DATA.client(0)[0], DATA.client(0)[1][:6])
