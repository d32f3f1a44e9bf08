"""More clients than memory: the same numbers bit for bit, and clients never sampled cost nothing."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac.algorithms.compression import TopK
from losac.simulation import Layout
from losac.simulation.engines import paged, residence, streaming
from losac.simulation.engines.paged import PagedEngine
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.engines.spill import Spill
from losac.simulation.options import SimulationOptions
from losac.simulation.sampling import Uniform, draw_clients

A = losac.algorithms
CLIENTS, SAMPLED, ROUNDS = 30, 4, 17
RNG = np.random.default_rng(0)
SIZES = RNG.integers(4, 9, CLIENTS)
DATA = losac.FederatedData.from_clients([(RNG.normal(size=(n, 3)), RNG.normal(size=n)) for n in SIZES])
TASK = losac.regression(losac.models.linear(3), DATA, weights="samples")
TRACE = RNG.random((7, CLIENTS)) < 0.12
TRACE[:, 5] = True
ALGORITHMS = {
    "losac, M > T": A.losac(1e-3, 2, 4),
    "losac, M <= T": A.losac(1e-3, 5, 2, scaling="exact"),
    "losac_lean": A.losac_lean(1e-3, 2, 4),
    "scaffold": A.scaffold(0.01, 3, 2),
    "fedavg": A.fedavg(0.01, batch_size=3, epochs=2, weighting="average"),
    "fedvarp, rows on the server": A.fedvarp(0.01, 2, 2),
    "fedsaga": A.fedsaga(0.01),
    "error feedback": A.fedavg(0.01, 2, uploads=(TopK(0.4),)),
    "record": A.scaffold(0.01, 2, uploads=(TopK(0.4, error_feedback=False),)),
}


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks of three rounds and chunks of a few clients, so that a short run has many of both."""
    monkeypatch.setattr(paged, "MOST_ROUNDS", 3)
    monkeypatch.setattr(paged, "CHUNK_BYTES", 60)


def run(algorithm, store, task=TASK, **options):
    given = {"rounds": ROUNDS, "clients_per_round": SAMPLED, "eval_every": 8, "keep_state": True} | options
    return losac.simulate(task, algorithm, store=store, **given)


def assert_same(a, b):
    """States and metrics agree bit for bit."""
    assert jax.tree.structure(a.state) == jax.tree.structure(b.state)
    for mine, other in zip(jax.tree.leaves(a.state._replace(key=0)), jax.tree.leaves(b.state._replace(key=0))):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(other))
    assert list(a.metrics) == list(b.metrics)
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name])
    np.testing.assert_array_equal(a.gradients, b.gradients)
    np.testing.assert_array_equal(a.bytes_up, b.bytes_up)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_numbers_are_those_of_the_ordinary_engine(name):
    """With all clients at hand, and where in some rounds fewer than S are there."""
    for sampling in ("uniform", TRACE):
        assert_same(*(run(ALGORITHMS[name], store, sampling=sampling) for store in ("device", "memory")))


@pytest.mark.parametrize(
    ("name", "layout"), [("losac, M > T", Layout(1, 2)), ("losac, M > T", Layout(2, 1)), ("scaffold", Layout(1, 1))]
)
def test_on_any_layout(name, layout):
    both = (run(ALGORITHMS[name], store, layout=layout, dtype="float64") for store in ("device", "memory"))
    assert_same(*both)


@pytest.mark.parametrize("name", ["losac, M > T", "scaffold"])
def test_files_hold_what_memory_holds(name, tmp_path):
    assert_same(run(ALGORITHMS[name], "memory"), run(ALGORITHMS[name], tmp_path))
    assert not list(tmp_path.iterdir()), "the files have no names, and vanish with the run"


def engine(task, algorithm, sampled=SAMPLED, **options):
    return PagedEngine(task, algorithm, SimulationOptions.of(task, rounds=ROUNDS, clients_per_round=sampled), **options)


@pytest.mark.parametrize("name", ["losac, M > T"])
def test_reading_ahead_changes_nothing(name):
    with precision("float32"):
        both = [engine(TASK, ALGORITHMS[name], ahead=ahead) for ahead in (True, False)]
        for one in both:
            list(one.run(Uniform(CLIENTS, SAMPLED), [0, ROUNDS], False, lambda: None))
        mine, other = (jax.tree.leaves(one.kept()._replace(key=0)) for one in both)
    for a, b in zip(mine, other):
        np.testing.assert_array_equal(a, b)


def test_a_table_in_fewer_bits():
    """NumPy has no view of such numbers on the device, and copies them."""
    algorithm = ALGORITHMS["losac, M > T"]
    assert_same(run(algorithm, "memory", table_dtype="bfloat16"), run(algorithm, "device", table_dtype="bfloat16"))


def test_steps_per_client_and_a_sampler_that_looks_at_the_history():
    def follow(round_index, rng, history):
        """Choose by the last loss."""
        return [int(1e6 * history.metrics["loss"][-1]) % CLIENTS, CLIENTS - 1][: 1 + round_index % 2 or 1]

    def sampler(round_index, rng, history):
        return np.unique(follow(round_index, rng, history) if history.rounds.size else [0])

    options = {"local_steps": RNG.integers(1, 5, CLIENTS), "sampling": sampler, "rounds": 6}
    both = (run(A.scaffold(0.01), store, **options) for store in ("device", "memory"))
    assert_same(*both)


@pytest.mark.parametrize("name", ["scaffold", "error feedback"])
def test_a_run_goes_on_bit_for_bit_wherever_its_state_was(name):
    whole = run(ALGORITHMS[name], "device")
    for first, second in (("memory", "memory"), ("device", "memory"), ("memory", "device")):
        half = run(ALGORITHMS[name], first, rounds=8)
        rest = run(ALGORITHMS[name], second, rounds=ROUNDS - 8, state=half.state)
        for a, b in zip(jax.tree.leaves(rest.state._replace(key=0)), jax.tree.leaves(whole.state._replace(key=0))):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_given_state_is_checked_like_anywhere():
    state = run(A.scaffold(0.01), "memory", rounds=2).state
    wrong = state._replace(server=state.server._replace(c=state.server.c + 1))
    with pytest.raises(ValueError, match="Σ c_i ≠ N·c"):
        run(A.scaffold(0.01), "memory", state=wrong)
    with pytest.raises(ValueError, match="another algorithm"):
        run(A.fedavg(0.01), "memory", state=state)


def test_clients_never_sampled_cost_nothing(tmp_path):
    """A hundred thousand clients with rows of 40 kB, 4 GB in all: a run touches those it samples and no more."""
    clients, sampled, rounds = 100_000, 5, 4
    data = losac.data.crowd(clients=clients, samples=2, dim=1000 // 10, classes=10)
    model = losac.models.two_nn(100, 10, 60)
    task = losac.Task(losac.losses.CrossEntropy(model), model.init, data)
    chosen = SimulationOptions.of(task, rounds=rounds, clients_per_round=sampled, loss_every=10**6)
    sampler = Uniform(clients, sampled)
    touched = np.unique(draw_clients(sampler, 0, 0, rounds, clients, sampled)[0])
    with precision("float32"):
        one = PagedEngine(task, A.scaffold(0.01, 2), chosen, folder=tmp_path)
        list(one.run(sampler, [rounds], False, lambda: None))
    assert one.spill.row_bytes > 40_000
    assert one.spill.used == len(touched)
    np.testing.assert_array_equal(np.flatnonzero(one.spill.slot >= 0), touched)
    leaves = len(one.spill.first)
    assert one.spill.disk_bytes <= one.spill.used * one.spill.row_bytes + 2 * 4096 * leaves


def test_the_store_gives_back_what_was_written(tmp_path):
    first = {"a": np.full((3, 2), 7.0, np.float32), "b": np.arange(4)}
    rng = np.random.default_rng(1)
    for folder in (None, tmp_path):
        store = Spill(first, 1000, folder)
        due = {name: np.repeat(leaf[None], 1000, axis=0) for name, leaf in first.items()}
        for _ in range(5):
            who = rng.choice(1000, 20, replace=False)
            rows = {"a": rng.normal(size=(25, 3, 2)).astype(np.float32), "b": rng.integers(9, size=(25, 4))}
            store.write(who, rows)
            for name in due:
                due[name][who] = rows[name][:20]
        back = {name: np.zeros((30, *leaf.shape), leaf.dtype) for name, leaf in first.items()}
        store.read(who, back)
        other = Spill(first, 1000)
        other.adopt(store.everything(), at_once=7)
        for name in due:
            np.testing.assert_array_equal(store.everything()[name], due[name])
            np.testing.assert_array_equal(other.everything()[name], due[name])
            np.testing.assert_array_equal(back[name][:20], due[name][who])
        assert other.used == store.used == np.unique(np.flatnonzero((due["b"] != first["b"]).any(1))).size


def test_evaluation_in_slabs_agrees_to_rounding(monkeypatch):
    """Without a test part, so that the metrics stream too; with a regulariser; and where the loss is seldom due."""
    monkeypatch.setattr(streaming, "SLAB_BYTES", 1)
    data = losac.data.crowd(clients=700, samples=3, dim=4, classes=3)
    model = losac.models.softmax_regression(4, 3)
    task = losac.classification(model, data, regularizer=losac.prox.l1(1e-3), reduction="mean")
    both = [
        run(A.scaffold(0.1, 2), store, task=task, dtype="float64", eval_every=5, loss_every=10)
        for store in ("device", "memory")
    ]
    assert list(both[0].metrics) == list(both[1].metrics) == ["accuracy", "loss", "objective"]
    for name, values in both[0].metrics.items():
        np.testing.assert_allclose(both[1].metrics[name], values, rtol=1e-12)
    assert np.isnan(both[1].metrics["loss"]).any()


def test_coupled_rows_and_a_test_part():
    def loss(params, batch):
        return jnp.mean((batch[0] @ params - batch[1] - batch[1].mean()) ** 2)

    test = (RNG.normal(size=(11, 3)), RNG.normal(size=11))
    task = losac.Task(loss, np.zeros(3), DATA, coupled=True, test=test, metrics={"double": lambda p, b: 2 * loss(p, b)})
    assert_same(*(run(A.scaffold(0.01, 2, 2), store, task=task) for store in ("device", "memory")))


def test_divergence_is_told_alike():
    told = []
    for store in ("device", "memory"):
        with pytest.raises(losac.DivergedError) as error:
            run(A.fedavg(1e6, 5), store, rounds=40)
        told.append(error.value.history.diverged)
    assert told[0] == told[1]


def test_an_error_while_reading_ahead_is_seen():
    with pytest.raises(ValueError, match="outside 0 … 29"):
        run(A.scaffold(0.01), "memory", sampling=[[0, 1], [2], [3], [4], [99]])


def test_auto_keeps_on_the_device_what_fits_and_says_where_the_rest_goes(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def made(store="auto", keep_state=False):
        chosen = SimulationOptions.of(TASK, rounds=ROUNDS, clients_per_round=SAMPLED, store=store)
        return residence.make_engine(TASK, ALGORITHMS["scaffold"], chosen, None, keep_state)

    assert isinstance(made(), ResidentEngine)
    monkeypatch.setattr(residence, "free_memory", lambda: 100.0)
    assert isinstance(made(), PagedEngine)
    assert made().spill.folder is None
    monkeypatch.setattr(residence, "host_memory", lambda: 100.0)
    with caplog.at_level(logging.WARNING, "losac"):
        assert made().spill.folder == tmp_path
    assert f"files in {tmp_path}" in caplog.text
    with pytest.raises(ValueError, match="keep_state=True would bring the states of all 30 clients into memory"):
        made(keep_state=True)
    monkeypatch.setattr(residence.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(ValueError, match=r"has only 0\.0 GB free: choose a folder on a larger disk"):
        made(store=tmp_path)


def test_an_algorithm_that_asks_all_clients_stays_on_the_device(monkeypatch):
    asks_all = A.local_svrg(0.01)
    with pytest.raises(ValueError, match=r"asks all clients in one of its phases.*use store='device'"):
        run(asks_all, "memory")
    monkeypatch.setattr(residence, "free_memory", lambda: 0.0)
    assert np.isfinite(run(asks_all, "auto", rounds=2).params).all()


@pytest.mark.parametrize(
    ("store", "hint"),
    [
        ("memry", "did you mean 'memory'"),
        (3, "must be 'auto', 'device', 'memory' or a folder"),
        (Path("/no/where"), ""),
    ],
)
def test_nonsense_is_refused(store, hint):
    with pytest.raises(ValueError, match=f"a folder that exists.*{hint}" if "mean" in hint else hint or "exists"):
        run(A.fedavg(0.01), store)
