"""Frozen weights are an argument of the program: shared by all clients, never sent, never kept, and part of a run's
identity."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from flower_loop import loop
from lazy import Lazy, needs
from losac.simulation import Layout
from losac.simulation.engines.resident import ResidentEngine, _run, precision
from losac.simulation.options import SimulationOptions
from losac.simulation.program import rounds as program
from losac.trees import nbytes

torch = Lazy("torch")
A = losac.algorithms
N, DIM, WIDE = 4, 3, 50
RNG = np.random.default_rng(0)
DATA = losac.FederatedData.from_clients([(RNG.normal(size=(8, DIM)) + i, RNG.normal(size=8)) for i in range(N)])
BASE = {"W": RNG.normal(size=(DIM, WIDE)), "shift": np.float32([1.0])}
START = {"v": RNG.normal(size=WIDE) / WIDE}
METHOD = A.losac(1e-3, 2, 4)
RUN = {"rounds": 3, "clients_per_round": 2, "eval_every": 3, "dtype": "float64"}


def predict(params: Any, x: Any, frozen: Any) -> Any:
    return jnp.tanh(x @ frozen["W"] + frozen["shift"]) @ params["v"]


def loss(params: Any, batch: Any, frozen: Any) -> Any:
    return jnp.mean((predict(params, batch[0], frozen) - batch[1]) ** 2)


def error(params: Any, batch: Any, frozen: Any) -> Any:
    return jnp.mean(jnp.abs(predict(params, batch[0], frozen) - batch[1]))


@losac.metrics.score
def largest_error(outputs: np.ndarray, y: np.ndarray) -> Any:
    return np.abs(outputs - y).max()


def task(base: Any = BASE, **options: Any) -> losac.Task:
    metrics = {"error": error, "largest_error": losac.metrics.of_model(largest_error, predict)}
    return losac.Task(loss, START, DATA, frozen=base, metrics=metrics, **options)


def closed_over() -> losac.Task:
    return losac.Task(
        lambda params, batch: loss(params, batch, BASE),
        START,
        DATA,
        metrics={
            "error": lambda params, batch: error(params, batch, BASE),
            "largest_error": losac.metrics.of_model(largest_error, lambda params, x: predict(params, x, BASE)),
        },
    )


@pytest.fixture(scope="module")
def wanted() -> losac.History:
    return losac.simulate(closed_over(), METHOD, **RUN)


ENGINES = {
    "resident": {},
    "paged": {"store": "memory"},
    "two devices": {"layout": Layout(1, 2)},
    "one by one": {"layout": Layout(1, 1)},
    "in parts": {"layout": Layout(1, parts=2)},
    "paged, in parts": {"layout": Layout(2, parts=2), "store": "memory"},
    "factored": {"gradients": "factored"},
}


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_a_run_is_that_of_weights_in_the_closure(options, wanted):
    found = losac.simulate(task(), METHOD, **RUN, **options)
    np.testing.assert_allclose(found.params["v"], wanted.params["v"], rtol=1e-12)
    for name in ("loss", "error", "largest_error"):
        assert found.final(name) == pytest.approx(wanted.final(name), rel=1e-12)
    for name in ("bytes_up", "bytes_down", "gradients"):
        assert found.costs[name].tolist() == wanted.costs[name].tolist()


def test_weights_that_are_too_large_for_a_device_are_divided(monkeypatch):
    from losac.simulation.placement import mesh
    from losac.simulation.program.setup import checked_shape

    options = SimulationOptions.of(task(), **RUN)
    assert checked_shape(task(), METHOD, options).layout.parts == 1
    monkeypatch.setattr(mesh, "free_memory", lambda: 2.0 * BASE["W"].nbytes)
    layout = checked_shape(task(), METHOD, options).layout
    assert (layout.devices, layout.parts) == (1, 2)
    divided = mesh.frozen_to_device(BASE, layout)
    assert {part.data.shape for part in divided["W"].addressable_shards} == {(DIM, WIDE // 2)}
    assert mesh.to_device({"same": divided["W"]}, layout)["same"] is divided["W"]
    with pytest.raises(ValueError, match="choose one of them"):
        losac.simulate(task(), METHOD, rounds=1, layout=Layout(1, 2, parts=2))


def test_a_sweep_shares_them(wanted):
    (found,) = losac.sweep(task(), METHOD, {"step_size": [1e-3]}, **RUN).members
    np.testing.assert_allclose(found.params["v"], wanted.params["v"], rtol=1e-12)


def test_clients_are_evaluated_and_personalised_on_them(wanted):
    for function, options in ((losac.evaluate, {}), (losac.personalize, {"steps": 2, "step_size": 0.01})):
        mine, other = (function(one, wanted.params, **options) for one in (task(), closed_over()))
        for name in ("loss", "error", "largest_error"):
            found, expected = (getattr(each, "after", each).values[name] for each in (mine, other))
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_program_holds_none_of_them_and_another_base_needs_no_other_program():
    losac.simulate(task(), METHOD, **RUN)
    programs = _run._cache_size()
    losac.simulate(task({"W": 2 * BASE["W"], "shift": BASE["shift"]}), METHOD, **RUN)
    assert _run._cache_size() == programs
    with precision(np.dtype("float64")):
        engine = ResidentEngine(task(), METHOD, SimulationOptions.of(task(), **RUN))
        ids = jnp.arange(2)
        traced = jax.make_jaxpr(lambda p, s: program.one_round(engine.shape, p, s, ids, ids < 2))
        constants = traced(engine.problem, engine.state).consts
    assert sum(np.asarray(a).nbytes for a in constants) < BASE["W"].nbytes / 10


def test_states_belong_to_their_base():
    kept = losac.simulate(task(), METHOD, **RUN, keep_state=True)
    other = task({**BASE, "W": BASE["W"] + 1e-9})
    with pytest.raises(ValueError, match=rf"frozen={task().frozen_digest} \(here {other.frozen_digest}\)"):
        losac.simulate(other, METHOD, state=kept.state, **RUN)
    again = losac.simulate(task(), METHOD, state=kept, **RUN)
    assert int(again.rounds[-1]) == 6
    assert kept.conditions["frozen_digest"] == task().frozen_digest


def test_a_run_folder_holds_none_of_them(tmp_path):
    many = {**BASE, "unused": np.zeros((1000, 200))}
    losac.runs.record(task(many), METHOD, tmp_path / "run", **RUN)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < many["unused"].nbytes / 5
    with pytest.raises(ValueError, match="was made with other frozen weights"):
        losac.runs.record(task(), METHOD, tmp_path / "run", **RUN | {"rounds": 4}, resume=True)


def test_short_numbers_stay_short():
    from losac.simulation.program.arrays import frozen_weights

    given = {"W": jnp.ones((DIM, WIDE), jnp.bfloat16), "shift": np.ones(1), "codes": np.int8([3])}
    kinds = jax.tree.map(lambda a: str(a.dtype), frozen_weights(task(given), np.float32))
    assert kinds == {"W": "bfloat16", "shift": "float32", "codes": "int8"}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: losac.Task(loss, START, DATA), "the loss takes frozen weights: give them as"),
        (lambda: losac.Task(closed_over().loss, START, DATA, frozen=BASE), "the loss has no argument named 'frozen'"),
        (lambda: losac.Task(closed_over().loss, START, DATA, metrics={"error": error}), "metric 'error' takes frozen"),
        (lambda: task({"W": "pretrained.npz"}), r"frozen holds 'pretrained.npz' \(str\) at \['W'\]"),
        (lambda: task({}), "frozen holds no arrays"),
        (lambda: losac.attacks.watch(task(), A.dsgd(1e-3), rounds=1), "without state, key or frozen weights"),
    ],
)
def test_what_does_not_fit_is_refused(make, complaint):
    with pytest.raises((TypeError, ValueError), match=complaint):
        make()


def test_on_flower_both_sides_have_them_and_compare_them(tmp_path, caplog):
    pytest.importorskip("flwr")
    from losac.federation.book import RefusedError
    from losac.flower import Rules, Strategy

    own = task({**BASE, "unused": np.zeros(10_000)}, test=None)
    rules, method = Rules(clients=N, clients_per_round=N, dtype="float64"), A.scaffold(1e-3, 2)
    grid = loop(own, method, tmp_path / "clients", "float64")
    found = Strategy(method, rules, out=tmp_path / "server", node_keys=False).start(grid, own, 2)
    same = losac.simulate(own, method, rounds=2, dtype="float64")
    np.testing.assert_allclose(found.params["v"], same.params["v"], rtol=1e-12)
    assert found.costs["bytes_down"][-1] < 10_000 * 8
    with pytest.raises(ValueError, match=f"frozen={own.frozen_digest}, not {task().frozen_digest}"):
        Strategy(method, rules, out=tmp_path / "server", node_keys=False).start(grid, task(test=None), 3)
    other = loop(task(), method, tmp_path / "others", "float64")
    with pytest.raises(RefusedError, match="did not count"):
        Strategy(method, rules, node_keys=False, attempts=1).start(other, own, 1)
    assert f"on frozen {task().frozen_digest}: give both the same algorithm" in caplog.text


@needs("torch")
def test_parameters_of_pytorch_that_need_no_gradient_are_frozen():
    net = torch.nn.Sequential(torch.nn.Linear(DIM, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    net[0].requires_grad_(False)
    method, run = A.scaffold(1e-3, 2), RUN | {"dtype": "float32"}

    def half_square(outputs: Any, y: Any) -> Any:
        return ((outputs[:, 0] - y) ** 2).mean()

    found = losac.torch.simulate(net, half_square, DATA, method, keep_state=True, **run)
    assert sorted(found.params) == ["2.bias", "2.weight"]
    assert found.costs["bytes_up"][-1] == 3 * 2 * 2 * 7 * 4  # three rounds, two clients, two messages, seven numbers
    with torch.no_grad():
        net[0].weight += 1
    with pytest.raises(ValueError, match="frozen="):
        losac.torch.simulate(net, half_square, DATA, method, state=found.state, **run)


def gradient_of(model: Any, params: Any, x: Any) -> Any:
    return jax.grad(lambda p: (model(p, x) ** 2).mean())(params)


def assert_a_part_of(part: Any, whole: Any, names: set[str]) -> None:
    """The part trains what is named, and its gradients are those of the whole model."""
    key, x = jax.random.key(0), jnp.asarray(DATA.x[:5], jnp.float32)
    mine, everything = part.init(key), whole.init(key)
    assert set(mine) == names
    np.testing.assert_allclose(part(mine, x), whole(everything, x), rtol=1e-6)
    found, expected = gradient_of(part, mine, x), gradient_of(whole, everything, x)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-7)
    assert nbytes(part.frozen) + nbytes(mine) >= nbytes(everything)


def test_parts_of_modules_are_trained_by_name_and_by_type():
    import equinox as eqx
    from flax import nnx

    rngs = nnx.Rngs(0)
    net = nnx.Sequential(nnx.Linear(DIM, 4, rngs=rngs), nnx.LayerNorm(4, rngs=rngs), nnx.Linear(4, 1, rngs=rngs))
    whole = losac.models.from_nnx(net)
    assert_a_part_of(losac.models.from_nnx(net, trainable="layers.2"), whole, {"layers.2.bias", "layers.2.kernel"})
    assert_a_part_of(
        losac.models.from_nnx(net, trainable=["*.scale", "layers.0.bias"]), whole, {"layers.0.bias", "layers.1.scale"}
    )
    module = eqx.nn.MLP(DIM, 1, width_size=4, depth=1, key=jax.random.key(0))
    whole = losac.models.from_equinox(module)
    assert_a_part_of(losac.models.from_equinox(module, trainable="*.bias"), whole, {"layers.0.bias", "layers.1.bias"})
    assert len(losac.models.from_equinox(module, trainable=eqx.nn.Linear).init(jax.random.key(0))) == 4
    with pytest.raises(ValueError, match="give one of them"):
        losac.models.from_equinox(module, trainable="*.bias", wrt=True)


def test_parts_of_any_model_are_trained_by_name():
    import flax.linen as nn

    module = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(1)])
    x = np.asarray(DATA.x[:2], np.float32)
    whole = losac.models.from_flax(module, x)
    params = whole.init(jax.random.key(7))
    part = losac.models.from_flax(module, x, trainable="layers_2", params=params)
    assert set(part.init(jax.random.key(0))) == {"layers_2.bias", "layers_2.kernel"}
    np.testing.assert_allclose(part(part.init(jax.random.key(0)), x), whole(params, x), rtol=1e-6)
    history = losac.simulate(losac.regression(part, DATA), A.fedavg(1e-4), rounds=1)
    assert history.costs["bytes_up"][-1] == N * 5 * 4
    with pytest.raises(ValueError, match=r"trainable='layer' selects none of the parameters layers_0\.bias"):
        losac.models.freeze(whole, "layer")
    with pytest.raises(TypeError, match="trainable must be a name"):
        losac.models.freeze(whole, 3)


def test_a_layer_may_be_called_value():
    tree = {"block": {"value": {"kernel": np.ones(2)}, "kernel": np.ones(2)}}
    names = [losac.models.frozen.dotted(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    assert names == ["block.kernel", "block.value.kernel"]
