"""Problems beyond classification: several labels, sparse and low-rank estimation, ranking."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from lazy import Lazy
from losac import losses, prox

linear_model, scores = Lazy("sklearn.linear_model"), Lazy("sklearn.metrics")
A = losac.algorithms


def tagged(clients=4, rows=30, seed=0):
    """Rows with three labels, each a half-space."""
    rng = np.random.default_rng(seed)
    planes = rng.normal(size=(6, 3))
    x = rng.normal(size=(clients, rows, 6)).astype("float32")
    y = (x @ planes > 0.3).astype("int32")
    fresh = rng.normal(size=(200, 6)).astype("float32")
    test = (fresh, (fresh @ planes > 0.3).astype("int32"))
    return losac.FederatedData.from_clients(list(zip(x, y)), test=test)


def test_several_labels_are_learnt():
    task = losac.multilabel(losac.models.Dense((6, 3), "zeros"), tagged(), reduction="mean")
    run = losac.simulate(task, A.fedavg(1.0, 5), rounds=40, eval_every=40)
    assert run.final("accuracy") > 0.9
    assert run.final("f1") > 0.8


def test_the_scores_of_several_labels_are_scikit_learns():
    data = tagged()
    model = losac.models.Dense((6, 3))
    params = model.init(jax.random.key(1))
    told = np.asarray(model(params, data.x)) > 0
    batch = (data.x, data.y)
    assert losses.LabelAccuracy(model)(params, batch) == pytest.approx(
        scores.accuracy_score(data.y.ravel(), told.ravel())
    )
    assert losses.F1(model)(params, batch) == pytest.approx(
        scores.f1_score(data.y, told, average="samples", zero_division=1.0), rel=1e-6
    )
    assert losses.MicroF1(model)(params, batch) == pytest.approx(
        scores.f1_score(data.y, told, average="micro"), rel=1e-6
    )


@pytest.mark.parametrize(
    ("outputs", "y", "message"),
    [
        (3, np.full((4, 3), 2), r"zeros and ones"),
        (3, np.zeros(4, int), r"losac\.classification"),
        (2, np.zeros((4, 3), int), r"there are 3 labels"),
    ],
)
def test_wrong_labels_are_refused(outputs, y, message):
    data = losac.FederatedData.from_clients([(np.ones((4, 6)), y)])
    with pytest.raises(ValueError, match=message):
        losac.multilabel(losac.models.Dense((6, outputs)), data)


def sparse(clients=5, rows=20, dim=12, seed=0):
    """Linear data of which four features matter, every client with inputs of its own scale."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(dim)
    truth[:4] = (2, -1.5, 1, 0.8)
    pairs = []
    for i in range(clients):
        x = (1 + i / 5) * rng.normal(size=(rows, dim))
        pairs.append((x, x @ truth + 0.1 * rng.normal(size=rows)))
    return losac.FederatedData.from_clients(pairs)


@pytest.mark.parametrize("psi", [prox.l1(2.0), prox.elastic_net(2.0, 1.5)], ids=["lasso", "elastic net"])
def test_a_federation_finds_the_sparse_solution_of_the_pooled_rows(psi):
    """(1/N) Σ_i Σ_j ½(⟨a, w⟩ − b)² + Ψ is N/n times scikit-learn's objective; clients are sampled all the same."""
    data = sparse()
    task = losac.regression(losac.models.linear(12), data, regularizer=psi)
    curvature = np.linalg.eigvalsh(data.x.T @ data.x / data.num_clients)[-1]
    method = A.losac(0.2 / curvature, 2, 2, scaling="exact", correction=0.1)
    run = losac.simulate(task, method, rounds=600, clients_per_round=3, eval_every=600, dtype="float64")
    scale = data.num_clients / len(data)
    if isinstance(psi, prox.ElasticNet):
        alpha = (psi.l1 + psi.l2) * scale
        pooled = linear_model.ElasticNet(alpha, l1_ratio=psi.l1 / (psi.l1 + psi.l2), fit_intercept=False, tol=1e-12)
    else:
        pooled = linear_model.Lasso(psi.strength * scale, fit_intercept=False, tol=1e-12)
    expected = pooled.fit(data.x, data.y).coef_
    np.testing.assert_allclose(run.params, expected, atol=1e-7)
    assert set(np.flatnonzero(run.params)) == set(np.flatnonzero(expected)) >= {0, 1, 2, 3}


def test_the_elastic_nets_prox_solves_its_equation():
    """At x ≠ 0: x − v + step·(λ₁ sign x + λ₂ x) = 0; x = 0 where |v| ≤ step·λ₁."""
    v, step, psi = np.linspace(-3, 3, 61), 0.7, prox.elastic_net(0.9, 1.1)
    x = psi.prox(v, step)
    moved = x != 0
    np.testing.assert_allclose((x - v + step * (0.9 * np.sign(x) + 1.1 * x))[moved], 0, atol=1e-12)
    assert np.array_equal(~moved, np.abs(v) <= step * 0.9)


def test_a_matrix_is_completed_from_some_of_its_entries():
    """Clients hold entries of different rows; the nuclear norm fills in what nobody holds."""
    rng = np.random.default_rng(0)
    dim, rank, clients = 16, 2, 4
    truth = rng.normal(size=(dim, rank)) @ rng.normal(size=(rank, dim))
    seen = rng.random((dim, dim)) < 0.7
    pairs = []
    for i in range(clients):
        where = np.argwhere(seen & (np.arange(dim)[:, None] % clients == i))
        pairs.append((where, truth[tuple(where.T)]))
    data = losac.FederatedData.from_clients(pairs)
    model = losac.models.Function(lambda key: jnp.zeros((dim, dim)), lambda X, at: X[at[:, 0], at[:, 1]])
    task = losac.regression(model, data, regularizer=prox.nuclear(0.05))
    run = losac.simulate(task, A.dsgd(2.0), rounds=400, eval_every=400, dtype="float64")
    hidden = (run.params - truth)[~seen]
    assert np.sqrt((hidden**2).mean()) < 0.25 * np.sqrt((truth[~seen] ** 2).mean())
    assert (np.linalg.svd(run.params)[1] > 1e-6).sum() <= 4


def ordered(params, batch):
    """The logistic loss of every pair of a client's rows that stand in an order."""
    x, y = batch
    score = x @ params
    above = y[:, None] > y[None, :]
    return jnp.where(above, jax.nn.softplus(score[None, :] - score[:, None]), 0).sum() / jnp.maximum(above.sum(), 1)


def concordance(params, batch):
    """The share of the pairs in the right order."""
    x, y = batch
    score = x @ params
    above = y[:, None] > y[None, :]
    return jnp.where(above, score[:, None] > score[None, :], False).sum() / jnp.maximum(above.sum(), 1)


def test_a_ranking_is_learnt_from_orders_within_clients():
    """Every client grades on a scale of its own, so that only the order of its rows means anything."""
    rng = np.random.default_rng(0)
    taste = rng.normal(size=5)
    pairs = []
    for size in (12, 20, 15):
        x = rng.normal(size=(size, 5))
        pairs.append((x, rng.uniform(1, 9) * (x @ taste) + 20 * rng.normal()))
    data = losac.FederatedData.from_clients(pairs)
    metrics = {"concordance": concordance}
    task = losac.Task(ordered, jnp.zeros(5), data, coupled=True, metrics=metrics, reduction="mean")
    run = losac.simulate(task, A.fedavg(1.0, 5), rounds=40, eval_every=40)
    found = losac.evaluate(task, run.params)
    assert found.worst("concordance") > 0.95
    for i in range(3):
        x, y = data.client(i)
        assert found.values["concordance"][i] == pytest.approx(float(concordance(run.params, (x, y))), rel=1e-5)
