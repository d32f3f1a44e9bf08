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
