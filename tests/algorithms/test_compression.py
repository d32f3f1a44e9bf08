"""Compressed uploads: what a payload decodes to, what it weighs, and which laws survive it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac.algorithms import fedavg, scaffold
from losac.algorithms.compression import Qsgd, RandomK, TopK
from losac.algorithms.fedadmm import Fedadmm
from losac.algorithms.fedpaq import Fedpaq
from losac.algorithms.packing import pack_places, packed_bytes, unpack_places
from losac.algorithms.vrl_sgd import VrlSgd
from losac.trees import nbytes
from problems import quadratic

N, S, K, M, D = 6, 2, 3, 4, 6
PROBLEM = quadratic(clients=N, samples=8, dim=D)
ETA = 0.1 / PROBLEM.curvature
UPLOAD = {"a": jnp.array([[3.0, -4.0, 0.0], [0.1, 12.0, -0.03]]), "b": jnp.array(-2.5), "c": jnp.zeros(4)}


def run(algorithm: Any, rounds: int, sampled: int = S, **options: Any) -> losac.History:
    options = {"dtype": "float64", "keep_state": True, **options}
    return losac.simulate(
        PROBLEM.task, algorithm, rounds=rounds, clients_per_round=sampled, eval_every=rounds, **options
    )


def through(transform: Any, upload: Any, seed: int = 0, state: Any = None) -> tuple[Any, Any, Any]:
    state = transform.init(upload) if state is None else state
    payload, state = transform.encode(jax.random.key(seed), state, upload)
    return transform.decode(payload), payload, state


# ---------------------------------------------------------------- quantisation


@pytest.mark.parametrize("levels", [1, 3, 300])
def test_qsgd_is_unbiased_and_takes_neighbouring_levels(levels: int):
    draws = 20_000
    decode = jax.vmap(lambda key: Qsgd(levels).decode(Qsgd(levels).encode(key, (), UPLOAD)[0]))
    sent = decode(jax.random.split(jax.random.key(1), draws))
    for name, v in UPLOAD.items():
        unit = float(jnp.sqrt((v * v).sum())) / levels
        error = np.abs(np.asarray(sent[name]) - np.asarray(v))
        assert error.max() <= unit * 1.0001
        mean = np.asarray(sent[name], np.float64).mean(0)
        np.testing.assert_allclose(mean, v, rtol=0, atol=4.5 * unit / 2 / np.sqrt(draws) + 1e-5)


def test_qsgd_variance_is_the_one_of_rounding_at_random():
    """Var Q(v)_k = (‖v‖/s)² r(1−r), with r what is left of s|v_k|/‖v‖ above its floor."""
    v, levels = np.array([3.0, -4.0, 1.0]), 3
    decode = jax.vmap(lambda key: Qsgd(levels).decode(Qsgd(levels).encode(key, (), jnp.asarray(v))[0]))
    sent = np.asarray(decode(jax.random.split(jax.random.key(2), 20_000)), np.float64)
    unit = np.linalg.norm(v) / levels
    rest = np.abs(v) / unit % 1
    np.testing.assert_allclose(sent.var(0), unit**2 * rest * (1 - rest), rtol=0.05)
    assert abs(np.corrcoef(sent.T)[0, 1]) < 0.03


def test_qsgd_payload_is_small_whole_numbers():
    for levels, dtype, size in ((127, jnp.int8, 1), (128, jnp.int16, 2), (32767, jnp.int16, 2)):
        payload = through(Qsgd(levels), UPLOAD)[1]
        assert payload["a"].level.dtype == dtype
        assert nbytes(payload) == size * (6 + 1 + 4) + 3 * 4
        assert int(jnp.abs(payload["b"].level)) == levels
    with pytest.raises(ValueError, match="16 bits"):
        Qsgd(32768)


def test_qsgd_keeps_zero_and_the_sign():
    sent = through(Qsgd(5), UPLOAD)[0]
    assert jax.tree.structure(sent) == jax.tree.structure(UPLOAD)
    np.testing.assert_array_equal(sent["c"], 0)
    assert np.all(np.asarray(sent["a"]) * np.asarray(UPLOAD["a"]) >= 0)
    assert float(sent["b"]) == -2.5


def test_arrays_of_an_upload_are_rounded_independently():
    v = jnp.linspace(0.1, 1.0, 50)
    sent = through(Qsgd(5), {"a": v, "b": v})[0]
    assert bool(jnp.any(sent["a"] != sent["b"]))


# ---------------------------------------------------------------- sparsification


def test_top_k_sends_the_largest_and_remembers_the_rest():
    sent, payload, left = through(TopK(0.34), UPLOAD)
    np.testing.assert_array_equal(sent["a"], [[0, -4, 0], [0, 12, 0]])
    np.testing.assert_array_equal(left["a"], UPLOAD["a"] - sent["a"])
    assert float(sent["b"]) == -2.5
    assert payload["a"].places.dtype == jnp.uint8
    assert nbytes(payload) == (2 + 1 + 1) * 4 + 3 * 1
    later = through(TopK(0.34), jax.tree.map(jnp.zeros_like, UPLOAD), state=left)
    np.testing.assert_allclose(later[0]["a"], [[3, 0, 0], [0.1, 0, 0]])
    assert through(TopK(0.34, error_feedback=False), UPLOAD)[2] == ()


def test_random_k_sends_every_place_equally_often_and_unscaled():
    v = jnp.arange(1.0, 11.0)
    transform = RandomK(0.3)
    sent = jax.vmap(lambda key: transform.decode(transform.encode(key, jnp.zeros(10), v)[0]))(
        jax.random.split(jax.random.key(3), 8000)
    )
    picked = np.asarray(sent) != 0
    assert set(picked.sum(1)) == {3}
    np.testing.assert_allclose(picked.mean(0), 0.3, atol=4.5 * np.sqrt(0.3 * 0.7 / 8000))
    np.testing.assert_array_equal(np.asarray(sent)[picked], np.broadcast_to(v, picked.shape)[picked])


@pytest.mark.parametrize(
    ("size", "kept"), [(1, 1), (10, 10), (1000, 50), (1000, 500), (1000, 1), (997, 13), (5, 2), (64, 64), (100, 34)]
)
def test_places_are_packed_and_found_again(size: int, kept: int):
    """In at most 2 + log₂(size/kept) bits each, or as a bitmap."""
    places = np.sort(np.random.default_rng(0).choice(size, kept, replace=False)).astype(np.int32)
    code = pack_places(jnp.asarray(places), size)
    assert code.dtype == jnp.uint8
    assert code.size == packed_bytes(size, kept) <= -(-min(size, kept * (3 + np.log2(size / kept))) // 8)
    np.testing.assert_array_equal(unpack_places(np.asarray(code), size, kept), places)


def test_the_model_as_a_whole_is_one_vector():
    sent, payload, _ = through(TopK(2 / 11, over="model"), UPLOAD)
    np.testing.assert_array_equal(sent["a"], [[0, -4, 0], [0, 12, 0]])
    assert float(sent["b"]) == 0
    assert nbytes(payload) == 2 * 4 + packed_bytes(11, 2)


@pytest.mark.parametrize(("bits", "size", "error"), [(16, 2, 2**-8), (8, 1, 0.5)])
def test_values_travel_in_fewer_bits(bits: Any, size: int, error: float):
    """No value moves by more than a share of itself, however small all of them are; the largest hardly moves."""
    rng = np.random.default_rng(0)
    for scale in (1e-20, 1.0, 1e8):
        v = jnp.asarray(scale * rng.normal(size=50), jnp.float32)
        sent, payload, _ = through(TopK(1.0, bits=bits, error_feedback=False), v)
        assert nbytes(payload) == 50 * size + (4 if bits == 8 else 0) + packed_bytes(50, 50)
        moved = np.abs(np.asarray(sent) - np.asarray(v))
        assert np.all(moved <= (1 if bits == 8 else error) * np.abs(v))
        assert moved[np.argmax(np.abs(v))] <= 2**-8 * np.abs(v).max()
    np.testing.assert_array_equal(through(TopK(1.0, bits=bits), jnp.zeros(4))[0], 0)


def test_random_places_travel_as_a_key_of_8_bytes():
    sent, payload, _ = through(RandomK(0.34), UPLOAD)
    assert nbytes(payload) == (2 + 1 + 1) * 4 + 3 * 8
    np.testing.assert_array_equal(RandomK(0.34).decode(jax.tree.map(np.asarray, payload))["a"], sent["a"])


def test_shrinking_brings_qsgd_no_farther_away_than_nothing():
    v = jnp.asarray(np.random.default_rng(0).normal(size=400))
    for seed in range(5):
        plain, shrunk = (through(Qsgd(3, shrink=s), v, seed)[0] for s in (False, True))
        cosine = float((plain * v).sum() / jnp.sqrt((plain**2).sum() * (v**2).sum()))
        assert float(((plain - v) ** 2).sum()) > float((v**2).sum())
        np.testing.assert_allclose(((shrunk - v) ** 2).sum(), (1 - cosine**2) * (v**2).sum(), rtol=1e-4)


@pytest.mark.parametrize("same", [True, False])
def test_all_clients_of_a_round_send_the_same_places_where_asked(same: bool):
    """Seen by what reaches φ in one round: S clients fill k places, or more."""
    transform = RandomK(1 / D, error_feedback=False, same_places=same)
    history = run(losac.algorithms.losac_lean(ETA, K, M, uploads=(transform,)), 1, N)
    assert (np.count_nonzero(history.state.server.phi) == 1) == same


@pytest.mark.parametrize("transform", [TopK(0.3), RandomK(0.3)], ids=str)
def test_error_feedback_loses_nothing(transform: Any):
    """All that was sent and what is still kept add up to all that was to be sent."""
    rng, state, total, due = np.random.default_rng(0), None, 0, 0
    for r in range(30):
        u = jnp.asarray(rng.normal(size=10), jnp.float32)
        sent, _, state = through(transform, u, seed=r, state=state)
        total, due = total + sent, due + u
    np.testing.assert_allclose(total + state, due, atol=1e-5)
    assert float(jnp.abs(state).max()) > 0


@pytest.mark.parametrize("fraction", [0.0, 1.5])
def test_fractions_are_checked(fraction: float):
    with pytest.raises(ValueError, match=r"fraction=.* \(0, 1\]"):
        TopK(fraction)


def test_everything_kept_is_nothing_changed():
    plain, sparse = (run(fedavg(ETA, K, uploads=u), 3).params for u in ((), (TopK(1.0),)))
    np.testing.assert_allclose(sparse, plain, rtol=1e-14)


# ---------------------------------------------------------------- in algorithms

LOSSY = [Qsgd(3), TopK(0.34, error_feedback=False), RandomK(0.5, error_feedback=False)]


@pytest.mark.parametrize("transform", LOSSY, ids=str)
def test_scaffold_keeps_its_invariant(transform: Any):
    history = run(scaffold(ETA, K, M, uploads=(transform,)), 20)
    c_i, c = np.asarray(history.state.store.rows.state), np.asarray(history.state.server.c)
    assert np.abs(c).max() > 0.01
    np.testing.assert_allclose(c_i.sum(0), N * c, rtol=0, atol=1e-11 * np.abs(c_i).max())


@pytest.mark.parametrize(
    ("transform", "scaling"), [(LOSSY[0], "paper"), (LOSSY[0], "exact"), (LOSSY[2], "exact")], ids=str
)
def test_losac_keeps_its_invariant(transform: Any, scaling: str):
    eta = ETA if scaling == "exact" else ETA * S / (N * M)
    history = run(losac.algorithms.losac(eta, K, M, scaling=scaling, uploads=(transform,)), 20)
    y, phi = np.asarray(history.state.store.table), np.asarray(history.state.server.phi)
    kappa = N / S if scaling == "paper" else 1 / (N * M)
    assert np.abs(phi).max() > 0.01
    np.testing.assert_allclose(phi, kappa * y.sum((0, 1)), rtol=0, atol=1e-11 * kappa * np.abs(y).max())


def test_fedadmm_and_vrl_sgd_keep_their_invariants():
    admm = run(Fedadmm(ETA, K, rho=2.0, variant="exact", uploads=(Qsgd(3),)), 20)
    clients = admm.state.store.rows.state
    due = (np.asarray(clients.x) + np.asarray(clients.pi) / 2).mean(0)
    np.testing.assert_allclose(admm.state.server.mean, due, rtol=1e-11)
    vrl = run(VrlSgd(ETA, K, uploads=(Qsgd(3),)), 20, N)
    memory = vrl.state.store.rows.state
    delta = (vrl.params - np.asarray(memory.q)) / np.asarray(memory.length)[:, None]
    np.testing.assert_allclose(delta.sum(0), 0, atol=1e-10)


@pytest.mark.parametrize(
    "algorithm",
    [
        losac.algorithms.losac(ETA, K, M, scaling="exact", uploads=(Qsgd(8),)),
        losac.algorithms.losac(ETA / 2, K, M, scaling="exact", uploads=(TopK(0.34, error_feedback=False),)),
        scaffold(ETA, K, uploads=(TopK(0.34, error_feedback=False),)),
        Fedadmm(ETA, K, rho=2.0, variant="exact", uploads=(Qsgd(8),)),
    ],
    ids=str,
)
def test_control_variates_absorb_the_loss(algorithm: Any):
    """What they record is the feedback: sampled clients and lossy uploads, and still the exact optimum."""
    assert np.abs(run(algorithm, 6000).params - PROBLEM.optimum).max() <= 1e-9


CONTRACTIONS = [
    TopK(0.17, error_feedback=False),
    TopK(0.34, error_feedback=False, over="model", bits=8),
    TopK(0.34, error_feedback=False, bits=16),
    RandomK(0.34, error_feedback=False),
    RandomK(0.34, error_feedback=False, same_places=True, bits=8),
    Qsgd(1, shrink=True),
    Qsgd(3, shrink=True),
    Qsgd(7),
]


@pytest.mark.parametrize("transform", CONTRACTIONS, ids=str)
def test_losac_lean_reaches_the_optimum_through_any_of_them(transform: Any):
    """With sampled clients and random blocks, where SCAFFOLD and FedAvg with the same transform stop short."""

    def distance(algorithm: Any) -> float:
        return float(np.abs(run(algorithm, 6000).params - PROBLEM.optimum).max())

    assert distance(losac.algorithms.losac_lean(ETA, K, M, uploads=(transform,))) <= 1e-9
    for rival in (scaffold(ETA / 2, K, M, uploads=(transform,)), fedavg(ETA, K, M, uploads=(transform,))):
        assert distance(rival) >= 1e-3


def test_losac_lean_keeps_its_invariant():
    """φ is the mean of the tables, whatever is left out; T < M and T > M store the table differently."""
    for steps in (1, K, 2 * M):
        transform = TopK(0.34, error_feedback=False, bits=8)
        history = run(losac.algorithms.losac_lean(ETA, steps, M, uploads=(transform,)), 20)
        y, phi = np.asarray(history.state.store.table), np.asarray(history.state.server.phi)
        assert np.abs(phi).max() > 0.01
        np.testing.assert_allclose(phi, y.mean((0, 1)), rtol=0, atol=1e-12 * np.abs(y).max())


def test_fedavg_needs_error_feedback():
    """One full local step: FedAvg has no bias of its own, and top-k brings one unless it is fed back."""
    far, near = (
        np.abs(run(fedavg(ETA / 5, 1, uploads=(TopK(0.17, error_feedback=f),)), 4000, N).params - PROBLEM.optimum).max()
        for f in (False, True)
    )
    assert near < far / 4


def test_fedpaq_is_fedavg_where_nothing_is_lost():
    """A single parameter is ± its norm, which every number of levels holds."""
    data = losac.data.quadratic(clients=N, samples=8, dim=1, seed=1)
    task = losac.regression(losac.models.linear(1), data)
    one, other = (
        losac.simulate(task, a, rounds=8, clients_per_round=S, eval_every=8, dtype="float64").params
        for a in (Fedpaq(0.01, K, 2, levels=3), fedavg(0.01, K, 2))
    )
    assert np.abs(one).max() > 1e-3
    np.testing.assert_allclose(one, other, rtol=1e-14)


def test_fedpaq_is_fedavg_with_qsgd_and_approaches_it_with_its_levels():
    plain, coarse, fine, same = (
        run(a, 5).params
        for a in (
            fedavg(ETA, K),
            Fedpaq(ETA, K, levels=4),
            Fedpaq(ETA, K, levels=32767),
            fedavg(ETA, K, uploads=(Qsgd(4),)),
        )
    )
    np.testing.assert_array_equal(coarse, same)
    assert np.abs(coarse - plain).max() > 1e-3
    np.testing.assert_allclose(fine, plain, rtol=0, atol=1e-4 * np.abs(plain).max())


@pytest.mark.parametrize(
    ("algorithm", "bytes_each"),
    [
        (Fedpaq(ETA, K), D + 8),
        (Fedpaq(ETA, K, levels=500), 2 * D + 8),
        (Fedpaq(ETA, K, uploads=(TopK(0.5),)), 3 * 8 + 1),
        (scaffold(ETA, K, uploads=(TopK(0.34, error_feedback=False),)), 2 * (2 * 8 + 1)),
    ],
    ids=str,
)
def test_bytes_are_counted_after_compression(algorithm: Any, bytes_each: int):
    assert run(algorithm, 3).bytes_up[-1] == 3 * S * bytes_each


def test_error_feedback_is_refused_where_the_method_records_what_was_sent():
    for method in (scaffold, losac.algorithms.losac, losac.algorithms.feddyn):
        with pytest.raises(ValueError, match="would send it twice"):
            method(ETA, K, 2, uploads=(TopK(0.5),))
