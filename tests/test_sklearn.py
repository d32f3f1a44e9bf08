"""The estimators are scikit-learn's in all that it checks, and as good as its linear models."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

import losac
from lazy import Lazy

sklearn, federated = Lazy("sklearn"), Lazy("losac.sklearn")
datasets, linear_model = Lazy("sklearn.datasets"), Lazy("sklearn.linear_model")
selection, pipelines = Lazy("sklearn.model_selection"), Lazy("sklearn.pipeline")
preprocessing, checks = Lazy("sklearn.preprocessing"), Lazy("sklearn.utils.estimator_checks")
QUICK = {"rounds": 30, "n_clients": 2}


@functools.cache
def iris():
    return datasets.load_iris(return_X_y=True)


@functools.cache
def diabetes():
    return datasets.load_diabetes(return_X_y=True)


@pytest.mark.parametrize("kind", ["FederatedClassifier", "FederatedRegressor"])
def test_scikit_learn_accepts_it(kind, monkeypatch):
    """All of its checks, without exceptions; with fewer clients and rounds than the defaults, to be quick."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # read by the one check that is skipped without it
    checks.check_estimator(getattr(federated, kind)(**QUICK))  # a check that is skipped warns, and warnings are errors


@pytest.mark.parametrize(
    ("data", "ours", "theirs"),
    [
        ("iris", "FederatedClassifier", "LogisticRegression"),
        ("breast_cancer", "FederatedClassifier", "LogisticRegression"),
        ("diabetes", "FederatedRegressor", "Ridge"),
    ],
)
@pytest.mark.parametrize("setting", [{}, {"partition": "sorted", "clients_per_round": 3}], ids=["iid", "sorted"])
def test_the_defaults_are_close_to_the_pooled_linear_model(data, ours, theirs, setting):
    """Within three points on rows not trained on, be the clients alike or sorted by label and sampled."""
    rows = getattr(datasets, f"load_{data}")(return_X_y=True)
    train_x, test_x, train_y, test_y = selection.train_test_split(*rows, random_state=0)
    model = pipelines.make_pipeline(preprocessing.StandardScaler(), getattr(linear_model, theirs)())
    pooled = model.fit(train_x, train_y).score(test_x, test_y)
    assert (
        getattr(federated, ours)(random_state=0, **setting).fit(train_x, train_y).score(test_x, test_y) > pooled - 0.03
    )


def test_it_minimises_the_pooled_objective():
    """Ridge's weights, though the clients differ in size and in their rows, three of eight of them in each round."""
    X, y = diabetes()
    rows = preprocessing.StandardScaler().fit_transform(X)
    spread = y.std()
    groups = np.searchsorted([40, 60, 100, 150, 155, 300, 400], np.argsort(np.argsort(y)), side="right")
    ours = federated.FederatedRegressor(l2=0.1, rounds=400, clients_per_round=3, random_state=0).fit(
        rows, y, groups=groups
    )
    ridge = linear_model.Ridge(alpha=0.1 * len(y)).fit(rows, y)
    np.testing.assert_allclose(ours.coefs_[0][:, 0], ridge.coef_, atol=2e-3 * spread)
    np.testing.assert_allclose(ours.intercepts_[0], ridge.intercept_, rtol=1e-4)
    assert ours.clients_.tolist() == list(range(8))


def test_an_l1_penalty_leaves_weights_at_zero():
    fitted = federated.FederatedRegressor(l1=0.1, random_state=0).fit(*diabetes())
    assert 2 <= np.count_nonzero(fitted.coefs_[0]) <= 7
    with pytest.raises(ValueError, match="fedavg has no proximal step"):
        federated.FederatedRegressor("fedavg", l1=0.1).fit(*diabetes())


@pytest.mark.parametrize("drawn", [(1, 1, None), (10, 1, None), (5, 4, 3)], ids=str)
def test_the_automatic_step_does_not_overshoot(drawn):
    """Least squares at any T, M and S: LoSAC's 12/(TL) is too long for some, and is then shortened."""
    local_steps, blocks, sampled = drawn
    method = federated.FederatedRegressor(
        local_steps=local_steps, blocks=blocks, clients_per_round=sampled, random_state=0
    )
    assert method.fit(*diabetes()).score(*diabetes()) > 0.5
    assert method.history_.settings["step_size"] == pytest.approx(method.step_size_)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddyn"])
def test_other_algorithms_by_name(name):
    assert federated.FederatedClassifier(name, random_state=0).fit(*iris()).score(*iris()) > 0.9


def test_an_algorithm_object_is_used_as_it_is():
    own = losac.algorithms.fedprox(0.05, 3, 2, mu=0.01)
    fitted = sklearn.clone(federated.FederatedClassifier(own, rounds=7, random_state=0)).fit(*iris())
    assert fitted.history_.algorithm == "fedprox"
    assert fitted.history_.settings["step_size"] == fitted.step_size_ == 0.05
    assert fitted.history_.settings["local_steps"] == 3
    assert fitted.n_iter_ == 7


def test_a_network_learns_what_no_line_can():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    network = federated.FederatedClassifier(hidden_layer_sizes=(16,), n_clients=4, random_state=0).fit(X, y)
    assert network.score(X, y) > 0.9
    assert [w.shape for w in network.coefs_] == [(2, 16), (16, 1)]


def test_groups_are_the_clients():
    """Inside a pipeline and a grid search as well, where the folds split by them."""
    X, y = iris()
    groups = np.array([f"site {i % 6}" for i in range(len(y))])
    alone = federated.FederatedClassifier(**QUICK).fit(X, y, groups=groups)
    assert alone.clients_.tolist() == [f"site {i}" for i in range(6)]
    pipeline = pipelines.make_pipeline(
        preprocessing.StandardScaler(), federated.FederatedClassifier(standardize=False, **QUICK)
    )
    pipeline.fit(X, y, federatedclassifier__groups=groups)
    assert len(pipeline[-1].clients_) == 6
    with sklearn.config_context(enable_metadata_routing=True):
        search = selection.GridSearchCV(
            pipeline, {"federatedclassifier__l2": [0.001, 100.0]}, cv=selection.GroupKFold(2)
        )
        search.fit(X, y, groups=groups)
    assert len(search.best_estimator_[-1].clients_) == 6
    assert search.best_params_ == {"federatedclassifier__l2": 0.001}
    assert search.best_score_ > 0.9


def test_the_seed_decides_the_run_and_a_pickle_keeps_it():
    first, again, other = (federated.FederatedClassifier(random_state=s, **QUICK).fit(*iris()) for s in (0, 0, 1))
    assert np.array_equal(first.coefs_[0], again.coefs_[0])
    assert not np.array_equal(first.coefs_[0], other.coefs_[0])
    assert np.array_equal(pickle.loads(pickle.dumps(first)).predict_proba(iris()[0]), first.predict_proba(iris()[0]))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"algorithm": "scafold"}, r"did you mean 'scaffold'\?"),
        ({"step_size": "best"}, "must be 'auto' or a positive number"),
        ({"step_size": -1.0}, "step_size=-1.0 must be a positive number"),
        ({"hidden_layer_sizes": (0,)}, r"hidden_layer_sizes=\(0,\)"),
        ({"n_clients": 0}, "n_clients=0"),
        ({"rounds": 0}, "rounds=0"),
        ({"blocks": 0}, "blocks=0"),
        ({"l1": -1.0}, "l1=-1.0"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_in_fit(setting, words):
    with pytest.raises(ValueError, match=words):
        federated.FederatedClassifier(**setting).fit(*iris())


def test_wrong_calls_are_refused_in_scikit_learns_words():
    with pytest.raises(sklearn.exceptions.NotFittedError, match="not fitted yet"):
        federated.FederatedRegressor().predict(diabetes()[0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        federated.FederatedRegressor().fit(*diabetes(), groups=[1, 2])
    with pytest.raises(ValueError, match="one class only"):
        federated.FederatedClassifier().fit(iris()[0][:50], iris()[1][:50])
