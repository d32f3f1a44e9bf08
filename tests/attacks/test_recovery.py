"""Attacks find rows, from what the server knows; what they promise, on a small network and a few rows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
import losac.algorithms as A
from losac.attacks import (
    ATTACKS,
    Data,
    Gradient,
    Plan,
    as_printed,
    audit,
    best_of,
    likeness,
    recovered_labels,
    relative_error,
    run,
    run_unrolled,
    solve,
    span_of,
    stack,
    system_of,
    watch,
)
from losac.attacks.attack import _run, best_of_starts, distance

FEATURES, CLASSES, ROWS, BOX = 12, 4, 3, (0.0, 1.0)
DATA = Data((FEATURES,), BOX, CLASSES)


def rows_like_a_class(rng, labels):
    """Rows of each class around a centre of its own, within the box."""
    centres = np.random.default_rng(99).uniform(size=(CLASSES, FEATURES))
    return np.clip(centres[labels] + 0.2 * rng.normal(size=(len(labels), FEATURES)), *BOX).astype(np.float32)


@lru_cache
def small(clients=2, hidden=24, rows=ROWS):
    """A network with one hidden layer, a few rows at each client, no label twice; and the means of other rows."""
    rng = np.random.default_rng(1)
    labels = [rng.permutation(CLASSES)[:rows].astype(np.int32) for _ in range(clients)]
    data = losac.FederatedData.from_clients([(rows_like_a_class(rng, y), y) for y in labels], num_classes=CLASSES)
    sizes = (FEATURES, hidden, CLASSES) if hidden else (FEATURES, CLASSES)
    task = losac.classification(losac.models.Dense(sizes, "glorot"), data, test=None)
    public = np.repeat(np.arange(CLASSES), 50)
    x = rows_like_a_class(rng, public)
    return task, np.stack([x[public == c].mean(0) for c in range(CLASSES)])


def known(task, client=0, algorithm=None, rounds=2):
    (seen,) = watch(task, algorithm or A.dsgd(0.01), (client,), rounds=rounds)
    return seen, best_of(solve(system_of(seen)), 2)


def psnr(found, task, client=0):
    return likeness(found.samples[0], task.data.client(client)[0]).psnr.mean()


@pytest.mark.parametrize("name", ["idlg", "dlg", "dlg-adam", "inverting", "rowspace"])
def test_attacks_lower_the_mismatch_and_beat_the_mean_of_the_class(name):
    """With exact gradients, and labels recovered from them, the rows that are found explain what was seen.

    Those that look for the labels too end in local minima of a ReLU network more often: they need not beat the mean.
    """
    task, means = small()
    x, y = task.data.client(0)
    _, gradients = known(task)
    guessed = recovered_labels(gradients, ROWS)
    assert sorted(guessed) == sorted(y)
    evidence = stack(gradients, len(gradients), ROWS)
    found = run(
        ATTACKS[name], task.loss, [evidence], guessed[None], DATA, spans=[span_of(gradients, FEATURES, ROWS)], seed=3
    )
    anything = jax.random.uniform(jax.random.key(0), (ROWS, FEATURES))
    assert found.mismatch[0] < 0.3 * distance(ATTACKS[name], task.loss, evidence, anything, jnp.asarray(guessed))
    assert sorted(found.labels[0]) == sorted(y)
    if ATTACKS[name].labels == "given":
        assert psnr(found, task) > likeness(means[y], x).psnr.mean() + 3


def test_the_start_with_the_smallest_mismatch_is_chosen():
    samples, mismatch = np.arange(6.0).reshape(2, 3, 1), np.array([[3.0, 1.0, 2.0], [np.nan, 5.0, np.inf]])
    best = best_of_starts(samples, samples[..., 0], mismatch)
    assert (best.samples.tolist(), best.mismatch.tolist()) == ([[1.0], [4.0]], [1.0, 5.0])


def test_clients_that_are_attacked_together_are_attacked_as_alone():
    """The starts of client i of n follow from the seed, i and n alone: the same keys give the same rows.

    A short search, as rounding grows along a long one.
    """
    task, _ = small()
    chosen = replace(ATTACKS["dlg-adam"], labels="given", steps=30)
    every = [known(task, client)[1] for client in range(2)]
    labels = np.stack([recovered_labels(one, ROWS) for one in every])
    evidence = [stack(one, 2, ROWS) for one in every]
    together = run(chosen, task.loss, evidence, labels, DATA, restarts=2)
    keys = jax.random.split(jax.random.key(0), (2, 2))
    empty = np.zeros((1, 0, FEATURES), np.float32)
    for i in range(2):
        alone = jax.tree.map(lambda a: a[None], evidence[i])
        found = _run(chosen, task.loss, DATA, alone, labels[i : i + 1], empty, keys[i : i + 1])
        best = best_of_starts(*found)
        np.testing.assert_allclose(together.samples[i], best.samples[0], atol=1e-5)
        np.testing.assert_allclose(together.mismatch[i], best.mismatch[0], rtol=1e-3, atol=1e-6)


def test_evidence_that_only_fills_up_changes_nothing():
    task, _ = small()
    _, gradients = known(task)
    labels, attack = recovered_labels(gradients, ROWS)[None], replace(ATTACKS["dlg-adam"], labels="given", steps=30)
    found = [
        run(attack, task.loss, [stack(gradients, count, width)], labels, DATA).samples
        for count, width in ((len(gradients), ROWS), (len(gradients) + 2, ROWS + 1))
    ]
    np.testing.assert_allclose(*found, atol=1e-5)


@pytest.mark.parametrize("name", ["inverting", "rowspace"])
def test_rows_without_a_known_range_are_recovered_too(name):
    task, means = small()
    x, y = task.data.client(0)
    _, gradients = known(task)
    found = run(
        ATTACKS[name], task.loss, [stack(gradients, len(gradients), ROWS)], recovered_labels(gradients, ROWS)[None],
        Data((FEATURES,)), spans=[span_of(gradients, FEATURES, ROWS)], restarts=4,
    )  # fmt: skip
    assert psnr(found, task) > likeness(means[y], x).psnr.mean()


def test_a_model_without_a_first_dense_layer_tells_no_span():
    data = losac.data.load("digits", clients=200)
    task = losac.classification(losac.models.cnn((8, 8, 1), 10), data, test=None)
    _, gradients = known(task, rounds=1)
    assert span_of(gradients, 64, 3) is None
    rows = int(data.sizes[0])
    with pytest.raises(ValueError, match="use 'inverting' for this model"):
        run(ATTACKS["rowspace"], task.loss, [stack(gradients, 1, rows)], np.zeros((1, rows), int),
            Data((64,), BOX, 10), spans=[None])  # fmt: skip


def test_soft_labels_need_the_number_of_classes():
    task, _ = small()
    _, gradients = known(task)
    with pytest.raises(ValueError, match="classes"):
        run(ATTACKS["dlg"], task.loss, [stack(gradients, 2, ROWS)], np.zeros((1, ROWS), int), Data((FEATURES,), BOX))


def test_differentiating_through_local_steps_beats_the_printed_attacker():
    """With T = 4 long steps their mean is no gradient at the model that was sent; a replay needs none to be known."""
    task, _ = small()
    (seen,) = watch(task, A.fedavg(0.3, 4), rounds=1)
    y = np.sort(task.data.client(0)[1])
    chosen = replace(ATTACKS["rowspace"], spanned=False, steps=400)
    printed = as_printed(seen)
    by_step = run(chosen, task.loss, [stack([printed], 1, ROWS)], y[None], DATA)
    through = run_unrolled(chosen, task.loss, seen, y, DATA)
    assert psnr(through, task) > psnr(by_step, task) + 3


def test_what_the_paper_takes_for_a_gradient_is_one_where_it_is_sent_or_after_one_step():
    task, _ = small()
    x, y = task.data.client(0)
    for algorithm in (A.dsgd(0.01), A.fedavg(0.01, 1), A.mime_svrg(0.01, 3)):
        (seen,) = watch(task, algorithm, rounds=2)
        printed = as_printed(seen)
        true = jax.grad(lambda p: ROWS * task.loss(p, (x, y)))(printed.model)
        for found, exact in zip(jax.tree.leaves(printed.value), jax.tree.leaves(true), strict=True):
            np.testing.assert_allclose(found, exact, atol=2e-4)


def test_the_smallest_sets_of_rows_tell_the_labels():
    def of(rows, labels):
        bias = len(labels) / 3 - np.bincount(labels, minlength=3)
        return Gradient(rows, None, [{"w": np.zeros((2, 3)), "b": bias}])

    found = recovered_labels([of((0, 1, 2), [1, 1, 2]), of((2,), [2]), of((0,), [1]), of((1,), [1])], 4)
    assert found.tolist() == [1, 1, 2, 0]


def test_an_audit_finds_what_leaks_and_puts_it_beside_the_class_mean():
    task, means = small()
    plan = Plan(("rowspace",), ("inverting",), rounds=3, steps=150)
    found = audit(task, A.losac(0.02, 5), DATA, plan, clients=(0, 1), class_means=means)
    assert (found.gradients, found.exact) == (15, 3)
    assert found.exact_error < 1e-4
    assert found.error < found.printed_error
    assert found.labels == 1
    assert found.angle < 1
    assert (
        list(found.psnr) == list(found.pictures)[1:] == ["class mean", "analytic", "inverting, as printed", "rowspace"]
    )
    assert found.psnr["rowspace"] > found.psnr["class mean"]
    assert {rows.shape for rows in found.pictures.values()} == {(ROWS, FEATURES)}


def test_noise_on_the_uploads_ends_what_adding_them_up_gives():
    """The same federation twice: as it is LoSAC's rows are recovered, with noise not even their gradient is."""
    task, means = small()
    plain = A.losac(0.01, 1, 1)
    norms = losac.privacy.typical_norms(task, plain, rounds=1)[0]
    noisy = plain.replace(uploads=(A.gaussian((norms["x"], norms["phi"]), 1.0),))
    open_, defended = (
        audit(task, method, DATA, Plan(printed=(), rounds=4), clients=(0, 1), class_means=means)
        for method in (plain, noisy)
    )
    assert open_.exact_error < 1e-5
    assert max(open_.psnr[name] for name in ("analytic", "inverting", "rowspace")) > 20 > open_.psnr["class mean"]
    assert defended.error > 0.5
    assert max(defended.psnr[name] for name in ("analytic", "inverting", "rowspace")) < defended.psnr["class mean"]


@pytest.mark.parametrize("options", [{"reduction": "mean"}, {"weights": (1.0, 3.0)}, {}], ids=str)
@pytest.mark.parametrize("name", ["fedavg", "mime_lite"])
def test_the_printed_gradient_is_that_of_the_rows_whatever_the_weights(name, options):
    task, _ = small()
    task = replace(task, **options)
    (seen,) = watch(task, getattr(A, name)(0.01, 1), (1,), rounds=2)
    found = as_printed(seen)
    x, y = task.data.client(1)
    true = jax.grad(lambda p: ROWS * task.loss(p, (x, y)))(found.model)
    assert relative_error(found.value, true) < 1e-4


def test_the_printed_gradient_is_over_the_steps_that_were_taken():
    """One epoch of single rows is ROWS steps, though the settings do not say their number."""
    task, _ = small()
    (seen,) = watch(task, A.fedavg(0.01, batch_size=1), rounds=1)
    moved = jax.tree.map(lambda d: -d / (0.01 * ROWS), seen.exchanges[0].upload)
    assert relative_error(as_printed(seen).value, moved) < 1e-5


def test_clients_of_unequal_sizes_are_not_attacked_together():
    rng = np.random.default_rng(0)
    rows = [(rng.random((n, FEATURES), np.float32), np.zeros(n, np.int32)) for n in (2, 3)]
    data = losac.FederatedData.from_clients(rows, num_classes=CLASSES)
    task = losac.classification(losac.models.softmax_regression(FEATURES, CLASSES), data, test=None)
    with pytest.raises(ValueError, match="different numbers of rows"):
        audit(task, A.dsgd(0.01), DATA, clients=(0, 1))
