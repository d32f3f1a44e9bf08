"""Clients in PyTorch are those of the simulator; their models are the user's modules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import losac
import losac.algorithms as A
from catalogue import CATALOGUE, REFUSED, Entry, Regime
from lazy import Lazy, needs
from losac import prox
from losac.federation.eager import EagerWorker
from losac.federation.numpy import numpy_worker
from losac.federation.torch import load_into, start_params, start_state, torch_central, torch_worker
from losac.federation.work import Assignment, Message
from serving import distance, federate

torch = Lazy("torch")
pytestmark = needs("torch")

SIZES, DIM, HIDDEN, CLASSES, ROUNDS, SAMPLED = [7, 4, 9, 5, 6], 3, 4, 3, 4, 3
N = len(SIZES)
LINES = losac.data.quadratic(clients=N, samples=SIZES, dim=DIM, seed=1)
RNG = np.random.default_rng(0)
DATA = losac.FederatedData.from_clients(
    [(RNG.normal(size=(n, DIM)) + i, RNG.integers(0, CLASSES, n)) for i, n in enumerate(SIZES)]
)
CURVATURE = max(np.linalg.norm(np.c_[x, np.ones(len(x))], 2) ** 2 for x, _ in map(LINES.client, range(N)))
STEP = 0.1 / CURVATURE


def line() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(DIM, 1).double()


def half_square(outputs: Any, y: Any) -> Any:
    return 0.5 * ((outputs[:, 0] - y) ** 2).mean()


def line_gradient(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    residual = x @ params["weight"][0] + params["bias"][0] - y
    return {"weight": (x.T @ residual / len(x))[None], "bias": residual.mean(keepdims=True)}


def line_loss(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    return 0.5 * np.mean((x @ params["weight"][0] + params["bias"][0] - y) ** 2)


def assert_as_in_numpy(algorithm: Any, sampled: int = SAMPLED, **options: Any) -> None:
    module = line()
    clients = [LINES.client(i) for i in range(N)]
    in_torch = [torch_worker(algorithm, module, half_square, x, y, **options) for x, y in clients]
    in_numpy = [numpy_worker(algorithm, line_gradient, x, y, loss=line_loss, **options) for x, y in clients]
    start, regularizer = start_params(module), options.get("regularizer")
    found, wanted = (
        federate(algorithm, given, start, rounds=3, sampled=sampled, regularizer=regularizer)
        for given in (in_torch, in_numpy)
    )
    assert distance(wanted.params, start) > 1e-4, "nothing was learnt, so nothing is compared"
    assert distance(found.params, wanted.params) < 1e-9
    assert found.gradients == wanted.gradients
    for mine, other in zip(jax.tree.leaves(found.kept), jax.tree.leaves(wanted.kept)):
        assert isinstance(mine, np.ndarray)
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_every_algorithm_is_the_same_as_in_numpy(entry: Entry):
    sampled = N if entry.random_blocks == REFUSED else SAMPLED
    assert_as_in_numpy(entry.make(CURVATURE, Regime("", sampled, 3)), sampled)


@pytest.mark.parametrize(
    "algorithm",
    [
        A.scaffold(STEP, batch_size=2, epochs=2),
        A.tamuna(STEP, blocks=2, probability=0.3, sparsity=2),
        A.fedavg(lambda r: STEP / (1 + r), 4, 2, clip_norm=3.0),
        A.fedavg(STEP, 4, 2, local_optimizer=optax.adam),
        A.fedavg(STEP, 4, 3, uploads=(A.top_k(0.7), A.qsgd(300))),
        A.losac(STEP, 4, 3, scaling="exact", uploads=(A.qsgd(64),)),
    ],
    ids=repr,
)
def test_every_way_of_stepping_and_sending_is_the_same_as_in_numpy(algorithm: Any):
    assert_as_in_numpy(algorithm)


@pytest.mark.parametrize(
    "regularizer",
    [prox.l1(0.2), prox.elastic_net(0.1, 0.1), prox.group_l2(0.2), prox.nuclear(0.2), prox.box(-0.3, 0.3),
     prox.simplex()],
    ids=repr,
)  # fmt: skip
def test_every_regulariser_is_the_same_as_in_numpy(regularizer: Any):
    assert_as_in_numpy(A.losac(STEP, 4, 3, scaling="exact"), regularizer=regularizer)


def two_layers(dtype: str, *more: Any) -> Any:
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(DIM, HIDDEN), *more, torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES))
    return module.to(getattr(torch, dtype))


def logits(params: Any, x: Any, last: str = "2") -> Any:
    hidden = jnp.tanh(x @ params["0.weight"].T + params["0.bias"])
    return hidden @ params[f"{last}.weight"].T + params[f"{last}.bias"]


def cross_entropy(values: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(values, y).mean()


def classifiers(algorithm: Any, module: Any) -> list[EagerWorker]:
    loss = torch.nn.functional.cross_entropy
    clients = map(DATA.client, range(N))
    return [torch_worker(algorithm, module, loss, x, y) for x, y in clients]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-9)])
@pytest.mark.parametrize(
    "algorithm",
    [A.losac(0.01, 4, 3, scaling="exact"), A.mime(0.01, batch_size=3), A.fedavg(0.02, 3, 2, uploads=(A.top_k(0.5),))],
    ids=lambda a: a.label,
)
def test_a_module_of_two_layers_arrives_where_the_simulator_does(algorithm: Any, dtype: Any, tolerance: float):
    module = two_layers(dtype)
    start = start_params(module)
    task = losac.Task(lambda p, batch: cross_entropy(logits(p, batch[0]), batch[1]), start, DATA)
    history = losac.simulate(
        task, algorithm, rounds=ROUNDS, clients_per_round=SAMPLED, seed=3, eval_every=ROUNDS, dtype=dtype
    )
    outcome = federate(algorithm, classifiers(algorithm, module), start, rounds=ROUNDS, sampled=SAMPLED, seed=3)
    assert distance(history.params, start) > 1e-2
    assert distance(outcome.params, history.params) < tolerance
    assert {leaf.dtype for leaf in outcome.params.values()} == {np.dtype(dtype)}


def test_batch_norm_statistics_are_the_models_state():
    module = two_layers("float64", torch.nn.BatchNorm1d(HIDDEN))
    algorithm, start, state = A.scaffold(0.005, 3, 2), start_params(module), start_state(module)
    assert set(state) == {"1.running_mean", "1.running_var"}

    def loss(p: Any, batch: Any, state: Any) -> tuple[Any, Any]:
        x, y = batch
        h = x @ p["0.weight"].T + p["0.bias"]
        mean, square = h.mean(0), h.var(0)
        normal = (h - mean) / jnp.sqrt(square + 1e-5) * p["1.weight"] + p["1.bias"]
        unbiased = square * len(x) / (len(x) - 1)
        after = {
            "1.running_mean": 0.9 * state["1.running_mean"] + 0.1 * mean,
            "1.running_var": 0.9 * state["1.running_var"] + 0.1 * unbiased,
        }
        return cross_entropy(jnp.tanh(normal) @ p["3.weight"].T + p["3.bias"], y), after

    history = losac.simulate(
        losac.Task(loss, start, DATA, state=state), algorithm, rounds=ROUNDS, clients_per_round=SAMPLED, seed=3,
        eval_every=ROUNDS, dtype="float64", keep_state=True,
    )  # fmt: skip
    outcome = federate(
        algorithm, classifiers(algorithm, module), start, rounds=ROUNDS, sampled=SAMPLED, seed=3,
        model_state=state,
    )  # fmt: skip
    assert distance(outcome.params, history.params) < 1e-9
    assert distance(outcome.model_state, history.state.model_state) < 1e-9
    assert distance(outcome.model_state, state) > 1e-2
    assert int(module[1].num_batches_tracked) == 0
    assert distance(start_params(module), start) == 0
    assert distance(start_state(module), state) == 0
    load_into(module, outcome.params, outcome.model_state)
    assert distance(start_params(module), outcome.params) == 0
    assert distance(start_state(module), outcome.model_state) == 0


def test_the_simulator_and_both_eager_clients_call_one_function(monkeypatch: pytest.MonkeyPatch):
    calls: list[type] = []
    step = A.fedavg.step

    def counted(self: Any, here: Any, message: Any, client: Any, local: Any, grad: Any) -> Any:
        calls.append(type(jax.tree.leaves(local)[0]))
        return step(self, here, message, client, local, grad)

    monkeypatch.setattr(A.fedavg, "step", counted)
    algorithm = A.fedavg(STEP, 3, 3)
    assert_as_in_numpy(algorithm)
    assert [issubclass(kind, torch.Tensor) for kind in calls] == [True] * 27 + [False] * 27
    task = losac.regression(losac.models.linear(DIM), LINES)
    losac.simulate(task, algorithm, rounds=1, clients_per_round=SAMPLED)
    assert len(calls) > 54
    assert all(issubclass(kind, jax.core.Tracer) for kind in calls[54:])


def test_dropout_is_decided_by_the_seed_and_leaves_the_users_generator_alone():
    module = two_layers("float32", torch.nn.Dropout(0.5))
    algorithm, start = A.fedavg(0.05, 3), start_params(module)
    worker = classifiers(algorithm, module)[2]

    def upload(seed: int, round_index: int = 0) -> Any:
        task = Assignment(seed, round_index, 0, client=2, slot=0, clients=N, sampled=SAMPLED, weight=1.0)
        return worker.work(task, Message(start), worker.start(start)).upload.content

    before = torch.get_rng_state()
    first = upload(0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert distance(upload(0), first) == 0
    assert distance(upload(1), first) > 1e-3
    assert distance(upload(0, 1), first) > 1e-3


def test_evaluation_is_in_evaluation_mode_and_knows_metrics():
    module = two_layers("float32", torch.nn.Dropout(0.5))
    x, y = DATA.client(2)
    metrics = {"accuracy": lambda outputs, y: (outputs.argmax(-1) == y).float().mean()}
    worker = torch_worker(A.fedavg(0.1), module, torch.nn.functional.cross_entropy, x, y, metrics=metrics)
    values = worker.evaluate(start_params(module), ())
    scores = logits(start_params(module), x, "3")
    assert values["loss"] == pytest.approx(float(cross_entropy(scores, y)), rel=1e-5)
    assert values["accuracy"] == pytest.approx(float((scores.argmax(-1) == y).mean()), rel=1e-6)


def test_frozen_parameters_stay_where_they_are():
    module = two_layers("float32")
    module[0].requires_grad_(False)
    assert set(start_params(module)) == {"2.weight", "2.bias"}
    algorithm = A.fedavg(0.05, 2)
    outcome = federate(algorithm, classifiers(algorithm, module), start_params(module), rounds=2, sampled=SAMPLED)
    assert distance(outcome.params, start_params(module)) > 1e-3


def test_another_model_is_refused():
    module = two_layers("float32")
    worker = classifiers(A.fedavg(0.1), module)[0]
    with pytest.raises(ValueError, match=r"\['weight'\] are not those that the module trains, \['0.bias'"):
        worker.evaluate({"weight": np.zeros(3)}, ())
    with pytest.raises(ValueError, match="are not those that the module trains"):
        load_into(module, {"weight": np.zeros(3)})


def test_numbers_that_the_federation_does_not_compute_in_are_refused():
    with pytest.raises(ValueError, match=r"bfloat16.*call module.float\(\)"):
        start_params(two_layers("bfloat16"))


def test_clients_in_pytorch_train_on_flower(tmp_path):
    pytest.importorskip("flwr")
    from flower_loop import loop
    from losac.flower import Rules, Strategy, client_app

    def algorithm(config: Any) -> Any:
        return A.scaffold(0.01, 4, 3)

    def problem(node: Any, run: Any) -> EagerWorker:
        return classifiers(algorithm(run), two_layers("float32"))[int(node["partition-id"])]

    task = losac.Task(
        lambda p, batch: cross_entropy(logits(p, batch[0]), batch[1]), start_params(two_layers("float32")), DATA
    )
    grid = loop(task, algorithm({}), tmp_path)
    grid.nodes = {node: (client_app(problem, algorithm), context) for node, (_, context) in grid.nodes.items()}
    central = torch_central(two_layers("float32"), torch.nn.functional.cross_entropy, *DATA.client(2))
    rules = Rules(clients=N, clients_per_round=SAMPLED, seed=3)
    there = Strategy(algorithm({}), rules, evaluate_every=ROUNDS).start(grid, central, ROUNDS)
    here = losac.simulate(task, algorithm({}), rounds=ROUNDS, clients_per_round=SAMPLED, seed=3, eval_every=ROUNDS)
    assert distance(there.params, here.params) < 1e-5
    assert there.metric("test_loss")[0] == pytest.approx(
        float(task.loss(start_params(two_layers("float32")), DATA.client(2))), rel=1e-5
    )
