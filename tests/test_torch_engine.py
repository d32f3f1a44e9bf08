"""A federation simulated with PyTorch is the one that the compiled simulator runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import losac
import losac.algorithms as A
from catalogue import ONE_EACH, REFUSED, Entry, Regime
from lazy import Lazy, needs
from losac import prox
from serving import distance

torch = Lazy("torch")
pytestmark = needs("torch")

SIZES, DIM, HIDDEN, CLASSES, ROUNDS, SAMPLED = [7, 4, 9, 5, 6], 3, 4, 3, 20, 3
N = len(SIZES)
RNG = np.random.default_rng(0)
DATA = losac.FederatedData.from_clients(
    [(RNG.normal(size=(n, DIM)) + i, RNG.integers(0, CLASSES, n)) for i, n in enumerate(SIZES)],
    test=(RNG.normal(size=(8, DIM)), RNG.integers(0, CLASSES, 8)),
)
CURVATURE = 100.0
ROUNDING = ("fedavg_momentum", "fedcm", "fedpaq", "ef21_pp", "diana", "pp_marina", "dasha_pp", "locodl", "server_dowg")
"""Methods whose runs in single precision are further than 1e-5 from those in double, on any engine."""


def cross_entropy(outputs: Any, y: Any, **options: Any) -> Any:
    return torch.nn.functional.cross_entropy(outputs, y, **options)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Products as small as these take longer with several threads, much longer where others use the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def two_layers(*more: Any) -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(DIM, HIDDEN), *more, torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES))


def right(outputs: Any, y: Any) -> Any:
    return (outputs.argmax(-1) == y).float().mean()


def logits(params: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ params["0.weight"].T + params["0.bias"])
    return hidden @ params["2.weight"].T + params["2.bias"]


def loss(params: Any, batch: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, batch[0]), batch[1]).mean()


def accuracy(params: Any, batch: Any) -> Any:
    return jnp.mean(logits(params, batch[0]).argmax(-1) == batch[1])


def start(module: Any) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}


def in_torch(algorithm: Any, module: Any = None, **options: Any) -> losac.History:
    options = {"rounds": ROUNDS, "seed": 3, "eval_every": ROUNDS // 2, "clients_per_round": SAMPLED} | options
    return losac.torch.simulate(
        two_layers() if module is None else module, cross_entropy, DATA, algorithm, metrics={"right": right}, **options
    )


def compiled(algorithm: Any, **options: Any) -> losac.History:
    run = {"rounds": ROUNDS, "seed": 3, "eval_every": ROUNDS // 2, "clients_per_round": SAMPLED, "dtype": "float32"}
    for name in set(options) & {*run, "local_steps", "sampling"}:
        run[name] = options.pop(name)
    return losac.simulate(
        losac.Task(loss, start(two_layers()), DATA, metrics={"right": accuracy}, **options), algorithm,
        gradients="formed", **run,
    )  # fmt: skip


def assert_equal(found: losac.History, wanted: losac.History, exact: float) -> None:
    assert distance(wanted.params, start(two_layers())) > 1e-3, "nothing was learnt, so nothing is compared"
    assert distance(found.params, wanted.params) < exact
    for name in ("rounds", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    np.testing.assert_allclose(found.gradients, wanted.gradients, rtol=1e-12)
    assert list(found.metrics) == list(wanted.metrics)
    for name, values in wanted.metrics.items():
        np.testing.assert_allclose(found.metric(name), values, rtol=10 * exact, atol=1e-7 if name == "right" else exact)
    assert (found.algorithm, found.settings, found.task) == (wanted.algorithm, wanted.settings, wanted.task)


def assert_same(algorithm: Any, vectorize: bool | None = None, **options: Any) -> None:
    exact = 1e-10 if options.get("dtype") == "float64" else 1e-5
    assert_equal(in_torch(algorithm, vectorize=vectorize, **options), compiled(algorithm, **options), exact)


@pytest.mark.parametrize("vectorize", [True, False])
def test_robust_aggregation_is_the_compiled_simulators(vectorize: bool):
    robust = A.scaffold(0.1 / CURVATURE, 3, 2, aggregation=(A.nearest_mixing(1), A.coordinate_median()))
    assert_same(robust, vectorize, dtype="float64")


@pytest.mark.parametrize("entry", ONE_EACH, ids=lambda e: e.name)
def test_every_algorithm_arrives_where_the_compiled_simulator_does(entry: Entry):
    sampled = N if entry.random_blocks == REFUSED else SAMPLED
    algorithm = entry.make(CURVATURE, Regime("", sampled, 3))
    wanted = compiled(algorithm, clients_per_round=sampled, dtype="float64")
    at_once = not algorithm.transforms() and entry.name != "tamuna"  # whose uploads are compressed client by client
    assert_equal(in_torch(algorithm, clients_per_round=sampled, dtype="float64", vectorize=at_once), wanted, 1e-10)
    single = in_torch(algorithm, clients_per_round=sampled, vectorize=at_once)
    if entry.name in ROUNDING:
        wanted = compiled(algorithm, clients_per_round=sampled)
    assert distance(single.params, wanted.params) < 1e-5
    assert {leaf.dtype for leaf in single.params.values()} == {np.dtype("float32")}


def test_the_catalogue_is_all_of_the_public_algorithms():
    assert {entry.name for entry in ONE_EACH} == set(A.ALGORITHMS)


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (A.losac(0.01, 4, 3, scaling="exact"), {"regularizer": prox.l1(0.05)}),
        (A.scaffold(0.01, 4, 3), {"reduction": "mean", "weights": [1, 2, 3, 4, 5]}),
        (A.fedavg(0.01, 4, 3, weighting="average"), {"weights": "samples"}),
        (A.fedavg(0.01, batch_size=4, epochs=2), {}),
        (A.fedcm(0.01, 4, 3), {"local_steps": [1, 2, 3, 4, 5]}),
        (A.losac(0.01, 4, 2, scaling="exact"), {"local_steps": [1, 5, 3, 4, 2]}),
        (A.losac_lean(0.01, 4, 2), {"local_steps": [1, 5, 3, 4, 2]}),
        (A.fedavg(lambda r: 0.01 / (1 + r), 4, 2, clip_norm=3.0), {"sampling": [[0, 1, 2], [3], [4, 1]]}),
    ],
    ids=lambda value: value.label if hasattr(value, "label") else "_".join(value),
)
def test_every_way_of_drawing_and_weighing_is_the_simulators(algorithm: Any, options: Any, vectorize: bool):
    assert_same(algorithm, vectorize, dtype="float64", **options)


@pytest.mark.parametrize(
    "algorithm",
    [A.fedavg(0.01, 4, 3, uploads=(A.top_k(0.7), A.qsgd(300))), A.fedavg(0.01, 4, 2, local_optimizer=optax.adam)],
    ids=["uploads", "optax"],
)
def test_what_cannot_be_vectorised_is_done_one_after_the_other(algorithm: Any):
    assert_same(algorithm)
    with pytest.raises(ValueError, match="vectorize=True: the"):
        in_torch(algorithm, vectorize=True)


class Weighted:
    """A loss that divides by the weights of the classes in the batch."""

    def __call__(self, outputs: Any, y: Any) -> Any:
        return cross_entropy(outputs, y, weight=torch.tensor([1.0, 2.0, 5.0]))


def test_a_loss_that_couples_rows_is_found_out():
    with pytest.raises(ValueError, match="couples the rows of a batch"):
        losac.torch.simulate(two_layers(), Weighted(), DATA, A.fedavg(0.01), rounds=1, vectorize=True)


@pytest.mark.parametrize(
    ("layer", "why"),
    [(lambda: torch.nn.Dropout(0.5), "cannot be vectorised"), (lambda: torch.nn.BatchNorm1d(HIDDEN), "keeps a state")],
    ids=["dropout", "batch norm"],
)
def test_dropout_and_batch_statistics_go_client_by_client(layer: Any, why: str):
    module = two_layers(layer())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    first, second = (in_torch(A.scaffold(0.005, 3, 2), module, rounds=4) for _ in range(2))
    assert distance(first.params, second.params) == 0
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with pytest.raises(ValueError, match=why):
        in_torch(A.scaffold(0.005, 3, 2), module, vectorize=True)


def test_batch_statistics_are_averaged_and_used_in_evaluation():
    module = two_layers(torch.nn.BatchNorm1d(HIDDEN))
    history = in_torch(A.fedavg(0.005, 3, 2), module, rounds=4)
    assert set(history.model_state) == {"1.running_mean", "1.running_var"}
    assert distance(history.model_state["1.running_mean"], np.zeros(HIDDEN) + 1e-9) > 1
    losac.torch.load_into(module, history.params, history.model_state)
    module.eval()
    x, y = DATA.test
    value = float(cross_entropy(module(torch.tensor(x, dtype=torch.float32)), torch.tensor(y)).detach())
    assert history.final("test_loss") == pytest.approx(value, rel=1e-5)


def test_a_run_goes_on_where_it_stopped():
    algorithm = A.losac(0.005, 3, 2, uploads=(A.qsgd(64),))
    whole = in_torch(algorithm, rounds=8, eval_every=4)
    half = in_torch(algorithm, rounds=4, eval_every=4, keep_state=True)
    rest = in_torch(algorithm, rounds=4, eval_every=4, state=half)
    assert distance(rest.params, whole.params) == 0
    np.testing.assert_array_equal(rest.rounds, whole.rounds)
    np.testing.assert_array_equal(rest.gradients, whole.gradients)
    with pytest.raises(ValueError, match="of another algorithm, losac, than this run, scaffold"):
        in_torch(A.scaffold(0.005, 3, 2).replace(), state=half.__class__(**vars(half) | {"algorithm": "scaffold"}))
    with pytest.raises(ValueError, match="keep_state=True"):
        in_torch(algorithm, state=whole)


def test_callbacks_and_progress_are_told():
    seen: list[int] = []

    class Enough(losac.Callback):
        def on_evaluation(self, moment: Any) -> None:
            if moment.round >= 2:
                moment.stop()

    history = in_torch(
        A.fedavg(0.01), rounds=5, eval_every=1, callbacks=[Enough()], progress=lambda h: seen.append(int(h.rounds[-1]))
    )
    assert seen == [0, 1, 2]
    assert history.rounds[-1] == 2


def test_a_run_that_diverges_says_so():
    with pytest.raises(losac.DivergedError, match=r"step_size=1e[+]38 diverged"):
        in_torch(A.fedavg(1e38, 3))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: in_torch(A.fedavg(0.1), lambda x: x), TypeError, "must be a torch.nn.Module, not function"),
        (lambda: in_torch(A.fedavg(0.1), dtype="float16"), ValueError, "'float32' or 'float64'"),
        (lambda: in_torch(A.fedavg(0.1, 1, 5)), ValueError, "client 1 has only 4 samples"),
        (lambda: in_torch(A.fedavg(0.1), clients_per_round=9), ValueError, "clients_per_round=9"),
        (lambda: in_torch(A.fedlin(0.1)), ValueError, "needs every client in every round"),
        (lambda: in_torch(A.fedavg(0.1), regularizer=prox.l1(0.1)), ValueError, "no proximal step"),
        (lambda: in_torch(A.fedavg(0.1), rounds=0), ValueError, "rounds=0"),
        (lambda: in_torch(A.fedavg(0.1), reduction="total"), ValueError, "reduction='total'"),
    ],
)
def test_wrong_input_gets_a_clear_error(make: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        make()


def test_there_may_be_fewer_test_rows_than_blocks():
    few = dataclasses.replace(DATA, test=(DATA.x[:1], DATA.y[:1]))
    run = losac.torch.simulate(two_layers(), cross_entropy, few, A.losac(1e-3, 2, 3), rounds=1)
    assert np.isfinite(run.metric("test_loss")).all()
