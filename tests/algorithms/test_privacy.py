"""Private uploads: what is clipped, what is added, which laws survive it, and who could know the noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from catalogue import CATALOGUE, FULL, ONE_EACH, REFUSED, Regime
from losac._random import chance_uniform as lot
from losac.algorithms.contract import Federation, Received
from losac.algorithms.feddyn import Feddyn
from losac.algorithms.losac import Losac, Pair
from losac.algorithms.privacy import Gaussian
from losac.algorithms.scaffold import Scaffold
from losac.federation.book import Rules
from losac.federation.compiled import CompiledWorker
from losac.federation.drive import Driver
from losac.federation.eager import EagerWorker
from losac.federation.inprocess import InProcess
from losac.federation.numpy import numpy_worker
from losac.federation.protocol import NOTHING, Client, Order, make_token
from losac.federation.setting import Setting
from losac.federation.vault import Memory
from losac.federation.work import Assignment, Message
from losac.prox import zero
from losac.simulation import Layout
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.options import SimulationOptions
from losac.simulation.program.uploads import round_uploads
from losac.simulation.sampling import Uniform, draw_clients, make_sampler
from losac.trees import map_trees
from problems import quadratic

A = losac.algorithms
N, S, K, M, D = 6, 2, 3, 4, 40
PROBLEM = quadratic(clients=N, samples=D, dim=D)
ETA = 0.1 / PROBLEM.curvature
NARROW = quadratic(clients=4, samples=8)


def norm(tree: Any) -> float:
    return float(np.sqrt(sum((np.asarray(a, float) ** 2).sum() for a in jax.tree.leaves(tree))))


def sent(transform: Gaussian, upload: Any, seed: int = 0) -> Any:
    return transform.decode(transform.encode(jax.random.key(seed), (), upload)[0])


# ---------------------------------------------------------------- the mechanism

LONG = Pair({"w": jnp.linspace(-3, 5, 12).reshape(3, 4), "b": jnp.ones(3)}, {"w": jnp.ones((3, 4)), "b": jnp.ones(3)})


def test_parts_are_clipped_to_their_own_bounds():
    found = sent(Gaussian((2.0, 0.01)), LONG)
    for part, clipped, bound in zip(LONG, found, (2.0, 0.01)):
        assert norm(clipped) == pytest.approx(bound, rel=1e-6)
        for a, b in zip(jax.tree.leaves(clipped), jax.tree.leaves(part)):
            np.testing.assert_allclose(a, b * (bound / norm(part)), rtol=1e-6)


def test_what_is_within_the_bounds_stays_as_it_is():
    found = sent(Gaussian((norm(LONG.x) * 1.0001, 10.0)), LONG)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(LONG)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_an_upload_without_a_finite_norm_is_sent_as_zero(bad: float):
    assert norm(sent(Gaussian(1.0), {"w": jnp.array([1.0, bad], jnp.float32)})) == 0


@pytest.mark.parametrize("noise_at", ["client", "server"])
def test_the_noise_has_the_stated_standard_deviation_in_every_part(noise_at: str):
    """z√K C_k with K parts; a mechanism of one part has zC, however many arrays it holds."""
    size = 40_000
    nothing = {"w": jnp.zeros((200, 200)), "b": jnp.zeros(size)}

    def noise(transform: Gaussian, upload: Any) -> Any:
        if noise_at == "server":
            assert norm(sent(transform, upload)) == 0, "the clients only clip"
            return transform.summed(jax.random.key(1), upload)
        assert norm(transform.summed(jax.random.key(1), upload)) == 0
        return sent(transform, upload)

    pair = noise(Gaussian((3.0, 0.1), 0.5, noise_at=noise_at), Pair(nothing, nothing))
    whole = noise(Gaussian(3.0, 0.5, noise_at=noise_at), nothing)
    slack = 5 / np.sqrt(2 * size)
    for tree, due in ((pair.x, 0.5 * 2**0.5 * 3), (pair.phi, 0.5 * 2**0.5 * 0.1), (whole, 1.5)):
        for leaf in jax.tree.leaves(tree):
            assert float(leaf.std()) == pytest.approx(due, rel=slack)
            assert abs(float(leaf.mean())) < 5 * due / np.sqrt(size)
    flat = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(pair)]
    assert np.abs(np.corrcoef(flat) - np.eye(len(flat))).max() < 0.03, "arrays share no noise"


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match=r"3 bounds, but the upload has 2 parts \(x and phi\)"):
        sent(Gaussian((1.0, 1.0, 1.0)), LONG)
    with pytest.raises(ValueError, match=r"2 bounds, but the upload has 1 parts"):
        sent(Gaussian((1.0, 1.0)), LONG.x)
    for wrong in ({"clip": 0.0}, {"clip": (1.0, -1.0)}, {"clip": "1"}, {"other_clip": 0.0}, {"noise_at": "home"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Gaussian(**{"clip": 1.0} | wrong)
    with pytest.raises(ValueError, match="the same in all rounds"):
        Gaussian(1.0, lambda r: 1.0)
    with pytest.raises(ValueError, match="say other_clip"):
        A.mime_svrg(0.1, uploads=(Gaussian((1.0,)),))
    noise = Gaussian(1.0, 1.0, noise_at="server")
    with pytest.raises(ValueError, match="last of the uploads"):
        A.fedavg(0.1, uploads=(noise, A.qsgd(3)))
    with pytest.raises(ValueError, match="weighting='loss'"):
        A.fedavg(0.1, weighting="average", uploads=(noise,))
    for rows in (A.fedvarp, A.mifa):
        with pytest.raises(ValueError, match="noise_at='client'"):
            rows(0.1, uploads=(noise,))


def test_a_model_with_a_state_is_refused():
    """Batch statistics travel beside the upload, and nothing protects them."""
    method = A.fedavg(0.1, uploads=(Gaussian(1.0),))
    task, state = NARROW.task, {"mean": np.zeros(2)}
    stateful = losac.Task(
        lambda params, batch, state: (params.sum(), state), lambda key: jnp.zeros(4), task.data, state=state
    )
    with pytest.raises(ValueError, match="without protection"):
        losac.simulate(stateful, method, rounds=1)
    with pytest.raises(ValueError, match="without protection"):
        CompiledWorker(replace(stateful, data=task.data.subset([0])), method)
    with pytest.raises(ValueError, match="without protection"):
        EagerWorker(method, lambda p, r: p, 3, model_state=state)
    with pytest.raises(ValueError, match="without protection"):
        Setting(method, Rules(clients=2, clients_per_round=2), np.zeros(2), state, zero(), Uniform(2, 2))


def test_bounds_and_noise_are_swept_in_one_program():
    made = [(Gaussian((c, 2 * c), z),) for c in (0.1, 1.0) for z in (0.0, 0.3)]
    method = A.scaffold(1e-2, 2)
    assert len({jax.tree.structure(method.replace(uploads=u)) for u in made}) == 1
    swept = losac.sweep(NARROW.task, method, {"uploads": made}, rounds=4, eval_every=4)
    for history, uploads in zip(swept.members, made):
        alone = losac.simulate(NARROW.task, method.replace(uploads=uploads), rounds=4, eval_every=4)
        np.testing.assert_allclose(history.params, alone.params, rtol=1e-4, atol=1e-6)
    assert len({h.final("loss") for h in swept.members}) == 4


# ---------------------------------------------------------------- what the server's sums are worth


def remainder(algorithm: Any, rounds: int) -> tuple[float, float]:
    """What is left of the server's sum without what the clients hold, and what they hold: root mean squares."""
    history = losac.simulate(
        PROBLEM.task, algorithm, rounds=rounds, clients_per_round=S, dtype="float64", eval_every=50, keep_state=True
    )  # evaluated at one rhythm whatever its length, so that the shorter and the longer run are one program
    here, store = Federation(N, S, lambda x, step: x), history.state.store
    each = (map_trees(lambda a, i=i: np.asarray(a[i]), (store.rows.state, store.table)) for i in range(N))
    held = np.array([algorithm.holding(here, np.zeros(D), *kept) for kept in each])
    left = algorithm.shift(here, history.state.server, -held.sum(0))[1]
    return float(np.sqrt(np.mean(np.asarray(left) ** 2))), float(np.sqrt(np.mean(held**2)))


NOISE = Gaussian(1e3, 1e-6)


class ForgetfulLosac(Losac):
    """LoSAC whose clients remember what they computed instead of what they sent."""

    def record(self, here: Any, upload: Any, sent: Any, client: Any) -> Any:
        return client, ()


class ForgetfulScaffold(Scaffold):
    def record(self, here: Any, upload: Any, sent: Any, client: Any) -> Any:
        return client, ()


def summing(make: Any, **settings: Any) -> Any:
    if issubclass(make, Losac):
        return make(ETA, K, M, scaling="exact", **settings)
    return make(ETA, K, alpha=PROBLEM.curvature, **settings) if make is Feddyn else make(ETA, K, **settings)


@pytest.mark.parametrize(
    "algorithm",
    [
        A.losac(ETA * S / (N * M), K, M, uploads=(Gaussian((0.3, 30.0), 0.05),)),
        summing(Losac, uploads=(Gaussian((0.3, 1.0), 0.05),)),
        summing(Scaffold, uploads=(Gaussian((0.3, 10.0), 0.05),)),
        summing(Feddyn, uploads=(Gaussian(0.3, 0.05),)),
    ],
    ids=["losac, paper", "losac, exact", "scaffold", "feddyn"],
)
def test_with_noise_at_the_clients_the_sums_stay_right(algorithm: Any):
    """φ = κ Σ y, Σ c_i = N c: the clients record what was sent."""
    left, held = remainder(algorithm, 200)
    assert held > 1e-3
    assert left < 1e-11 * held


@pytest.mark.parametrize(
    "algorithm",
    [
        summing(ForgetfulLosac, uploads=(NOISE,)),
        summing(ForgetfulScaffold, uploads=(NOISE,)),
        *(summing(make, uploads=(NOISE.replace(noise_at="server"),)) for make in (Losac, Scaffold, Feddyn)),
    ],
    ids=["losac that forgets", "scaffold that forgets", "losac, server", "scaffold, server", "feddyn, server"],
)
def test_noise_that_no_client_records_lets_the_sums_walk_away(algorithm: Any):
    """As √R: from 50 rounds to 800 by a factor of 4."""
    short, long = remainder(algorithm, 50)[0], remainder(algorithm, 800)[0]
    assert short > 1e-6
    assert 2.8 < long / short < 5.6


def test_every_phase_is_protected():
    """MimeSVRG's first phase sends ∇f_i(x) as it is; under a private transform it is clipped and noisy too."""
    first, own = uploads_of(A.mime_svrg(ETA, K, uploads=(Gaussian(1e-3, other_clip=0.5),)))
    for i in range(N):
        assert norm(first[i]) == pytest.approx(0.5, rel=1e-6)
        assert norm(own[i]) == pytest.approx(1e-3, rel=1e-6)
    noisy, _ = uploads_of(A.mime_svrg(ETA, K, uploads=(Gaussian(1e-3, 2.0, other_clip=0.5),)))
    assert (noisy - first).std() == pytest.approx(1.0, rel=5 / np.sqrt(2 * N * D))
    plain, _ = uploads_of(A.mime_svrg(ETA, K, uploads=(A.qsgd(1),)))
    x, y = PROBLEM.data.client(0)
    np.testing.assert_allclose(plain[0], -x.T @ y, rtol=1e-10, err_msg="compression acts on the method's own phase")


@pytest.mark.parametrize("noise_at", ["client", "server"])
def test_no_phase_of_any_algorithm_escapes_the_noise(noise_at: str):
    """The curvature that an automatic step measures travelled as it was, and the accountant counted it as private."""
    noise = Gaussian(1.0, 1.0, noise_at=noise_at, other_clip=1.0)
    checked = set()
    for entry in CATALOGUE:
        plain = entry.make(1.0, FULL)
        kinds = [plain, *(plain.replace(**{name: "auto"}) for name in plain.worded())]
        for algorithm in kinds:
            try:
                private = algorithm.replace(uploads=(noise,))
            except ValueError:
                continue
            for phase in private.phases():
                found = [each for each in private.transforms_of(phase) if isinstance(each, Gaussian)]
                assert len(found) == 1, f"{private} sends what {type(phase).__name__} measures as it is"
            checked.add((entry.name, len(kinds)))
    assert {("losac_lean", 2), ("mime_svrg", 1), ("scaffold", 1)} <= checked


def uploads_of(algorithm: Any) -> tuple[Any, ...]:
    options = SimulationOptions.of(
        PROBLEM.task, rounds=1, clients_per_round=N, dtype="float64", layout=Layout(1, 1), gradients="formed"
    )
    with precision(options.dtype):
        engine = ResidentEngine(PROBLEM.task, algorithm, options)
        return map_trees(np.asarray, round_uploads(engine.shape, engine.problem, engine.state, np.arange(N)))


# ---------------------------------------------------------------- secure aggregation

POINT = 2.0**32
"""Fixed-point numbers modulo 2⁶⁴ with so many parts in one."""


def securely_summed(uploads: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sum [S, …] as secure aggregation does: each pair of clients shares a mask, which one adds and one subtracts."""
    fixed = np.rint(uploads * POINT).astype(np.int64).astype(np.uint64)
    masked = fixed.copy()
    for i in range(len(fixed)):
        for j in range(i):
            mask = rng.integers(0, 2**64, fixed.shape[1:], np.uint64)
            masked[i] += mask
            masked[j] -= mask
    assert np.all(masked != fixed), "no single number travels"
    return masked.sum(0, dtype=np.uint64).astype(np.int64) / POINT


@pytest.mark.parametrize("entry", ONE_EACH, ids=lambda entry: entry.name)
def test_the_server_needs_nothing_but_the_sum(entry: Any):
    """The masked uploads' sum and their number make the simulator's next server, with noise at the clients."""
    sampled = 4 if entry.random_blocks == REFUSED else 3
    algorithm = entry.make(NARROW.curvature, Regime("", sampled, 2))
    if entry.name == "tamuna":
        with pytest.raises(ValueError, match="its own sparse uplink"):
            algorithm.replace(uploads=(Gaussian(1.0),))
    else:
        algorithm = algorithm.replace(uploads=(Gaussian(1.0, 0.1),))
    if algorithm.server_rows:
        assert entry.name in ("fedvarp", "mifa", "tamuna"), "the server keeps something of every single client"
    options = SimulationOptions.of(
        NARROW.task, rounds=2, clients_per_round=sampled, dtype="float64", layout=Layout(1, 1), gradients="formed"
    )
    sampler = make_sampler("uniform", 4, sampled, algorithm.partial)
    with precision(options.dtype):
        engine = ResidentEngine(NARROW.task, algorithm, options)
        stops = engine.run(sampler, [1, 2], True, lambda: None)
        next(stops)
        (ids,), _ = draw_clients(sampler, 0, 1, 1, 4, sampled)
        server = jax.tree.map(jnp.array, engine.state.server)
        found = round_uploads(engine.shape, engine.problem, engine.state, ids)
        next(stops)
        if algorithm.server_rows:
            return
        now, here = algorithm.at(1), Federation(4, sampled, zero().prox)
        key, rng = jax.random.fold_in(jax.random.key(0), 1), np.random.default_rng(0)
        for place, (phase, uploads) in enumerate(zip(now.phases(), found)):
            if phase.chance is not None and not lot(jax.random.fold_in(key, place)) < phase.chance:
                continue
            total = map_trees(lambda a: jnp.asarray(securely_summed(np.asarray(a), rng)), uploads)
            server = phase.update(here, server, Received(total, jnp.asarray(float(len(jax.tree.leaves(uploads)[0])))))
        for a, b in zip(jax.tree.leaves(server), jax.tree.leaves(engine.state.server)):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7 * max(1, float(np.abs(b).max())))


# ---------------------------------------------------------------- in a federation


def numpy_client(algorithm: Any, i: int) -> Any:
    x, y = NARROW.data.client(i)
    return numpy_worker(algorithm, lambda w, x, y: x.T @ (x @ w - y) / len(x), x, y, params=np.zeros(4))


def compiled_client(algorithm: Any, i: int) -> Any:
    return CompiledWorker(replace(NARROW.task, data=NARROW.data.subset([i])), algorithm, "float64")


ASSIGNMENT = Assignment(seed=7, round=0, phase_index=0, client=1, slot=0, clients=4, sampled=2, weight=1.0)


def answer(worker: Any, place: int = 0) -> Any:
    algorithm = worker.algorithm
    message = Message(map_trees(np.asarray, algorithm.phases()[place].broadcast(algorithm.init(np.zeros(4)))))
    return worker.work(ASSIGNMENT._replace(phase_index=place), message, worker.start(np.zeros(4)))


@pytest.mark.parametrize("make", [numpy_client, compiled_client])
def test_the_server_cannot_know_the_noise_from_the_seed(make: Any):
    """The seed is the server's: two clients with the same order, data and seed send different noise."""
    method = A.scaffold(1e-3, 2)
    noisy = method.replace(uploads=(Gaussian((5.0, 50.0), 0.1),))
    plain, rounded = (answer(make(method.replace(uploads=u), 1)) for u in ((), (A.qsgd(3),)))
    one, other = (answer(make(noisy, 1)) for _ in range(2))
    for field in ("x", "c"):
        a, b, due = (getattr(result.upload.content, field) for result in (one, other, plain))
        assert np.all(a != b)
        assert np.all(a != due)
        assert np.abs(a - due).max() < 6 * 0.1 * 2**0.5 * (5.0 if field == "x" else 50.0)
    np.testing.assert_allclose(one.kept.state, one.upload.content.c, rtol=1e-12, err_msg="c_i is what was sent")
    again = answer(make(method.replace(uploads=(A.qsgd(3),)), 1))
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(rounded)):
        np.testing.assert_array_equal(a, b, err_msg="all else still follows from the seed")


@pytest.mark.parametrize("make", [numpy_client, compiled_client])
def test_other_phases_are_protected_in_a_federation_too(make: Any):
    clipped = A.mime_svrg(1e-3, 2, uploads=(Gaussian(0.5),))
    assert norm(answer(make(clipped, 1)).upload.content) == pytest.approx(0.5, rel=1e-6)
    noisy = make(A.mime_svrg(1e-3, 2, uploads=(Gaussian(0.5, 1.0),)), 1)
    assert np.all(answer(noisy).upload.content != answer(noisy).upload.content)


def test_a_repeated_order_gets_the_same_noise():
    """A second draw for the same upload would halve the noise's variance for whoever asks twice."""
    worker = numpy_client(A.scaffold(1e-3, 2, uploads=(Gaussian(5.0, 1.0),)), 1)
    message = Message(map_trees(np.asarray, worker.algorithm.init(np.zeros(4))))
    order = Order("train", make_token("r", 0, 1), NOTHING, ASSIGNMENT, message, start=np.zeros(4))
    vault = Memory()
    first, again, restarted = (Client(worker, vault).answer(order) for _ in range(3))
    anew = Client(worker, Memory()).answer(order)
    for a, b, c, d in zip(*(jax.tree.leaves(reply.upload) for reply in (first, again, restarted, anew))):
        assert a.tobytes() == b.tobytes() == c.tobytes()
        assert a.tobytes() != d.tobytes()


def driver(algorithm: Any, **options: Any) -> Driver:
    rules = Rules(clients=4, clients_per_round=3, dtype="float64", **options)
    setting = Setting(algorithm, rules, np.zeros(4), (), zero(), Uniform(4, 3))
    members = {f"c{i}": Client(numpy_client(algorithm, i), Memory()) for i in range(4)}
    return Driver(setting, InProcess(members), setting.first_book("r"))


@pytest.mark.parametrize("method", [A.losac(1e-4, 2, 2), A.scaffold(1e-3, 2), A.mime_svrg(1e-3, 2)], ids=str)
def test_a_federation_keeps_its_sums_under_noise(method: Any):
    run = driver(method.replace(uploads=(Gaussian(5.0, 0.1),)))
    for _ in run.run(12):
        pass
    assert np.isfinite(run.setting.model(run.book)).all()
    assert run.invariant_error() < 1e-10


@pytest.mark.parametrize("recovery", ["ledger", "resync", "reset"])
def test_noise_survives_a_lost_disk(recovery: str, caplog: Any):
    """The noise is part of what was sent, and is taken back with it."""
    run = driver(A.scaffold(1e-3, 2, uploads=(Gaussian(5.0, 0.1),)), recovery=recovery)
    for measured in run.run(10, attempts=3):
        if measured.book.round == 5:
            run.transport.clients["c1"].vault = Memory()
    assert "no longer has the state" in caplog.text
    assert run.invariant_error() < 1e-10


def test_noise_at_the_server_of_a_federation_is_the_servers_secret():
    """With a small clip nothing but the server's noise differs between two runs of one seed."""
    models = []
    for uploads in ((Gaussian(5.0, 0.1, noise_at="server"),),) * 2 + ((Gaussian(5.0, noise_at="server"),),) * 2:
        run = driver(A.fedavg(1e-3, 2, uploads=uploads))
        for _ in run.run(3):
            pass
        models.append(run.setting.model(run.book))
    assert np.all(models[0] != models[1])
    np.testing.assert_array_equal(models[2], models[3])
    assert 0 < np.abs(models[0] - models[2]).max() < 6 * 3**0.5 * 0.1 * 5 / 3
