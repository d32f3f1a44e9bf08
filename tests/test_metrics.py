"""Metrics of all rows at once: scikit-learn's own numbers on every route, and no other metric taken for a mean."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from lazy import Lazy
from losac.simulation.placement.layout import Layout
from losac.simulation.program import arrays

sk, special = Lazy("sklearn.metrics"), Lazy("scipy.special")
A = losac.algorithms
M = losac.metrics
CLASSES, DIM = 3, 4
RNG = np.random.default_rng(0)
MEANS = RNG.normal(size=(CLASSES, DIM))


def drawn(rows, share=(0.6, 0.3, 0.1)):
    """Classes of very different sizes, so that no whole-set metric is near the accuracy."""
    y = RNG.choice(CLASSES, rows, p=share)
    return (MEANS[y] + RNG.normal(size=(rows, DIM))).astype("float32"), y


DATA = losac.FederatedData.from_clients([drawn(n) for n in (30, 20, 25)], test=drawn(90), num_classes=CLASSES)
X, Y = DATA.test
MODEL = losac.models.softmax_regression(DIM, CLASSES)
SCORES = {name: getattr(M, name) for name in ("macro_f1", "balanced_accuracy", "auc", "log_loss", "brier")}
RUN = {"rounds": 4, "eval_every": 2, "clients_per_round": 2, "dtype": "float64"}
METHOD = A.scaffold(0.01, 3, 2)


def logits_of(params, x):
    return np.float64(x) @ np.asarray(params[0]["w"]) + np.asarray(params[0]["b"])


def by_sklearn(logits, y):
    """Every score by a direct call of scikit-learn, for several classes."""
    p, guess = special.softmax(np.asarray(logits, float), -1), np.argmax(logits, -1)
    return {
        "macro_f1": sk.f1_score(y, guess, average="macro"),
        "balanced_accuracy": sk.balanced_accuracy_score(y, guess),
        "auc": sk.roc_auc_score(y, p, multi_class="ovr"),
        "log_loss": sk.log_loss(y, p),
        "brier": np.mean(((p - np.eye(p.shape[1])[y]) ** 2).sum(1)),
    }


def final(history):
    return {name: history.final(name) for name in SCORES}


def macro_f1(params, batch):
    """Macro-F1 in JAX, of which a user may believe that it may be taken row by row."""
    x, y = batch
    told, true = (jax.nn.one_hot(c, CLASSES) for c in (MODEL(params, x).argmax(-1), y))
    right = (told * true).sum(0)
    return (2 * right / jnp.maximum(told.sum(0) + true.sum(0), 1)).mean()


# What the scores are


def test_scores_are_scikit_learns_on_real_outputs():
    task = losac.classification(MODEL, DATA, metrics=SCORES)
    history = losac.simulate(task, METHOD, **RUN)
    logits = logits_of(history.params, X)
    assert final(history) == pytest.approx(by_sklearn(logits, Y), abs=1e-12)
    assert history.final("accuracy") == pytest.approx(np.mean(np.argmax(logits, -1) == Y))


@pytest.mark.parametrize("columns", [1, 2], ids=["one logit", "two logits"])
def test_scores_of_two_classes(columns):
    logits, y = RNG.normal(size=(50, columns)).astype("float32"), RNG.integers(0, 2, 50)
    margin = np.float64(logits[:, 0] if columns == 1 else np.float64(logits[:, 1]) - logits[:, 0])
    p, guess = special.expit(margin), margin > 0
    assert M.macro_f1(logits, y) == pytest.approx(sk.f1_score(y, guess, average="macro"), abs=1e-12)
    assert M.balanced_accuracy(logits, y) == pytest.approx(sk.balanced_accuracy_score(y, guess), abs=1e-12)
    assert M.auc(logits, y) == pytest.approx(sk.roc_auc_score(y, p), abs=1e-12)
    assert M.log_loss(logits, y) == pytest.approx(sk.log_loss(y, p), abs=1e-12)
    assert M.brier(logits, y) == pytest.approx(sk.brier_score_loss(y, p), abs=1e-12)
    assert M.auc(logits.reshape(-1, columns), y[:, None]) == M.auc(logits, y)


def test_scores_of_several_labels_at_once_are_means_over_the_labels():
    logits, y = RNG.normal(size=(40, 3)), RNG.integers(0, 2, (40, 3))
    p = special.expit(logits)
    assert M.macro_f1(logits, y) == pytest.approx(sk.f1_score(y, p > 0.5, average="macro"), abs=1e-12)
    assert M.auc(logits, y) == pytest.approx(sk.roc_auc_score(y, p), abs=1e-12)
    each = [sk.balanced_accuracy_score(y[:, k], p[:, k] > 0.5) for k in range(3)]
    assert M.balanced_accuracy(logits, y) == pytest.approx(np.mean(each), abs=1e-12)
    assert M.log_loss(logits, y) == pytest.approx(np.mean([sk.log_loss(y[:, k], p[:, k]) for k in range(3)]), abs=1e-12)
    assert M.brier(logits, y) == pytest.approx(np.mean((p - y) ** 2), abs=1e-12)


def test_scores_of_sequences_count_every_place_as_a_row():
    logits, y = RNG.normal(size=(6, 5, CLASSES)), RNG.integers(0, CLASSES, (6, 5))
    wanted = by_sklearn(logits.reshape(-1, CLASSES), y.reshape(-1))
    assert {name: score(logits, y) for name, score in SCORES.items()} == pytest.approx(wanted, abs=1e-12)


def test_classes_that_are_not_there_do_not_count():
    logits, y = RNG.normal(size=(30, CLASSES)), RNG.integers(0, 2, 30)
    p = special.softmax(logits, -1)
    there = [sk.roc_auc_score(y == k, p[:, k]) for k in (0, 1)]
    assert M.auc(logits, y) == pytest.approx(np.mean(there), abs=1e-12)
    assert np.isfinite([score(logits, y) for score in SCORES.values()]).all()
    assert np.isnan(M.auc(logits, 0 * y))
    with pytest.raises(ValueError, match=r"outputs of shape \(30, 3\) and targets of shape \(30, 2\) do not fit"):
        M.auc(logits, np.zeros((30, 2)))


# Every route


@pytest.fixture(scope="module")
def task():
    return losac.classification(MODEL, DATA, metrics=SCORES | {"rowless_f1": M.whole(macro_f1)})


@pytest.fixture(scope="module")
def plain(task):
    return losac.simulate(task, METHOD, **RUN)


def test_a_whole_function_sees_all_rows(plain):
    np.testing.assert_allclose(plain.metrics["rowless_f1"], plain.metrics["macro_f1"], rtol=1e-6)
    assert list(plain.metrics) == sorted(plain.metrics)


def test_the_run_itself_is_the_same_without_them(plain):
    bare = losac.simulate(losac.classification(MODEL, DATA), METHOD, **RUN)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(bare.params), jax.tree.leaves(plain.params)))
    for name in bare.metrics:
        assert bare.metrics[name].tolist() == plain.metrics[name].tolist()


def test_outputs_come_in_chunks_of_any_size(task, plain, monkeypatch):
    monkeypatch.setattr(losac.simulation.program.whole, "chunk_rows", lambda x: 64)
    again = losac.simulate(task, METHOD, **RUN)
    for name in SCORES:
        np.testing.assert_allclose(again.metrics[name], plain.metrics[name], rtol=1e-6)
    assert arrays.chunk_rows(X) == 45


@pytest.mark.parametrize("options", [{"store": "memory"}, {"layout": Layout(1, 2)}], ids=["paged", "two devices"])
def test_the_other_engines_measure_the_same(task, plain, options):
    if "layout" in options and jax.device_count() < 2:
        pytest.skip("one device")
    other = losac.simulate(task, METHOD, **RUN, **options)
    for name in plain.metrics:
        np.testing.assert_allclose(other.metrics[name], plain.metrics[name], rtol=1e-5)


def test_members_of_a_sweep_measure_the_same(task, plain):
    result = losac.sweep(task, A.scaffold(1.0, 3, 2), {"step_size": [0.01, 1e-4]}, **RUN)
    for name in plain.metrics:
        np.testing.assert_allclose(result.members[0].metrics[name], plain.metrics[name], rtol=1e-5)
    assert result.best("brier") == result.best("log_loss") == {"step_size": 0.01}


def test_tuning_seeks_small_losses_and_large_scores(task):
    for metric, best in (("brier", min), ("macro_f1", max)):
        found = losac.tune(task, METHOD, {"step_size": [1e-4, 0.01]}, rounds=4, metric=metric, widen=False)
        scores = [trial.score for trial in found.trials]
        assert found.best_trial.score == best(scores) != np.mean(scores)


def test_a_run_goes_on_in_its_record(task, plain):
    half = losac.simulate(task, METHOD, **RUN | {"rounds": 2}, keep_state=True)
    again = losac.simulate(task, METHOD, **RUN | {"rounds": 2}, state=half)
    for name in plain.metrics:
        assert again.metrics[name].tolist() == plain.metrics[name].tolist()


def test_without_test_rows_the_training_rows_count_alike():
    task = losac.classification(MODEL, DATA, metrics=SCORES, test=None, weights=[0.8, 0.1, 0.1])
    history = losac.simulate(task, METHOD, **RUN)
    assert final(history) == pytest.approx(by_sklearn(logits_of(history.params, DATA.x), DATA.y), abs=1e-12)


@pytest.mark.parametrize("budget", [2**22, 40], ids=["one group", "many groups"])
def test_every_client_gets_scores_of_its_own_rows(task, plain, budget, monkeypatch):
    monkeypatch.setattr(losac.evaluation.rows, "BUDGET", budget)
    found = losac.evaluate(task, plain.params)
    for i in range(3):
        x, y = DATA.client(i)
        wanted = by_sklearn(logits_of(plain.params, x), y)
        assert {name: found.values[name][i] for name in SCORES} == pytest.approx(wanted, abs=1e-12)
        assert found.values["rowless_f1"][i] == pytest.approx(wanted["macro_f1"], rel=1e-6)
    assert list(found.values) == ["loss", "accuracy", *SCORES, "rowless_f1"]


def test_personal_models_get_scores_of_their_own_outputs(task, plain):
    found = losac.personalize(task, plain.params, steps=1, step_size=1e-12, seed=3)
    for name in SCORES:
        np.testing.assert_allclose(found.after.values[name], found.before.values[name], rtol=1e-6)
    moved = losac.personalize(task, plain.params, steps=30, step_size=0.5, seed=3)
    assert (moved.gain("log_loss") != 0).all()


def test_an_undefined_score_is_nan_and_not_a_divergence():
    clients = [drawn(20), (drawn(8)[0], np.ones(8, int))]
    data = losac.FederatedData.from_clients(clients, num_classes=CLASSES)
    task = losac.classification(MODEL, data, metrics={"auc": M.auc}, test=clients[1])
    history = losac.simulate(task, METHOD, rounds=2)
    assert np.isnan(history.metrics["auc"]).all()
    assert history.diverged is None
    found = losac.evaluate(task, history.params)
    assert np.isnan(found.values["auc"]).tolist() == [False, True]
    assert found.mean("auc") == found.worst("auc") == pytest.approx(found.values["auc"][0])
    assert found.weighted_mean("auc") == pytest.approx(found.values["auc"][0])
    assert (found.std("auc"), found.jain("auc")) == (0, 1)
    alike = losac.FederatedData.from_clients([clients[1]] * 2, num_classes=CLASSES)
    task = losac.classification(MODEL, alike, metrics={"auc": M.auc})
    with pytest.raises(ValueError, match=r"'auc' is undefined .* after every trial"):
        losac.tune(task, METHOD, {"step_size": [0.01]}, rounds=1, metric="auc")
    with pytest.raises(ValueError, match=r"'auc' is undefined .* after every member"):
        losac.sweep(task, METHOD, {"step_size": [0.01]}, rounds=1).best("auc")


def test_a_run_that_diverges_is_told_so_whatever_its_scores():
    task = losac.regression(losac.models.linear(DIM), DATA, metrics={"top": M.score(lambda outputs, y: outputs.max())})
    with pytest.raises(losac.DivergedError):
        losac.simulate(task, A.fedavg(1e6, 5), rounds=20)


def test_a_state_reaches_the_model_behind_a_score():
    def train(params, state, x, key):
        return x @ params, state + 1

    model = losac.models.Trained(
        lambda key: jnp.ones((DIM, 1)), lambda params, state, x: x @ params + 100 * state, train, jnp.zeros(())
    )
    task = losac.regression(model, DATA, metrics={"lowest": M.score(lambda outputs, y: outputs.min())})
    history = losac.simulate(task, A.fedavg(1e-5, 2), rounds=1)
    assert history.metrics["lowest"][1] > 100


def test_a_central_evaluation_takes_them_whole(task, plain):
    from losac.federation.central import central_of

    found = central_of(task, 0, "float32").evaluate(plain.params, ())
    assert {name: found[name] for name in SCORES} == pytest.approx(final(plain), rel=1e-6)
    wrong = losac.classification(MODEL, DATA, metrics={"macro_f1": lambda p, b: macro_f1(p, b)})
    with pytest.raises(ValueError, match="not a mean over rows"):
        central_of(wrong, 0, "float32")


# PyTorch and NumPy


def in_torch(torch, metrics, data=DATA, **options):
    module = torch.nn.Linear(DIM, CLASSES)
    with torch.no_grad():
        [p.zero_() for p in module.parameters()]
    return losac.torch.simulate(
        module, torch.nn.functional.cross_entropy, data, METHOD, metrics=metrics, **RUN | options
    )


def test_pytorch_takes_the_same_scores(plain):
    torch = pytest.importorskip("torch")

    def told(outputs, y):
        return (outputs.argmax(-1) == y).double().mean()

    history = in_torch(torch, SCORES | {"told": told})
    assert final(history) == pytest.approx(final(plain), rel=1e-9)
    assert history.final("told") == pytest.approx(plain.final("accuracy"))


def test_pytorch_puts_the_outputs_of_many_rows_together(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(losac.federation.torch, "CHUNK", 32)

    def top(outputs, y):
        return outputs.max()

    history = in_torch(torch, SCORES | {"top": top})
    logits = np.float64(X) @ history.params["weight"].T + history.params["bias"]
    assert final(history) == pytest.approx(by_sklearn(logits, Y), abs=1e-12)
    assert history.final("top") == pytest.approx(logits.max(), abs=1e-12)
    loss = sk.log_loss(Y, special.softmax(logits, -1))
    assert history.final("test_loss") == pytest.approx(loss, abs=1e-12)


def test_pytorch_on_training_rows_that_do_not_count_alike():
    torch = pytest.importorskip("torch")

    def told(outputs, y):
        return (outputs.argmax(-1) == y).double().mean()

    def top(outputs, y):
        return outputs.max() + y.max() + 1e-3 * len(y)

    options = {"test": None, "weights": [0.8, 0.1, 0.1]}
    history = in_torch(torch, {"told": told, "top": M.whole(top), "auc": M.auc}, **options)
    task = losac.classification(MODEL, DATA, metrics={"auc": M.auc}, **options)
    wanted = losac.simulate(task, METHOD, **RUN)
    assert history.final("told") == pytest.approx(wanted.final("accuracy"))
    assert history.final("auc") == pytest.approx(wanted.final("auc"), abs=1e-12)
    with pytest.raises(ValueError, match="'top' is not a mean over rows"):
        in_torch(torch, {"top": lambda outputs, y: top(outputs, y)}, **options)


def test_a_numpy_worker_with_many_rows_takes_means_only():
    from losac.federation.numpy import numpy_worker

    x, y = drawn(5000)
    params = np.ones(DIM)
    parts = {
        "loss_gradient": lambda w, x, y: x.T @ (x @ w - y) / len(x),
        "loss": lambda w, x, y: np.mean((x @ w - y) ** 2) / 2,
    }
    good = numpy_worker(METHOD, x=x, y=y, **parts, metrics={"off": lambda w, x, y: np.mean(np.abs(x @ w - y))})
    assert good.evaluate(params)["off"] == pytest.approx(np.mean(np.abs(x @ params - y)))
    metrics = {"spread": lambda w, x, y: np.ptp(x @ w)}
    with pytest.raises(ValueError, match="'spread' is not a mean over rows"):
        numpy_worker(METHOD, x=x, y=y, **parts, metrics=metrics).evaluate(params)
    whole = numpy_worker(METHOD, x=x, y=y, **parts, metrics=metrics, whole=True)
    assert whole.evaluate(params)["spread"] == pytest.approx(np.ptp(x @ params))


# What is refused


@pytest.mark.parametrize("route", ["simulate", "sweep", "tune", "paged", "evaluate", "personalize"])
def test_a_metric_that_is_no_mean_over_rows_is_refused(route):
    task = losac.classification(MODEL, DATA, metrics={"f1": lambda params, batch: macro_f1(params, batch)})
    routes = {
        "simulate": lambda: losac.simulate(task, METHOD, rounds=1),
        "sweep": lambda: losac.sweep(task, METHOD, {"step_size": [0.1]}, rounds=1),
        "tune": lambda: losac.tune(task, METHOD, {"step_size": [0.1]}, rounds=1),
        "paged": lambda: losac.simulate(task, METHOD, rounds=1, store="memory"),
        "evaluate": lambda: losac.evaluate(task, task.init_params(jax.random.key(0))),
        "personalize": lambda: losac.personalize(task, task.init_params(jax.random.key(0)), step_size=0.1),
    }
    with pytest.raises(ValueError, match=r"'f1' is not a mean over rows.*losac\.metrics\.whole"):
        routes[route]()


def precision_or_zero(params, batch):
    """Zero on any row and on all at the start, where nothing is told: only other models show what it is."""
    x, y = batch
    told, true = x @ params > 0, y == 1
    return (told & true).sum() / jnp.maximum(told.sum(), 1)


def unguarded(params, batch):
    x, y = batch
    told = (x @ params > 0) * 1.0
    return (told * (y == 1)).sum() / told.sum()


def root(params, batch):
    return jnp.sqrt(jnp.mean((batch[0] @ params - batch[1]) ** 2))


MEAN = {
    "squares": lambda params, batch: jnp.mean((batch[0] @ params - batch[1]) ** 2),
    "told": lambda params, batch: jnp.mean((batch[0] @ params > 0) == (batch[1] == 1)),
    "distance": lambda params, batch: jnp.abs(params).max(),
}


def squared(params, batch):
    return jnp.mean((batch[0] @ params - batch[1]) ** 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", [precision_or_zero, unguarded, root])
def test_a_start_at_zero_hides_nothing(metric, dtype):
    task = losac.Task(squared, np.zeros(DIM), DATA, metrics={"m": metric})
    with pytest.raises(ValueError, match="'m' is not a mean over rows"):
        losac.simulate(task, METHOD, rounds=1, dtype=dtype)


def test_means_over_rows_are_taken():
    history = losac.simulate(losac.Task(squared, np.zeros(DIM), DATA, metrics=MEAN), METHOD, rounds=1)
    for name, metric in MEAN.items():
        np.testing.assert_allclose(history.final(name), metric(history.params, (X, Y)), rtol=1e-5)


def test_a_metric_that_cannot_be_compiled_says_the_way_out():
    def numpys(params, batch):
        return sk.f1_score(np.asarray(batch[1]), np.asarray(MODEL(params, batch[0])).argmax(-1), average="macro")

    for metric in (numpys, M.whole(numpys)):
        task = losac.classification(MODEL, DATA, metrics={"f1": metric})
        with pytest.raises(TypeError, match=r"'f1' cannot be compiled.*losac\.metrics\.score"):
            losac.simulate(task, METHOD, rounds=1)


def test_a_metric_is_one_number():
    task = losac.classification(MODEL, DATA, metrics={"each": lambda params, batch: MODEL(params, batch[0])[:, 0]})
    with pytest.raises(TypeError, match="'each' must return one number"):
        losac.simulate(task, METHOD, rounds=1)


def test_a_name_must_say_which_way_is_better():
    with pytest.raises(ValueError, match=r"'calibration' is best when small.*'calibration_loss'"):
        losac.classification(MODEL, DATA, metrics={"calibration": M.brier})
    with pytest.raises(ValueError, match="'no_error' is best when large"):
        losac.classification(MODEL, DATA, metrics={"no_error": M.auc})
    losac.classification(MODEL, DATA, metrics={"test_brier": M.brier, "misses": M.score(lambda outputs, y: 0.0)})


def test_a_task_of_ones_own_names_the_model_of_a_score():
    with pytest.raises(TypeError, match=r"'auc' is a score of outputs.*losac\.metrics\.of_model"):
        losac.Task(squared, np.zeros(DIM), DATA, metrics={"auc": M.auc})
    own = M.of_model(M.macro_f1, lambda params, x: x @ params)
    assert own(np.ones((DIM, CLASSES)), (X, Y)) == pytest.approx(sk.f1_score(Y, 0 * Y, average="macro"))


def test_a_metric_that_one_row_alone_makes_infinite_is_refused():
    """R² of one row divides by zero: an infinite mean over rows is far from any number."""
    data = losac.data.load("quadratic", clients=3, samples=5, dim=2, seed=0)
    model = losac.models.linear(2)

    def r2(params, batch):
        error = model(params, batch[0]).reshape(-1) - batch[1]
        return 1 - jnp.sum(error**2) / jnp.sum((batch[1] - batch[1].mean()) ** 2)

    task = losac.regression(model, data, metrics={"r2": r2})
    params = task.init_params(jax.random.key(0))
    for measure in (lambda: losac.simulate(task, A.fedavg(0.01), rounds=1), lambda: losac.evaluate(task, params)):
        with pytest.raises(ValueError, match="'r2' is not a mean over rows"):
            measure()
