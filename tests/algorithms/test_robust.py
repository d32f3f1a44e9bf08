"""What robust aggregation and lying clients promise: the laws of each rule and attack, and sums that stay right."""

from __future__ import annotations

import logging
from typing import Any

import jax
import numpy as np
import pytest

import losac
import losac.algorithms as A
from by_hand import Hand, quadratics
from catalogue import ONE_EACH, RANDOM_BLOCKS
from faults import World
from losac import _random
from losac._compat import enable_x64
from losac.algorithms.aggregation import accepted, aggregate, told
from losac.algorithms.contract import Algorithm, Federation, Local, Received
from losac.algorithms.losac import Pair
from losac.algorithms.walk import Step, walk
from losac.simulation import Layout, attackers
from losac.testing.problems import quadratic
from losac.trees import map_trees

N, F, DIM = 9, 2, 3
RULES = {
    "median": (A.coordinate_median(),),
    "trimmed": (A.trimmed_mean(F),),
    "geometric": (A.geometric_median(),),
    "krum": (A.krum(F),),
    "multi_krum": (A.multi_krum(F),),
    "clipping": (A.centred_clipping(),),
    "clipping from zero": (A.centred_clipping(start="zero"),),
    "mixing": (A.nearest_mixing(F), A.trimmed_mean(F)),
    "buckets": (A.bucketing(2), A.geometric_median()),
}
ALL = np.ones(N, bool)


@pytest.fixture(autouse=True)
def double():
    with enable_x64(True):
        yield


def vectors(seed: int = 0, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, DIM))


def result(stages: Any, v: np.ndarray, active: np.ndarray | None = None) -> np.ndarray:
    """The vector that a rule puts in the place of the mean."""
    active = np.ones(len(v), bool) if active is None else active
    return np.asarray(aggregate(stages, _random.any_key(), v, active, ()).total) / active.sum()


# --- laws of the rules


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_liars_below_the_breakdown_point_move_no_rule_far(rule: Any):
    """However far they go; and a rule does not depend on the order of the uploads, or on where the origin is."""
    v = vectors()
    honest = v[: N - F]
    spread = np.linalg.norm(honest - honest.mean(0), axis=1).max()
    for size in (1e3, 1e12):
        v[N - F :] = size
        assert np.linalg.norm(result(rule, v) - honest.mean(0)) < 4 * spread
    if not isinstance(rule[0], A.bucketing):
        np.testing.assert_allclose(result(rule, v[::-1]), result(rule, v), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_sees_only_the_uploads_that_are_there(rule: Any):
    """Places of clients that did not answer hold anything; equal uploads are all rules' common value."""
    there = np.arange(N + 3) < N
    padded = np.concatenate([vectors(), np.full((3, DIM), 1e9)])
    if not isinstance(rule[0], A.bucketing):  # its groups depend on the number of places
        np.testing.assert_allclose(result(rule, padded, there), result(rule, vectors()), rtol=1e-12)
    same = np.tile([1.0, -2.0, 3.0], (N, 1))
    np.testing.assert_allclose(result(rule, same), same[0], rtol=1e-12)


MEANS = {
    "no stage": (),
    "trimmed, f = 0": (A.trimmed_mean(0),),
    "multi-Krum, m = n": (A.multi_krum(0, chosen=N),),
    "geometric, ν = ∞": (A.geometric_median(1e9),),
    "clipping, τ = ∞": (A.centred_clipping(1e9),),
    "mixing, f = 0": (A.nearest_mixing(0), A.coordinate_median()),
    "one bucket": (A.bucketing(N), A.coordinate_median()),
    "buckets of one": (A.bucketing(1), A.trimmed_mean(0)),
}


@pytest.mark.parametrize("rule", MEANS.values(), ids=MEANS)
def test_where_a_rule_is_the_mean(rule: Any):
    np.testing.assert_allclose(result(rule, vectors()), vectors().mean(0), rtol=1e-7, atol=1e-12)


def test_closed_forms():
    v = vectors()
    np.testing.assert_allclose(result((A.coordinate_median(),), v), np.median(v, 0), rtol=1e-12)
    np.testing.assert_allclose(result((A.coordinate_median(),), v[:-1]), np.median(v[:-1], 0), rtol=1e-12)
    np.testing.assert_allclose(result((A.trimmed_mean(4),), v), np.median(v, 0), rtol=1e-12)
    np.testing.assert_allclose(result((A.trimmed_mean(F),), v), np.sort(v, 0)[F : N - F].mean(0), rtol=1e-12)
    apart = ((v[:, None] - v) ** 2).sum(2)
    scores = np.sort(apart, 1)[:, 1 : N - F - 1].sum(1)
    np.testing.assert_allclose(result((A.krum(F),), v), v[scores.argmin()], rtol=1e-12)
    np.testing.assert_allclose(result((A.multi_krum(F),), v), v[np.argsort(scores)[: N - F]].mean(0), rtol=1e-12)
    mixed = np.stack([v[np.argsort(row)[: N - F]].mean(0) for row in apart])
    np.testing.assert_allclose(result(RULES["mixing"], v), np.sort(mixed, 0)[F : N - F].mean(0), rtol=1e-12)
    z = result((A.geometric_median(1e-6),), v)
    pull = (v - z) / np.linalg.norm(v - z, axis=1)[:, None]
    assert np.linalg.norm(pull.sum(0)) < 1e-4, "where the unit vectors to all points add up to zero"
    for steps in (1, 4):
        moved = result((A.centred_clipping(0.1, steps),), v) - np.median(v, 0)
        assert np.linalg.norm(moved) <= steps * 0.1 + 1e-12
    clipped = v * np.minimum(1, 0.5 / np.linalg.norm(v, axis=1))[:, None]
    np.testing.assert_allclose(result((A.centred_clipping(0.5, 1, start="zero"),), v), clipped.mean(0), rtol=1e-12)


def test_a_fixed_number_of_weiszfeld_steps_from_the_mean_would_follow_one_liar():
    """Half of the weight is the breakdown point, which one far upload reaches in no number of our steps."""
    v = np.concatenate([np.zeros((N - 1, DIM)), np.full((1, DIM), 1e9)])
    assert np.abs(result((A.geometric_median(),), v)).max() < 1e-3


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_is_linear_in_each_entry_and_each_part_is_weighed_on_its_own(rule: Any):
    """What counts of a client is its share of its upload: from 0 to 1 where it records it."""
    uploads = Pair(vectors(0), 1e6 * vectors(1))
    found = aggregate(rule, _random.any_key(), uploads, ALL, ("phi",))
    each = map_trees(lambda a, u: a * u, found.shares, uploads)
    np.testing.assert_allclose(found.total.x, each.x.sum(0), rtol=1e-12)
    np.testing.assert_allclose(found.total.phi, each.phi.sum(0), rtol=1e-12)
    np.testing.assert_array_equal(np.clip(found.shares.phi, 0, 1), found.shares.phi)
    if not isinstance(rule[0], A.bucketing):
        np.testing.assert_allclose(found.total.x, N * result(rule, uploads.x), rtol=1e-12)
    share = map_trees(lambda a: a[3], told(found.shares, ("phi",)))
    used = accepted(map_trees(lambda a: a[3], uploads), share)
    np.testing.assert_allclose(used.phi, each.phi[3], rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: A.fedavg(0.1, aggregation=(A.bucketing(2),)), "an aggregator as the last"),
        (lambda: A.fedavg(0.1, aggregation=A.krum(1)), "must be a tuple"),
        (lambda: A.fedavg(0.1, aggregation=(A.krum(1), A.krum(1))), "two aggregators"),
        (lambda: A.fedavg(0.1, aggregation=(A.trimmed_mean(1.5),)), "whole number of at least 0"),
        (lambda: A.fedvarp(0.1, aggregation=(A.krum(1),)), "reads every upload by itself"),
        (lambda: A.fedavg(0.1, weighting="average", aggregation=(A.krum(1),)), "outvotes"),
        (
            lambda: A.fedavg(0.1, uploads=(A.gaussian(1.0, noise_at="server"),), aggregation=(A.krum(1),)),
            "right for a plain sum",
        ),
        (lambda: run(A.fedavg(0.1, aggregation=(A.trimmed_mean(2),))), "needs more than 4 uploads, and 4 come"),
        (lambda: run(A.fedavg(0.1, aggregation=(A.krum(1),))), "needs at least 2·1 \\+ 3 = 5 uploads"),
        (lambda: run(A.fedavg(0.1, aggregation=(A.bucketing(2), A.trimmed_mean(1)))), "and 2 come"),
        (lambda: run(A.fedavg(0.1, aggregation=(A.multi_krum(0, 5),))), "chooses more than the 4"),
        (lambda: run(A.fedavg(0.1), attackers=attackers.alie(1, about="record")), "record nothing"),
        (lambda: run(A.feddyn(0.1, alpha=1.0), attackers=attackers.alie(1, about="model")), "record all"),
        (lambda: run(A.fedavg(0.1), attackers=attackers.alie(7)), "there are only 6 clients"),
        (lambda: attackers.mimic(1, warm_up=0), "warm_up=0 must be a number of rounds"),
        (lambda: run(A.fedavg(0.1), attackers="alie"), "must be some of losac.simulation.attackers"),
        (
            lambda: run(A.losac(0.1, blocks=2, aggregation=(A.coordinate_median(),)), table_dtype="bfloat16"),
            "either aggregation or table_dtype",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(make: Any, words: str):
    with pytest.raises(ValueError, match=words):
        make()


# --- laws of the attacks


def present(clients: Any, liars: int = F) -> attackers.Present:
    """Clients that are all there, of whom the last lie."""
    return attackers.Present(
        np.asarray(clients), np.arange(len(clients)) >= len(clients) - liars, np.ones(len(clients), bool)
    )


def corrupted(attack: attackers.Attackers, v: np.ndarray, liars: int = F) -> np.ndarray:
    there = present(np.arange(len(v)), liars)
    return np.asarray(attack.corrupt(_random.any_key(), v, there, ()))


def test_what_liars_send():
    v = vectors()
    honest, (mean, sd) = v[: N - F], (v[: N - F].mean(0), v[: N - F].std(0, ddof=1))
    sent = {
        "flip": (attackers.sign_flip(F, scale=10.0), -10 * v[N - F :]),
        "scale": (attackers.scaled(F, scale=5.0), 5 * v[N - F :]),
        "alie": (attackers.alie(F, z=1.5), np.tile(mean - 1.5 * sd, (F, 1))),
        "product": (attackers.inner_product(F, epsilon=0.5), np.tile(-0.5 * mean, (F, 1))),
    }
    for attack, wanted in sent.values():
        found = corrupted(attack, v)
        np.testing.assert_allclose(found[N - F :], wanted, rtol=1e-12)
        np.testing.assert_array_equal(found[: N - F], honest)
    noise = corrupted(attackers.noise(F, scale=3.0), vectors(0, 4000), 2000)[2000:]
    assert abs(noise.std() / (3 * np.sqrt((vectors(0, 4000)[:2000] ** 2).mean())) - 1) < 0.05


def test_mimics_learn_a_direction_and_then_copy_one_client():
    """The transcription of the warm-up, with clients that differ from round to round; then the order is frozen."""
    attack, key, clients = attackers.mimic(F, warm_up=3), _random.any_key(), 12
    memory, t, rng = attack.start(np.zeros(DIM), clients), 0, np.random.default_rng(0)
    m, z, places, order = np.zeros(DIM), np.asarray(_random.lies(_random.part_key(key, 0), (DIM,), float)), {}, []
    for r in range(6):
        ids, v = rng.choice(clients, N, replace=False), vectors(r)
        there = present(ids)
        memory = attack.learn(memory, key, v, there)
        sent = np.asarray(attack.corrupt(key, v, there, (), memory))
        honest = v[: N - F]
        if r < 3:
            m = (t * m + honest.mean(0)) / (1 + t)
            u = sum((row - m) * ((row - m) @ z) for row in honest)
            z = (t * z + u / np.linalg.norm(u)) / (1 + t)
            z, t = z / np.linalg.norm(z), t + 1
            places |= dict(zip(ids[: N - F].tolist(), (honest - m) @ z))
            order = sorted(places, key=places.get, reverse=True)
            assert max(honest @ z) == pytest.approx(sent[-1] @ z)
        first = next(i for i in order if i in ids[: N - F])
        np.testing.assert_array_equal(sent, [*honest, *[v[ids.tolist().index(first)]] * F])
    same = np.tile(vectors()[:1], (N, 1))
    there = present(np.arange(N))
    memory = attack.learn(attack.start(same[0], N), key, same, there)
    np.testing.assert_array_equal(attack.corrupt(key, same, there, (), memory), same)


@pytest.mark.parametrize("epsilon", [3.4, 3.6])
def test_the_mean_turns_around_where_epsilon_exceeds_the_odds(epsilon: float):
    """(n − f)/f = 3.5."""
    v = vectors()
    inner = corrupted(attackers.inner_product(F, epsilon=epsilon), v).mean(0) @ v[: N - F].mean(0)
    assert (inner < 0) == (epsilon > 3.5)


# --- in the simulator


QUADRATIC = quadratic(clients=6)
STEP = 0.1 / QUADRATIC.curvature
RUN = {"rounds": 5, "clients_per_round": 4, "eval_every": 5, "dtype": "float64", "layout": Layout(1, 1)}


def run(algorithm: Any, **options: Any) -> losac.History:
    return losac.simulate(QUADRATIC.task, algorithm, **(RUN | options))


def test_nobody_lies_bit_for_bit():
    plain = run(A.losac(STEP, 3, 2, scaling="exact")).params
    nobody = run(A.losac(STEP, 3, 2, scaling="exact"), attackers=attackers.sign_flip(0)).params
    np.testing.assert_array_equal(plain, nobody)
    assert repr(A.losac(STEP, aggregation=())) == repr(A.losac(STEP))


def test_one_trajectory_on_any_layout_and_from_any_store(tmp_path: Any):
    """The rows of a mesh, groups of clients, and states that are paged in give the same numbers."""
    robust = A.losac(STEP, 3, 2, scaling="exact", aggregation=(A.nearest_mixing(1), A.trimmed_mean(1)))
    liars = attackers.alie(1, z=1.5)
    one = run(robust, attackers=liars)
    layout = Layout(2, min(2, jax.local_device_count()), shared=True)
    for other in (
        {"layout": layout},
        {"store": str(tmp_path)},
        {"clients_per_round": 6, "sampling": [[0, 1, 3, 5]] * 5},
    ):
        found = run(robust, attackers=liars, **other)
        if "sampling" not in other:
            np.testing.assert_allclose(found.params, one.params, rtol=1e-11)
    swept = losac.sweep(QUADRATIC.task, robust, {}, [0], attackers=liars, **{k: RUN[k] for k in list(RUN)[:4]})
    np.testing.assert_allclose(swept.members[0].params, one.params, rtol=1e-11)


def test_what_liars_remember_is_a_part_of_the_state(tmp_path: Any):
    """A run in pieces, and one whose states are paged in, goes on with the same order of clients."""
    method, liars = A.losac(STEP, 3, 2, scaling="exact"), attackers.mimic(1, warm_up=2)
    whole = run(method, attackers=liars, keep_state=True)
    half = run(method, attackers=liars, rounds=3, eval_every=3, keep_state=True)
    rest = run(method, attackers=liars, rounds=2, eval_every=2, state=half.state)
    np.testing.assert_array_equal(whole.params, rest.params)
    paged = run(method, attackers=liars, store=str(tmp_path))
    np.testing.assert_allclose(whole.params, paged.params, rtol=1e-11)
    assert {int(part.rounds) for part in whole.state.memory[0].values()} == {2}
    assert not np.array_equal(whole.params, run(method, attackers=attackers.mimic(1)).params)


def test_bytes_count_what_clients_are_told():
    """One number for each array that a client records, or one for each of its entries."""
    method = A.losac(STEP, 3, 2, scaling="exact")
    rules = (), ROBUST[1], (A.trimmed_mean(1),)
    spent = [run(method.replace(aggregation=rule)).bytes_down[-1] for rule in rules]
    visits, size = 5 * 4, QUADRATIC.task.init_params(None).size
    assert np.diff(spent).tolist() == [8 * visits, 8 * visits * (size - 1)]
    silent = (A.trimmed_mean(1, acknowledged=False),)
    assert run(method.replace(aggregation=silent)).bytes_down[-1] == spent[0]


def test_liars_about_the_record_leave_the_model_part_alone_and_their_lies_stay_in_the_sum():
    """With the plain sum, φ is off by what they lied: nine times too little of each of their honest changes."""
    method = A.losac(STEP, 3, 2, scaling="exact")
    options = {"rounds": 1, "clients_per_round": 6, "keep_state": True}
    lie = attackers.sign_flip((2,), scale=8.0, about="record")
    true, lied = (run(method, attackers=liars, **options) for liars in (None, lie))
    np.testing.assert_allclose(true.params, lied.params, rtol=1e-12)
    share = map_trees(lambda y: y[2].sum(0) / 12, true.state.store.table)
    np.testing.assert_allclose(lied.state.server.phi - true.state.server.phi, -9 * share, rtol=1e-9)


def test_wrong_labels_are_trained_on_by_liars_only():
    data = losac.data.load("digits", clients=6, partition="sorted").subset(range(6))
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    flipped = losac.FederatedData.from_clients(
        [(x, (9 - y) if i == 2 else y) for i, (x, y) in enumerate(map(data.client, range(6)))], test=data.test
    )
    other = losac.classification(losac.models.softmax_regression(64, 10), flipped)
    options = {"rounds": 2, "layout": Layout(1, 1)}
    one = losac.simulate(task, A.fedavg(1e-3, 2), attackers=attackers.label_flip((2,)), **options)
    two = losac.simulate(other, A.fedavg(1e-3, 2), **options)
    for a, b in zip(*map(jax.tree.leaves, (one.params, two.params))):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert one.metric("loss")[0] == pytest.approx(
        losac.simulate(task, A.fedavg(1e-3, 2), **options).metric("loss")[0], rel=1e-6
    )


# --- the invariant


RECORDING = [entry for entry in ONE_EACH if type(entry.make(1.0, RANDOM_BLOCKS)).record is not Algorithm.record]
ROBUST = [RULES["mixing"], RULES["clipping from zero"]]


class Told(Hand):
    """A federation by hand with a robust server, whose clients have one block, and record what was used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        entry = self.algorithm.init_entry(np.zeros(DIM))
        self.tables = [{0: entry} for _ in self.clients]

    def round(self, ids: Any = None, happens: bool = True) -> np.ndarray:
        clients = len(self.clients)
        here = Federation(clients, clients, lambda x, step: x)
        for phase in self.algorithm.phases():
            sent, locals_ = [], []
            for i in range(clients):
                gradient = self.problem.gradient(i)
                local = Local(*here, 1, 2, gradient, i, _random.any_key())
                steps = [Step(gradient, 0)] * (0 if phase.draw.steps == 0 else 2)
                message = phase.broadcast(self.server)
                walked = walk(phase, local, message, self.clients[i], steps, self.tables[i])
                self.clients[i] = walked.client
                sent.append(map_trees(np.asarray, walked.upload))
                locals_.append(local)
            uploads, own = map_trees(lambda *a: np.stack(a), *sent), phase is self.algorithm
            recorded = self.algorithm.records(uploads) if own else ()
            stages = self.algorithm.aggregation
            found = map_trees(np.asarray, aggregate(stages, None, uploads, np.ones(clients, bool), recorded))
            self.server = map_trees(
                np.asarray, phase.update(here, self.server, Received(found.total, np.float64(clients)))
            )
            for i in range(clients) if own and self.algorithm.acknowledges else ():
                share = map_trees(lambda a, i=i: a[i], told(found.shares, recorded))
                used = accepted(sent[i], share)
                self.clients[i], change = self.algorithm.record(locals_[i], sent[i], used, self.clients[i])
                if jax.tree.leaves(change):
                    self.tables[i][0] = self.tables[i][0] + change
        return self.x

    def check(self) -> None:
        """Refuse sums that are not those of the clients' states."""
        here = Federation(len(self.clients), len(self.clients), lambda x, step: x)
        table = np.stack([np.asarray(t[0])[None] for t in self.tables]) if self.algorithm.table else ()
        state = map_trees(lambda *a: np.stack(a), *self.clients)
        self.algorithm.check_state(here, self.server, state, table)


@pytest.mark.parametrize("rule", ROBUST, ids=lambda rule: rule[-1].label)
@pytest.mark.parametrize("entry", [e for e in RECORDING if e.name != "tamuna"], ids=lambda e: e.name)
def test_sums_stay_those_of_the_clients_states(entry: Any, rule: Any):
    """φ = κ Σ y, Σ c_i = N c, Σ h_i = 0 and their like, for every method whose clients record what they send."""
    problem = quadratics(clients=N, dim=DIM)
    method = entry.make(20.0, RANDOM_BLOCKS)
    method = method.replace(blocks=None, uploads=(), aggregation=rule).at(0)
    hand = Told(method, problem)
    for _ in range(4):
        hand.round()
        hand.check()


def test_without_being_told_clients_lose_the_sum():
    problem = quadratics(clients=N, dim=DIM)
    silent = A.trimmed_mean(F, acknowledged=False)
    hand = Told(A.scaffold(0.05, 2, aggregation=(silent,)), problem)
    hand.round()
    with pytest.raises(ValueError, match="wrong point"):
        hand.check()


@pytest.mark.parametrize("method", ["losac, robust", "scaffold, robust"])
def test_the_sums_survive_every_crash_of_a_federation_that_tells(method: str, caplog: Any):
    """The share is applied once, however often messages are lost or doubled and clients or the server are killed."""
    caplog.set_level(logging.CRITICAL, "losac")
    world = World(method, "resync", 1, rate=0.2)
    for _ in range(12):
        world.step()
        assert world.error() < 1e-9
    assert sum(world.faults.values()) > 10
    assert any(member.share for member in world.saved.members.values())
