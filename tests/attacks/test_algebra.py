"""What a server sees is what the simulator computes, and which gradients that determines."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from itertools import pairwise

import jax
import numpy as np
import optax
import pytest

import losac
import losac.algorithms as A
from catalogue import FULL, ONE_EACH, REFUSED, SAMPLING, Entry
from losac._compat import enable_x64
from losac.attacks import (
    ATTACKS,
    Data,
    NotLinearError,
    relative_error,
    replay,
    row_gradient,
    run_unrolled,
    solve,
    system_of,
    true_gradients,
    visits_of,
    watch,
)
from losac.attacks.parts import ModelParts

ROUNDS, ETA = 4, 0.05


@pytest.fixture(autouse=True)
def double():
    """Everything here is claimed exactly, so it is computed in double precision."""
    with enable_x64(True):
        yield


@lru_cache
def softmax(clients=3, rows=8, features=3, **options):
    data = losac.data.load("logistic", clients, samples=rows, dim=features)
    return losac.classification(losac.models.softmax_regression(features, data.num_classes), data, test=None, **options)


def rows_of(task, client=0):
    x, y = task.data.client(client)
    return np.asarray(x, float), y


def seen_of(algorithm, task=None, rounds=ROUNDS, client=0, **options):
    (seen,) = watch(task or softmax(), algorithm, (client,), rounds=rounds, dtype="float64", **options)
    return seen


def apart(found, true):
    """The largest difference of two trees beside the largest entry of the second."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(true), strict=True))
    size = max(np.abs(b).max() for _, b in pairs)
    return max(np.abs(np.asarray(a) - np.asarray(b)).max() for a, b in pairs) / size


# What is watched is what moves the server.


@pytest.mark.parametrize("sampled", [None, 2])
@pytest.mark.parametrize("algorithm", [A.losac(ETA, 3, 2), A.losac(ETA, 3, 2, scaling="exact"), A.scaffold(ETA, 3, 2)])
def test_what_is_watched_is_what_moves_the_simulators_server(algorithm, sampled):
    """The server's state is what the clients of the next round receive, and their uploads lead from one to the next.

    The sums run over the clients in another order, so that they agree to rounding: 1e-10 of the largest parameter.
    """
    task, options = softmax(), {"clients_per_round": sampled, "seed": 3, "dtype": "float64"}
    everyone = watch(task, algorithm, range(3), rounds=ROUNDS, **options)
    run = losac.simulate(task, algorithm, rounds=ROUNDS - 1, eval_every=ROUNDS, keep_state=True, **options)
    before, after = (
        [one for seen in everyone for one in seen.exchanges if one.task.round == ROUNDS + back] for back in (-2, -1)
    )
    assert len(after) == (sampled or 3)
    for one in after:
        assert apart(one.message, run.state.server) < 1e-10
    moved = jax.tree.map(lambda *moves: sum(moves), *[one.upload[0] for one in before])
    share = 1 / 3 if algorithm.settings().get("scaling") == "paper" else 1 / len(before)
    step = jax.tree.map(lambda x, move: x + share * move, before[0].message[0], moved)
    assert apart(step, run.params) < 1e-10


def test_only_rounds_with_the_client_are_on_its_transcript():
    seen = seen_of(A.fedavg(ETA), rounds=12, clients_per_round=1)
    assert 0 < len(seen.exchanges) < 12
    first = seen.first_rounds(2)
    assert [one.task.round for one in first.exchanges] == [one.task.round for one in seen.exchanges[:2]]


# A replay with the true data is the client.


KEEP_STATE = ("losac", "scaffold", "feddyn", "mime_svrg", "tamuna", "fedlin", "ghbm")
"""Methods whose replay must follow what clients keep, or receive, between the rounds in which they take part."""


def nearly_uncompressed(algorithm):
    """A method that compresses its uploads, with as little of that as it can."""
    finest = {"levels": 32767, "ratio": 1}
    return algorithm.replace(**{name: value for name, value in finest.items() if hasattr(algorithm, name)})


@pytest.mark.parametrize(
    ("entry", "regime"),
    [*((entry, FULL) for entry in ONE_EACH), *((entry, SAMPLING) for entry in ONE_EACH if entry.name in KEEP_STATE)],
    ids=lambda value: value.name,
)
def test_a_replay_with_the_true_rows_sends_what_the_client_sent(entry: Entry, regime):
    if entry.expected(regime) == REFUSED:
        with pytest.raises(ValueError, match="needs every client in every round"):
            seen_of(entry.make(100.0, regime), softmax(10), clients_per_round=regime.sampled)
        return
    algorithm, task = nearly_uncompressed(entry.make(100.0, regime._replace(blocks=2))), softmax(10)
    seen = seen_of(algorithm, task, rounds=6, clients_per_round=regime.sampled)
    assert seen.exchanges
    sent = [one.upload for one in seen.exchanges]
    again = replay(
        seen, visits_of(seen), [one.message for one in seen.exchanges], seen.start,
        row_gradient(task.loss, *rows_of(task)), sent,
    )  # fmt: skip
    for found, true in zip(jax.tree.leaves(again), jax.tree.leaves(sent), strict=True):
        off = np.abs(true).sum() / algorithm.levels if hasattr(algorithm, "levels") else 1e-10  # rounded numbers
        np.testing.assert_allclose(found, true, rtol=0, atol=off)


# Which gradients are known exactly.


def last_of_each_round(unknowns):
    steps = {}
    for k, one in enumerate(unknowns):
        steps.setdefault(one.exchange, []).append((one.step, k))
    return {max(found)[1] for found in steps.values()}


def everything(unknowns):
    return set(range(len(unknowns)))


def nothing(unknowns):
    return set()


def full_gradients(unknowns):
    return {k for k, one in enumerate(unknowns) if len(one.rows) == 8 and one.broadcast}


KNOWN = [
    (A.dsgd(ETA), everything),
    (A.dsgd(ETA, blocks=4), everything),
    (A.fedavg(ETA, 1), everything),
    (A.fedavg(ETA, 1, 4), everything),
    (A.fedavg(ETA, 3), nothing),
    (A.mime_svrg(ETA, 1), everything),
    (A.mime_svrg(ETA, 5), full_gradients),
    (A.mime_svrg(ETA, 3, 4), full_gradients),
    (A.mime_lite(ETA, 3, 4), full_gradients),
    (A.scaffold(ETA, 1), everything),
    (A.scaffold(ETA, 3), nothing),
    (A.scaffold(ETA, 1, option=1), everything),
    (A.scaffold(ETA, 5, option=1), full_gradients),
    (A.losac(ETA, 1), everything),
    (A.losac(ETA, 2), everything),
    (A.losac(ETA, 5), last_of_each_round),
    (A.losac(ETA, 1, 4), everything),
    (A.losac(ETA, 2, 4), everything),
    (A.losac(ETA, 5, 4), nothing),
    (A.losac(ETA, 1, scaling="exact"), everything),
    (A.losac(ETA, 2, scaling="exact"), everything),
    (A.losac(ETA, 5, scaling="exact"), last_of_each_round),
    (A.losac(ETA, 2, 4, scaling="exact"), everything),
    (A.feddyn(ETA, 1), everything),
    (A.feddyn(ETA, 3), nothing),
    (A.fedadmm(ETA, 1), everything),
    (A.fedadmm(ETA, 3), nothing),
    (A.fedprox(ETA, 1), everything),
    (A.fedprox(ETA, 3), nothing),
    (A.fedcm(ETA, 1), everything),
    (A.fedcm(ETA, 3), nothing),
    (A.local_svrg(ETA, 1, refresh=1.0), everything),
    (A.fedexp(ETA, 1), everything),
]


@pytest.mark.parametrize(("algorithm", "known"), KNOWN, ids=lambda v: v.__name__ if callable(v) else str(v))
def test_which_gradients_the_messages_determine(algorithm, known):
    """What is said to be exact is the gradient that the client computed, at the model that is said.

    Solving with equations of relative error 1e-16 whose coefficients differ by 1/(η²T) or so loses some digits: 1e-10
    is four digits above what is seen (3e-14).
    """
    task, seen = softmax(), seen_of(algorithm)
    system = system_of(seen)
    estimates, parts = solve(system), ModelParts(seen.start)
    exact = np.array([one.exact for one in estimates])
    assert set(np.flatnonzero(exact)) == known([one.unknown for one in estimates])
    computed = true_gradients(seen, task.loss, *rows_of(task))
    told = [parts.flat(part) for one in seen.exchanges for part in parts.list(one.message)]
    for one in estimates:
        if not one.exact:
            assert 1e-3 < one.spread <= 1
            continue
        assert one.spread < 1e-6
        twins = [
            (relative_error(one.gradient, jax.tree.map(lambda g, q=query: np.asarray(g) / q.factor, gradient)), model)
            for query, model, gradient in computed
            if (query.rows, query.step) == (one.unknown.rows, one.unknown.step)
        ]
        error, model = min(twins, key=lambda twin: twin[0])
        assert error < 1e-10
        if exact[one.unknown.model[len(system.known) :] != 0].all():
            np.testing.assert_allclose(parts.flat(one.model), parts.flat(model), rtol=0, atol=1e-10)
        if one.unknown.broadcast:
            assert any(np.array_equal(parts.flat(one.model), each) for each in told)


def test_the_model_of_the_last_mean_gradient_losac_is_known_nearly():
    """With T = 5 the gradient is exact, but was taken after steps along four others that are not."""
    task, seen = softmax(), seen_of(A.losac(ETA, 5))
    last = next(one for one in solve(system_of(seen)) if one.exact)
    models = {query.step: model for query, model, _ in true_gradients(seen, task.loss, *rows_of(task))}
    assert 1e-4 < apart(last.model, models[last.unknown.step]) < 0.1


@pytest.mark.parametrize("scaling", ["paper", "exact"])
@pytest.mark.parametrize("blocks", [1, 4])
def test_all_that_a_losac_client_sends_adds_up_to_its_table(blocks, scaling):
    """Σ Δφ = Σ_j y_ij in the units of Δφ: at M = 1 the last gradient of the last round, at any T."""
    task, algorithm = softmax(), A.losac(ETA, 5, blocks, scaling=scaling)
    seen = seen_of(algorithm)
    total = jax.tree.map(lambda *deltas: sum(deltas), *[one.upload.phi for one in seen.exchanges])
    latest = {query.rows: gradient for query, _, gradient in true_gradients(seen, task.loss, *rows_of(task))}
    assert len(latest) == blocks
    table = jax.tree.map(lambda *entries: np.stack(entries), *latest.values())
    held = algorithm.holding(A.Federation(3, 3, None), seen.start, (), table)
    assert apart(total, held) < 1e-12


@pytest.mark.parametrize(
    "algorithm",
    [
        A.fedavg(ETA, 2, clip_norm=0.1),
        A.fedavg(ETA, 2, clip_norm=5000.0),
        A.fedavg(ETA, 2, local_optimizer=optax.adam),
        A.tamuna(ETA),
        A.tamuna(ETA, sparsity=2),
        A.delta_sgd(ETA, 5),
        A.fedsps(ETA),
        A.padamfed(1.0, 2),
        A.local_dog(1.0, 2),
    ],
    ids=str,
)
def test_methods_that_are_not_linear_are_refused(algorithm):
    with pytest.raises(NotLinearError, match=r"replay|no attack"):
        system_of(seen_of(algorithm))


def test_a_prox_is_not_linear():
    with pytest.raises(NotLinearError, match="add and scale"):
        system_of(seen_of(A.losac(ETA, 2), softmax(regularizer=losac.prox.l1(1e-4))))


def test_momentum_in_the_clients_is_linear():
    estimates = solve(system_of(seen_of(A.fedavg(ETA, 1, local_optimizer=lambda eta: optax.sgd(eta, momentum=0.9)))))
    assert all(one.exact for one in estimates)


def test_a_method_that_is_not_linear_can_be_matched_by_a_replay():
    """The error of the algebra points to the replay: it must work there."""
    task, seen = softmax(), seen_of(A.fedavg(ETA, 2, clip_norm=0.1), rounds=1)
    attack = dataclasses.replace(ATTACKS["dlg-adam"], labels="given", steps=200)
    found = run_unrolled(attack, task.loss, seen, rows_of(task)[1], Data((3,)))
    assert found.mismatch[0] < 1e-3


def test_equations_in_which_all_gradients_cancel_say_nothing():
    """MimeSVRG's second upload with one step on the full batch is −ηTc whatever the data."""
    system = system_of(seen_of(A.mime_svrg(ETA, 1)))
    silent = np.abs(system.coefficients[:, len(system.known) :]).max(axis=1) < 1e-15
    assert silent.tolist() == [False, True] * ROUNDS
    assert all(one.exact and one.spread < 1e-8 for one in solve(system))


def test_a_transcript_that_says_nothing_leaves_everything_open():
    (one,) = solve(system_of(seen_of(A.local_svrg(ETA, 1, refresh=1e-9), rounds=1)))
    assert (one.exact, one.spread) == (False, pytest.approx(1))
    assert not np.any(one.gradient[0]["w"])


@pytest.mark.parametrize("algorithm", [A.fedavg(ETA, 1), A.fedavg(ETA, 3), A.losac(ETA, 2)], ids=str)
def test_noise_leaves_more_open(algorithm):
    system = system_of(seen_of(algorithm))
    spreads = [np.array([one.spread for one in solve(system, noise)]) for noise in (0.0, 1e-3, 1e-1, 1e3)]
    for less, more in pairwise(spreads):
        assert np.all(less <= more + 1e-9)
    assert np.all(spreads[1] > spreads[0])
    np.testing.assert_allclose(spreads[-1], 1, atol=1e-2)


# Bad input.


@pytest.mark.parametrize("client", [-1, 3])
def test_an_unknown_client_is_refused(client):
    with pytest.raises(ValueError, match=f"client={client} does not exist; the clients are 0 to 2"):
        watch(softmax(), A.dsgd(ETA), (client,), rounds=1)


def test_a_client_that_was_never_asked_cannot_be_attacked():
    with pytest.raises(ValueError, match="took part in none of the rounds"):
        system_of(seen_of(A.dsgd(ETA)).first_rounds(0))


def test_more_blocks_than_rows_are_refused():
    with pytest.raises(ValueError, match="blocks=9"):
        watch(softmax(), A.fedavg(ETA, 1, 9), rounds=1)


def test_a_model_with_a_state_is_refused():
    task = softmax()

    def loss(params, batch, state):
        return task.loss(params, batch), state

    with pytest.raises(ValueError, match="without state, key"):
        watch(losac.Task(loss, task.params, task.data, state=np.zeros(1)), A.dsgd(ETA), rounds=1)
