"""The models of the field's benchmarks: shapes, gradients, causality, states, and runs of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac import models
from losac.experiment.options import Experiment

SHAPE = (8, 8, 3)
KEY = jax.random.key(0)
PICTURES = np.random.default_rng(0).random((4, *SHAPE)).astype(np.float32)
TOKENS = np.random.default_rng(1).integers(1, 7, (4, 5))
SMALL = {
    "convolutions": (models.ConvNet(SHAPE, 3, (4,), (5,), 3), PICTURES),
    "group norm": (models.ResNet(SHAPE, 3, (1, 1), (8, 16)), PICTURES),
    "gru": (models.Recurrent(7, 3, "gru", hidden=6), TOKENS),
    "lstm": (models.Recurrent(7, 3, "lstm", hidden=6, layers=2), TOKENS),
    "transformer": (models.Transformer(7, 3, 5, 8, 2, 1), TOKENS),
    "causal": (models.Transformer(7, 3, 5, 8, 2, 1, causal=True), TOKENS),
}


@pytest.mark.parametrize("name", SMALL)
def test_rows_do_not_see_each_other_and_every_weight_counts(name):
    model, x = SMALL[name]
    loss = losac.losses.CrossEntropy(model)
    y = jnp.array([0, 1, 2, 1])

    @jax.jit
    def told(x, other):
        params = model.init(KEY)
        # the last normalisation of a residual block starts at zero, so what is before it gets its gradient a step later
        moved = jax.tree.map(lambda a: a + 0.1, params)
        return model(params, x), model(params, other), jax.grad(loss)(moved, (x, y))

    whole, beside_copies, gradients = told(x, np.repeat(x[2:3], 4, 0))
    assert whole.shape == (4, 3)
    np.testing.assert_allclose(whole[2], beside_copies[2], rtol=2e-4, atol=1e-5)
    leaves = jax.tree_util.tree_leaves_with_path(gradients)
    still = [jax.tree_util.keystr(path) for path, g in leaves if not np.abs(np.asarray(g)).max() > 0]
    unused = ("key", "positions") if isinstance(model, models.Transformer) else ()
    assert not [path for path in still if not any(word in path for word in unused)]
    assert model == type(model)(**{f: getattr(model, f) for f in model.__dataclass_fields__})


def test_padding_is_not_seen():
    """Behind a sequence, for its class; in front of one, for the token that follows."""
    for name, at in (("transformer", slice(3, None)), ("causal", slice(1))):
        model, x = SMALL[name]
        padded = x.copy()
        padded[:, at] = 0

        @jax.jit
        def told(padded, shift, model=model):
            params = jax.tree.map(lambda a: a + 0.05, model.init(KEY))
            return model(params | {"tokens": params["tokens"].at[0].add(shift)}, padded)

        np.testing.assert_allclose(told(padded, 0.0), told(padded, 5.0), rtol=1e-4, atol=1e-5)


def test_batch_norm_trains_by_the_batch_and_predicts_by_running_statistics():
    net = models.ResNet(SHAPE, 3, (1,), (8,), norm="batch", momentum=0.5)
    model = net.trained()
    params = jax.jit(model.init)(KEY)
    train, predict = jax.jit(model.train), jax.jit(model.predict)
    outputs, after = train(params, model.state, PICTURES, KEY)
    assert len(after) == 3  # after the first convolution, and twice in the block
    state = model.state
    for _ in range(40):
        _, state = train(params, state, PICTURES, KEY)
    np.testing.assert_allclose(predict(params, state, PICTURES), outputs, rtol=1e-3, atol=1e-4)
    alone = predict(params, state, np.repeat(PICTURES[:1], 4, 0))
    np.testing.assert_allclose(alone[0], predict(params, state, PICTURES)[0], rtol=1e-4, atol=1e-5)


def test_pictures_change_in_training_only():
    seen = models.Function(lambda key: jnp.zeros(()), lambda params, x: x)  # returns what it is given
    model = models.augmented(seen, SHAPE, crop=2)
    np.testing.assert_array_equal(model(jnp.zeros(()), PICTURES), PICTURES)
    changed = np.asarray(jax.jit(model.train)(jnp.zeros(()), None, PICTURES, KEY)[0])
    assert changed.shape == PICTURES.shape
    for before, after in zip(PICTURES, changed):
        padded = [np.pad(picture, ((2, 2), (2, 2), (0, 0))) for picture in (before, before[:, ::-1])]
        shifts = [each[i : i + 8, j : j + 8] for each in padded for i in range(5) for j in range(5)]
        assert any(np.array_equal(after, shift) for shift in shifts)
    assert not np.array_equal(changed, PICTURES)


def test_half_the_precision_inside_only():
    inside = []
    net = SMALL["convolutions"][0]
    spy = models.Function(net.init, lambda params, x: (inside.append(x.dtype), net(params, x))[1])
    half = models.mixed(spy)

    @jax.jit
    def told(x):
        params = net.init(KEY)
        loss = losac.losses.CrossEntropy(half)
        return half(params, x), net(params, x), jax.grad(loss)(params, (x, jnp.array([0, 1, 2, 1])))

    mine, whole, gradient = told(PICTURES)
    assert set(inside) == {jnp.dtype("bfloat16")}
    assert mine.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(mine, whole, rtol=0.1, atol=0.05)


def test_the_command_line_builds_them_by_name():
    pictures = losac.FederatedData.from_clients([(PICTURES, [0, 1, 2, 1])], num_classes=3)
    for name in ("lenet", "resnet8", "resnet8_batch"):
        shape = (16, 16, 3)
        larger = np.zeros((4, *shape), np.float32)
        data = losac.FederatedData.from_clients([(larger, [0, 1, 2, 1])], num_classes=3)
        task = Experiment(data="x.npz", model=name, augment="flip,crop:2", precision="bfloat16").build_task(data)
        assert task.takes("key")
    sequences = losac.FederatedData.from_clients([(TOKENS, [0, 1, 2, 1])], num_classes=3)
    for name in ("lstm", "causal_transformer"):
        assert Experiment(data="x.npz", model=name).build_task(sequences).metrics
    with pytest.raises(ValueError, match="needs rows of whole numbers"):
        Experiment(data="x.npz", model="gru").build_task(pictures)
    for text in ("flip:2", "crop", "crop:a", "turn"):
        with pytest.raises(ValueError, match="flip, crop:PIXELS"):
            Experiment(data="x.npz", model="resnet8", augment=text).build_task(pictures)


def test_a_run_with_everything():
    """Batch statistics, changed pictures and half the precision, in one compiled program; a seed has one trajectory."""
    net = models.ResNet((4, 4, 3), 2, (1,), (8,), norm="batch").trained()
    rng = np.random.default_rng(2)
    parts = [(rng.random((4, 4, 4, 3)).astype("float32"), rng.integers(0, 2, 4)) for _ in range(2)]
    data = losac.FederatedData.from_clients(parts, num_classes=2)
    task = losac.classification(models.mixed(models.augmented(net, (4, 4, 3), crop=1)), data)
    algorithm = losac.algorithms.fedavg(0.1, local_steps=2, blocks=2)
    runs = [losac.simulate(task, algorithm, rounds=2, eval_every=2) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].metric("loss"), runs[1].metric("loss"))
    assert np.isfinite(runs[0].final("loss"))
    assert jax.tree.leaves(runs[0].model_state)[0].dtype == np.float32
