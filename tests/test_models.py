"""Modules of other frameworks as models: their parameters, their gradients, their modes and their states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
import losac.algorithms as A

nn = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")

RNG = np.random.default_rng(0)
DIM, CLASSES = 6, 3
DATA = losac.FederatedData.from_clients(
    [(RNG.normal(size=(n, DIM)).astype(np.float32) + i, RNG.integers(0, CLASSES, n)) for i, n in enumerate((8, 8, 6))],
    test=(RNG.normal(size=(7, DIM)).astype(np.float32), RNG.integers(0, CLASSES, 7)),
)
X, Y = (jnp.asarray(a) for a in DATA.client(0))


def cross_entropy(scores: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()


def assert_same(found: Any, wanted: Any) -> None:
    """The same numbers, whatever the trees are made of."""
    mine, other = (sorted(np.asarray(a).ravel().tolist() for a in jax.tree.leaves(t)) for t in (found, wanted))
    assert len(mine) == len(other) > 0
    for a, b in zip(mine, other):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def run(model: Any, **options: Any) -> losac.History:
    task = losac.classification(model, DATA)
    return losac.simulate(task, A.scaffold(0.01, 3, 2), rounds=3, clients_per_round=2, eval_every=3, **options)


class Linen(nn.Module):
    norm: bool = False
    dropout: bool = False

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(5)(x)
        if self.norm:
            x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(x)
        if self.dropout:
            x = nn.Dropout(0.5, deterministic=not train)(x)
        return nn.Dense(CLASSES)(nn.relu(x))


class Nnx(nnx.Module):
    def __init__(self, norm: bool = False, dropout: bool = False) -> None:
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(DIM, 5, rngs=rngs), nnx.Linear(5, CLASSES, rngs=rngs)
        self.norm = nnx.BatchNorm(5, momentum=0.8, rngs=rngs) if norm else None
        self.dropout = nnx.Dropout(0.5, rngs=rngs) if dropout else None

    def __call__(self, x: Any) -> Any:
        x = self.first(x)
        x = x if self.norm is None else self.norm(x)
        x = x if self.dropout is None else self.dropout(x)
        return self.last(jax.nn.relu(x))


def test_a_linen_module_with_dropout_and_batch_statistics_has_linens_own_gradients():
    module = Linen(norm=True, dropout=True)
    model = losac.models.from_flax(module, X)
    task = losac.classification(model, DATA)
    params, key = model.init(jax.random.key(1)), jax.random.key(2)

    def own(params: Any) -> Any:
        rngs = {"dropout": key}
        scores, after = module.apply(
            {"params": params, **model.state}, X, train=True, rngs=rngs, mutable=["batch_stats"]
        )
        return cross_entropy(scores, Y), after

    found, state = jax.grad(lambda p: task.loss(p, (X, Y), model.state, key), has_aux=True)(params)
    wanted, after = jax.grad(own, has_aux=True)(params)
    assert_same(found, wanted)
    assert_same(state, after)


def test_an_nnx_module_with_batch_statistics_has_nnxs_own_gradients():
    module = Nnx(norm=True)
    model = losac.models.from_nnx(module)
    task = losac.classification(model, DATA)
    params = model.init(jax.random.key(1))
    assert "first.kernel" in params
    found, state = jax.grad(lambda p: task.loss(p, (X, Y), model.state, jax.random.key(2)), has_aux=True)(params)
    before = [np.asarray(a) for a in jax.tree.leaves(nnx.state(module))]
    own = nnx.clone(module)
    own.train()
    assert_same(found, nnx.grad(lambda m: cross_entropy(m(X), Y))(own))
    assert_same(state, nnx.state(own, nnx.BatchStat))
    run(model)
    assert all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(nnx.state(module))))


def test_an_equinox_module_has_equinoxs_own_gradients():
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.MLP(DIM, CLASSES, 5, 2, key=jax.random.key(0))
    model = losac.models.from_equinox(module)
    params = model.init(jax.random.key(1))
    assert "layers.0.weight" in params
    task = losac.classification(model, DATA)
    found = jax.grad(task.loss)(params, (X, Y))
    assert_same(found, eqx.filter_grad(lambda m: cross_entropy(jax.vmap(m)(X), Y))(module))


def test_an_equinox_module_drops_out_in_training_only():
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(jax.random.key(0))
    module = eqx.nn.Sequential(
        [eqx.nn.Linear(DIM, 8, key=keys[0]), eqx.nn.Dropout(0.5), eqx.nn.Linear(8, CLASSES, key=keys[1])]
    )
    model = losac.models.from_equinox(module)
    task, params, key = losac.classification(model, DATA), model.init(keys[0]), jax.random.key(5)

    def own(module: Any) -> Any:
        return cross_entropy(jax.vmap(lambda x, k: module(x, key=k))(X, jax.random.split(key, len(X))), Y)

    assert_same(jax.grad(task.loss)(params, (X, Y), key), eqx.filter_grad(own)(module))
    quiet = jax.vmap(eqx.nn.inference_mode(module))(X)
    np.testing.assert_allclose(model(params, X), quiet, rtol=1e-6)
    assert run(model).rounds[-1] == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: losac.models.from_flax(Linen(norm=True, dropout=True), X[:2]),
        lambda: losac.models.from_nnx(Nnx(norm=True, dropout=True)),
    ],
    ids=["linen", "nnx"],
)
def test_a_run_averages_the_statistics_and_evaluates_with_them(make: Any):
    model = make()
    history, again = run(model), run(model)
    assert_same(history.params, again.params)
    first, last = (
        np.concatenate([np.ravel(a) for a in jax.tree.leaves(s)]) for s in (model.state, history.model_state)
    )
    assert np.abs(first - last).max() > 0.1
    x, y = (jnp.asarray(a) for a in DATA.test)
    scores = model(history.params, x, history.model_state)
    assert history.final("test_loss") == pytest.approx(float(cross_entropy(scores, y)), rel=1e-5)
    assert history.final("accuracy") == pytest.approx(float((scores.argmax(-1) == y).mean()), rel=1e-6)


@pytest.mark.parametrize(
    "make",
    [lambda: losac.models.from_flax(Linen(dropout=True), X[:2]), lambda: losac.models.from_nnx(Nnx(dropout=True))],
    ids=["linen", "nnx"],
)
def test_dropout_is_drawn_anew_in_training_and_absent_in_evaluation(make: Any):
    model = make()
    task, params = losac.classification(model, DATA), model.init(jax.random.key(0))
    first, second = (task.loss(params, (X, Y), jax.random.key(seed)) for seed in (0, 1))
    assert abs(first - second) > 1e-4
    quiet = [task.loss(params, (X, Y), jax.random.key(seed), training=False) for seed in (0, 1)]
    assert quiet[0] == quiet[1] == pytest.approx(float(cross_entropy(model(params, X), Y)), rel=1e-5)
    history = run(model)
    x, y = (jnp.asarray(a) for a in DATA.test)
    assert history.final("test_loss") == pytest.approx(float(cross_entropy(model(history.params, x), y)), rel=1e-5)


def test_modules_without_modes_are_plain_models():
    eqx = pytest.importorskip("equinox")
    models = [
        losac.models.from_flax(Linen(), X[:2]),
        losac.models.from_nnx(Nnx()),
        losac.models.from_equinox(eqx.nn.Linear(DIM, CLASSES, key=jax.random.key(0))),
    ]
    for model in models:
        assert isinstance(model, losac.models.Function)
        assert not losac.classification(model, DATA).takes("key")


def test_regression_takes_such_models_too():
    data = losac.data.quadratic(clients=3, samples=8, dim=DIM)

    class Line(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool) -> Any:
            return nn.Dense(1)(nn.BatchNorm(use_running_average=not train)(x))[:, 0]

    task = losac.regression(losac.models.from_flax(Line(), data.x[:2]), data)
    history = losac.simulate(task, A.fedavg(0.01, 2), rounds=5, eval_every=5)
    assert history.metric("loss")[-1] < history.metric("loss")[0]


def test_other_names_of_the_mode_are_given():
    class Odd(nn.Module):
        @nn.compact
        def __call__(self, x: Any, learn: int = 0) -> Any:
            return nn.Dense(CLASSES)(nn.BatchNorm(use_running_average=not learn)(x))

    with pytest.raises(ValueError, match="argument that says whether it trains"):
        losac.models.from_flax(Odd(), X)
    model = losac.models.from_flax(Odd(), X, train={"learn": 1}, evaluate={"learn": 0})
    assert set(model.state) == {"batch_stats"}


def test_wrong_use_says_what_to_do():
    eqx = pytest.importorskip("equinox")
    with pytest.raises(TypeError, match=r"nnx modules: losac.models.from_nnx"):
        losac.models.from_flax(Nnx(), X)
    with pytest.raises(TypeError, match=r"linen modules: losac.models.from_flax"):
        losac.models.from_nnx(Linen())
    with pytest.raises(TypeError, match=r"must be an equinox.Module, not Linen"):
        losac.models.from_equinox(Linen())
    with pytest.raises(ValueError, match=r"both in training and in evaluation"):
        losac.models.from_flax(Linen(), X, train={"train": True})
    norm, _ = eqx.nn.make_with_state(eqx.nn.BatchNorm)(5, axis_name="batch", mode="ema")
    with pytest.raises(ValueError, match="LayerNorm or GroupNorm"):
        losac.models.from_equinox(norm)
    with pytest.raises(ValueError, match="dtype int32 at"):
        losac.models.Trained(lambda key: 0.0, lambda p, s, x: x, lambda p, s, x, k: (x, s), {"n": jnp.zeros((), int)})


# What is frozen is neither trained nor sent


class Frozen(nnx.Variable):
    """A kind of variables of a user's own."""


class Backbone(nnx.Module):
    """A head of 12 numbers over 32 fixed ones, with a counter and random keys that are not sent either."""

    def __init__(self, dropout: bool = False) -> None:
        rngs = nnx.Rngs(0)
        self.base = Frozen(jax.random.normal(jax.random.key(0), (DIM, 32 // DIM)))
        self.calls = Frozen(jnp.zeros((), int))
        self.head = nnx.Linear(32 // DIM, CLASSES, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs) if dropout else None

    def __call__(self, x: Any) -> Any:
        self.calls[...] += 1
        x = jnp.tanh(x @ self.base[...])
        return self.head(x if self.dropout is None else self.dropout(x))


def cost(model: Any, algorithm: Any = None, **options: Any) -> tuple[losac.History, float, float]:
    """The history, and the bytes that a client sends and receives in a round."""
    run = {"rounds": 2, "clients_per_round": 2, "eval_every": 2} | options
    history = losac.simulate(losac.classification(model, DATA), algorithm or A.fedavg(0.1, 2), **run)
    return history, *(float(total[-1]) / 4 for total in (history.bytes_up, history.bytes_down))


@pytest.mark.parametrize("dropout", [False, True])
def test_frozen_variables_of_nnx_are_neither_trained_nor_sent(dropout: bool):
    module = Backbone(dropout)
    model = losac.models.from_nnx(module)
    head = model.init(jax.random.key(0))
    assert set(head) == {"head.kernel", "head.bias"}
    size = sum(4 * a.size for a in head.values())
    history, up, down = cost(model)
    assert (up, down) == (size, size)
    assert history.model_state in ((), None)
    assert set(history.params) == set(head)
    x = jnp.asarray(DATA.test[0])
    own = jnp.tanh(x @ module.base[...]) @ history.params["head.kernel"] + history.params["head.bias"]
    np.testing.assert_allclose(model(history.params, x), own, rtol=1e-6)
    kept = losac.simulate(losac.classification(model, DATA), A.scaffold(0.1, 2), rounds=1, keep_state=True).state
    assert sum(a.nbytes for a in jax.tree.leaves(kept.store)) == 3 * size


def test_of_a_lora_layer_only_the_factors_are_trained_and_sent():
    def lora() -> Any:
        return nnx.LoRALinear(DIM, CLASSES, lora_rank=1, rngs=nnx.Rngs(0))

    module = lora()
    model = losac.models.from_nnx(module, wrt=nnx.LoRAParam)
    history, up, down = cost(model)
    assert (up, down) == (4 * (DIM + CLASSES), 4 * (DIM + CLASSES))
    assert set(history.params) == {"lora.lora_a", "lora.lora_b"}
    assert np.abs(history.params["lora.lora_b"]).max() > 0
    assert all(np.array_equal(a, b) for a, b in zip(*(jax.tree.leaves(nnx.state(m)) for m in (module, lora()))))
    x = jnp.asarray(DATA.test[0])
    factors = x @ history.params["lora.lora_a"] @ history.params["lora.lora_b"]
    np.testing.assert_allclose(model(history.params, x), x @ module.kernel[...] + module.bias[...] + factors, rtol=1e-5)
    assert len(losac.models.from_nnx(module, wrt=nnx.Param).init(jax.random.key(0))) == 4
    with pytest.raises(ValueError, match=r"trainable=nnx\.LoRAParam\) to train and send the former only"):
        losac.models.from_nnx(module)


def test_a_filter_picks_the_parameters_of_nnx():
    model = losac.models.from_nnx(Nnx(norm=True), wrt=nnx.All(nnx.Param, nnx.PathContains("last")))
    history, up, down = cost(model)
    assert set(history.params) == {"last.kernel", "last.bias"}
    assert (up, down) == (4 * (6 * CLASSES + 2 * 5),) * 2  # the weights, and the running mean and variance
    with pytest.raises(ValueError, match="selects no variable of the module"):
        losac.models.from_nnx(Nnx(), wrt=nnx.LoRAParam)


def test_numbers_that_change_in_training_are_named_as_state():
    class Mean(nnx.Variable):
        """A running mean of a user's own."""

    class Centred(nnx.Module):
        def __init__(self) -> None:
            self.mean, self.head = Mean(jnp.zeros(DIM)), nnx.Linear(DIM, CLASSES, rngs=nnx.Rngs(0))
            self.training = True

        def set_attributes(self, *given: Any, **named: Any) -> None:
            self.training = named.get("use_running_average") is False

        def __call__(self, x: Any) -> Any:
            self.mean[...] = 0.9 * self.mean[...] + 0.1 * x.mean(0)
            return self.head(x - self.mean[...])

    model = losac.models.from_nnx(Centred(), state=Mean)
    assert set(model.state) == {"mean"}
    history, up, _ = cost(model)
    assert up == 4 * (DIM * CLASSES + CLASSES + DIM)
    assert np.abs(history.model_state["mean"]).max() > 0
    with pytest.raises(ValueError, match=r"changes its variable 'mean'.*state=\(nnx\.BatchStat"):
        run(losac.models.from_nnx(Centred()))


def test_a_filter_picks_the_arrays_of_equinox():
    eqx = pytest.importorskip("equinox")
    module = eqx.nn.MLP(DIM, CLASSES, 5, 1, key=jax.random.key(0))
    spec = eqx.tree_at(lambda m: m.layers[-1], jax.tree.map(lambda _: False, module), True)
    model = losac.models.from_equinox(module, wrt=spec)
    history, up, down = cost(model)
    assert set(history.params) == {"layers.1.weight", "layers.1.bias"}
    assert (up, down) == (4 * (5 * CLASSES + CLASSES),) * 2
    hidden = jax.nn.relu(jnp.asarray(DATA.test[0]) @ module.layers[0].weight.T + module.layers[0].bias)
    own = hidden @ history.params["layers.1.weight"].T + history.params["layers.1.bias"]
    np.testing.assert_allclose(model(history.params, jnp.asarray(DATA.test[0])), own, rtol=1e-5)
    with pytest.raises(ValueError, match="selects no floating-point array"):
        losac.models.from_equinox(module, wrt=lambda leaf: False)


def test_collections_of_linen_that_do_not_change_are_not_sent():
    class Projected(nn.Module):
        @nn.compact
        def __call__(self, x: Any, train: bool = False) -> Any:
            base = self.variable("frozen", "base", jax.random.normal, jax.random.key(0), (DIM, 8))
            calls = self.variable("counters", "calls", jnp.zeros, (), int)
            if train:
                calls.value += 1
            x = nn.BatchNorm(use_running_average=not train)(x @ base.value)
            return nn.Dense(CLASSES)(x)

    model = losac.models.from_flax(Projected(), X[:2])
    assert set(model.state) == {"batch_stats"}
    _, up, down = cost(model)
    assert (up, down) == (4 * (8 * CLASSES + CLASSES + 8 + 8 + 8 + 8),) * 2


def test_parameters_of_pytorch_without_a_gradient_are_not_sent():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(DIM, 8), torch.nn.Linear(8, CLASSES))
    module[0].requires_grad_(False)
    run = {"rounds": 2, "clients_per_round": 2, "eval_every": 2}
    history = losac.torch.simulate(module, torch.nn.functional.cross_entropy, DATA, A.fedavg(0.1, 2), **run)
    assert set(history.params) == {"1.weight", "1.bias"}
    assert history.bytes_up[-1] == history.bytes_down[-1] == 4 * 4 * (8 * CLASSES + CLASSES)
