"""The estimators are scikit-learn's in all that it checks, and as good as its linear models."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import losac
from losac.sklearn import FederatedClassifier, FederatedRegressor

IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
QUICK = {"rounds": 30, "n_clients": 2}


@parametrize_with_checks([FederatedClassifier(**QUICK), FederatedRegressor(**QUICK)])
def test_scikit_learn_accepts_it(estimator, check, monkeypatch):
    """All of its checks, without exceptions; with fewer clients and rounds than the defaults, to be quick."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # read by the one check that is skipped without it
    check(estimator)


@pytest.mark.parametrize(
    ("load", "ours", "theirs"),
    [
        (load_iris, FederatedClassifier, LogisticRegression()),
        (load_breast_cancer, FederatedClassifier, LogisticRegression()),
        (load_diabetes, FederatedRegressor, Ridge()),
    ],
    ids=["iris", "breast_cancer", "diabetes"],
)
@pytest.mark.parametrize("setting", [{}, {"partition": "sorted", "clients_per_round": 3}], ids=["iid", "sorted"])
def test_the_defaults_are_close_to_the_pooled_linear_model(load, ours, theirs, setting):
    """Within three points on rows not trained on, be the clients alike or sorted by label and sampled."""
    train_x, test_x, train_y, test_y = train_test_split(*load(return_X_y=True), random_state=0)
    pooled = make_pipeline(StandardScaler(), theirs).fit(train_x, train_y).score(test_x, test_y)
    assert ours(random_state=0, **setting).fit(train_x, train_y).score(test_x, test_y) > pooled - 0.03


def test_it_minimises_the_pooled_objective():
    """Ridge's weights, though the clients differ in size and in their rows, three of eight of them in each round."""
    X, y = DIABETES
    rows = StandardScaler().fit_transform(X)
    spread = y.std()
    groups = np.searchsorted([40, 60, 100, 150, 155, 300, 400], np.argsort(np.argsort(y)), side="right")
    ours = FederatedRegressor(l2=0.1, rounds=400, clients_per_round=3, random_state=0).fit(rows, y, groups=groups)
    ridge = Ridge(alpha=0.1 * len(y)).fit(rows, y)
    np.testing.assert_allclose(ours.coefs_[0][:, 0], ridge.coef_, atol=2e-3 * spread)
    np.testing.assert_allclose(ours.intercepts_[0], ridge.intercept_, rtol=1e-4)
    assert ours.clients_.tolist() == list(range(8))


def test_an_l1_penalty_leaves_weights_at_zero():
    fitted = FederatedRegressor(l1=0.1, random_state=0).fit(*DIABETES)
    assert 2 <= np.count_nonzero(fitted.coefs_[0]) <= 7
    with pytest.raises(ValueError, match="fedavg has no proximal step"):
        FederatedRegressor("fedavg", l1=0.1).fit(*DIABETES)


@pytest.mark.parametrize("drawn", [(1, 1, None), (10, 1, None), (5, 4, 3)], ids=str)
def test_the_automatic_step_does_not_overshoot(drawn):
    """Least squares at any T, M and S: LoSAC's 12/(TL) is too long for some, and is then shortened."""
    local_steps, blocks, sampled = drawn
    method = FederatedRegressor(local_steps=local_steps, blocks=blocks, clients_per_round=sampled, random_state=0)
    assert method.fit(*DIABETES).score(*DIABETES) > 0.5
    assert method.history_.settings["step_size"] == pytest.approx(method.step_size_)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddyn"])
def test_other_algorithms_by_name(name):
    assert FederatedClassifier(name, random_state=0).fit(*IRIS).score(*IRIS) > 0.9


def test_an_algorithm_object_is_used_as_it_is():
    own = losac.algorithms.fedprox(0.05, 3, 2, mu=0.01)
    fitted = clone(FederatedClassifier(own, rounds=7, random_state=0)).fit(*IRIS)
    assert fitted.history_.algorithm == "fedprox"
    assert fitted.history_.settings["step_size"] == fitted.step_size_ == 0.05
    assert fitted.history_.settings["local_steps"] == 3
    assert fitted.n_iter_ == 7


def test_a_network_learns_what_no_line_can():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    network = FederatedClassifier(hidden_layer_sizes=(16,), n_clients=4, random_state=0).fit(X, y)
    assert network.score(X, y) > 0.9
    assert [w.shape for w in network.coefs_] == [(2, 16), (16, 1)]


def test_groups_are_the_clients():
    """Inside a pipeline and a grid search as well, where the folds split by them."""
    X, y = IRIS
    groups = np.array([f"site {i % 6}" for i in range(len(y))])
    alone = FederatedClassifier(**QUICK).fit(X, y, groups=groups)
    assert alone.clients_.tolist() == [f"site {i}" for i in range(6)]
    pipeline = make_pipeline(StandardScaler(), FederatedClassifier(standardize=False, **QUICK))
    pipeline.fit(X, y, federatedclassifier__groups=groups)
    assert len(pipeline[-1].clients_) == 6
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(pipeline, {"federatedclassifier__l2": [0.001, 100.0]}, cv=GroupKFold(2))
        search.fit(X, y, groups=groups)
    assert len(search.best_estimator_[-1].clients_) == 6
    assert search.best_params_ == {"federatedclassifier__l2": 0.001}
    assert search.best_score_ > 0.9


def test_the_seed_decides_the_run_and_a_pickle_keeps_it():
    first, again, other = (FederatedClassifier(random_state=s, **QUICK).fit(*IRIS) for s in (0, 0, 1))
    assert np.array_equal(first.coefs_[0], again.coefs_[0])
    assert not np.array_equal(first.coefs_[0], other.coefs_[0])
    assert np.array_equal(pickle.loads(pickle.dumps(first)).predict_proba(IRIS[0]), first.predict_proba(IRIS[0]))


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
        FederatedClassifier(**setting).fit(*IRIS)


def test_wrong_calls_are_refused_in_scikit_learns_words():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        FederatedRegressor().predict(DIABETES[0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        FederatedRegressor().fit(*DIABETES, groups=[1, 2])
    with pytest.raises(ValueError, match="one class only"):
        FederatedClassifier().fit(IRIS[0][:50], IRIS[1][:50])
