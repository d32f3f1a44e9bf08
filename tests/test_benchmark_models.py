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
    params = model.init(KEY)
    loss = losac.losses.CrossEntropy(model)
    y = jnp.array([0, 1, 2, 1])
    whole = model(params, x)
    assert whole.shape == (4, 3)
    np.testing.assert_allclose(whole[2:3], model(params, x[2:3]), rtol=2e-4, atol=1e-5)
    # the last normalisation of a residual block starts at zero, so what is before it gets its gradient a step later
    moved = jax.tree.map(lambda a: a + 0.1, params)
    gradients = jax.tree_util.tree_leaves_with_path(jax.grad(loss)(moved, (x, y)))
    still = [jax.tree_util.keystr(path) for path, g in gradients if not np.abs(np.asarray(g)).max() > 0]
    unused = ("key", "positions") if isinstance(model, models.Transformer) else ()
    assert not [path for path in still if not any(word in path for word in unused)]
    assert model == type(model)(**{f: getattr(model, f) for f in model.__dataclass_fields__})


def test_padding_is_not_seen():
    """Behind a sequence, for its class; in front of one, for the token that follows."""
    plain, x = SMALL["transformer"]
    params = jax.tree.map(lambda a: a + 0.05, plain.init(KEY))
    padded = np.concatenate([x[:, :3], np.zeros((4, 2), int)], 1)
    np.testing.assert_allclose(plain(params, padded), plain(params, padded[:, :3]), rtol=1e-4, atol=1e-5)
    causal = SMALL["causal"][0]
    front = np.concatenate([np.zeros((4, 1), int), x[:, 1:]], 1)
    changed = params | {"tokens": params["tokens"].at[0].add(5.0)}
    np.testing.assert_allclose(causal(params, front), causal(changed, front), rtol=1e-4, atol=1e-5)


def test_batch_norm_trains_by_the_batch_and_predicts_by_running_statistics():
    net = models.ResNet(SHAPE, 3, (1,), (8,), norm="batch", momentum=0.5)
    model = net.trained()
    params = model.init(KEY)
    outputs, after = model.train(params, model.state, PICTURES, KEY)
    np.testing.assert_allclose(outputs, net(params, PICTURES), rtol=1e-5)
    assert len(after) == 3  # after the first convolution, and twice in the block
    state = model.state
    for _ in range(40):
        _, state = model.train(params, state, PICTURES, KEY)
    np.testing.assert_allclose(model(params, PICTURES, state), outputs, rtol=1e-3, atol=1e-4)
    alone = model(params, PICTURES[:1], state)
    np.testing.assert_allclose(alone, model(params, PICTURES, state)[:1], rtol=1e-4, atol=1e-5)


def test_pictures_change_in_training_only():
    net = SMALL["convolutions"][0]
    model = models.augmented(net, SHAPE, crop=2)
    params = model.init(KEY)
    np.testing.assert_array_equal(model(params, PICTURES), net(params, PICTURES))
    seen = []
    spy = models.Function(net.init, lambda params, x: (seen.append(np.asarray(x)), net(params, x))[1])
    models.augmented(spy, SHAPE, crop=2).train(params, None, jnp.asarray(PICTURES), KEY)
    (changed,) = seen
    assert changed.shape == PICTURES.shape
    for before, after in zip(PICTURES, changed):
        padded = np.pad(before, ((2, 2), (2, 2), (0, 0)))
        shifts = [padded[i : i + 8, j : j + 8] for i in range(5) for j in range(5)]
        mirrored = np.pad(before[:, ::-1], ((2, 2), (2, 2), (0, 0)))
        shifts += [mirrored[i : i + 8, j : j + 8] for i in range(5) for j in range(5)]
        assert any(np.array_equal(after, shift) for shift in shifts)
    assert not np.array_equal(changed, PICTURES)


def test_half_the_precision_inside_only():
    net = SMALL["convolutions"][0]
    params = net.init(KEY)
    half = models.mixed(net)
    inside = []
    spy = models.Function(net.init, lambda params, x: (inside.append(x.dtype), net(params, x))[1])
    models.mixed(spy)(params, jnp.asarray(PICTURES))
    assert inside == [jnp.bfloat16]
    assert half(params, PICTURES).dtype == jnp.float32
    gradient = jax.grad(losac.losses.CrossEntropy(half))(params, (PICTURES, jnp.array([0, 1, 2, 1])))
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    np.testing.assert_allclose(half(params, PICTURES), net(params, PICTURES), rtol=0.1, atol=0.05)


def test_the_command_line_builds_them_by_name():
    pictures = losac.FederatedData.from_clients([(PICTURES, [0, 1, 2, 1])], num_classes=3)
    for name in ("lenet", "fedavg_cnn", "resnet8", "resnet20_batch"):
        shape = (16, 16, 3)
        larger = np.zeros((4, *shape), np.float32)
        data = losac.FederatedData.from_clients([(larger, [0, 1, 2, 1])], num_classes=3)
        task = Experiment(data="x.npz", model=name, augment="flip,crop:2", precision="bfloat16").build_task(data)
        assert task.takes("key")
    sequences = losac.FederatedData.from_clients([(TOKENS, [0, 1, 2, 1])], num_classes=3)
    for name in ("gru", "lstm", "transformer", "causal_transformer"):
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
