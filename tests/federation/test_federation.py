"""A federation's promises: sums that stay right, records that survive, bad clients that change nothing."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import losac.algorithms as A
from catalogue import CATALOGUE, Regime
from faults import CLIENTS, METHODS, START, Killed, QuickWorker, World, head, run_schedule
from losac.federation import durable, membership, rounds
from losac.federation.book import RefusedError, Rules
from losac.federation.checkpoint import load_book, save_book
from losac.federation.drive import Driver
from losac.federation.durable import DamagedError, Record
from losac.federation.inprocess import InProcess
from losac.federation.protocol import NOTHING, Client
from losac.federation.setting import Setting
from losac.federation.shapes import own_phase_index
from losac.federation.vault import Folder, Memory
from losac.federation.work import Assignment, Message
from losac.prox import zero
from losac.simulation.sampling import Uniform
from losac.trees import map_trees
from paths import ROOT

RECOVERIES = ("ledger", "resync", "reset")
SUMMING = ("losac, paper", "losac, exact", "scaffold", "feddyn", "fedadmm")


def setting_of(method: str, sampled: int = 2, **rules: Any) -> Setting:
    given = Rules(clients=CLIENTS, clients_per_round=sampled, dtype="float64", **rules)
    return Setting(METHODS[method], given, START, (), zero(), Uniform(CLIENTS, sampled))


def driver_of(method: str, vaults: dict[str, Any] | None = None, save=lambda book: None, book=None, **rules) -> Driver:
    setting = setting_of(method, **rules)
    clients = {}
    for i in range(CLIENTS):
        vault = Memory() if vaults is None else vaults[f"c{i}"]
        clients[f"c{i}"] = Client(QuickWorker(METHODS[method], i), vault)
    return Driver(setting, InProcess(clients), book or setting.first_book("r"), save)


# --- faults at random


@pytest.mark.parametrize("part", range(10))
def test_the_sums_are_right_after_every_step_of_random_schedules(part, caplog):
    caplog.set_level(logging.CRITICAL, "losac")
    faults: set[str] = set()
    for seed in range(1_000_000 + 200 * part, 1_000_000 + 200 * (part + 1)):
        faults |= set(run_schedule(seed).faults)
    assert len(faults) >= 17, "some kinds of faults never happened"


class Federation(RuleBasedStateMachine):
    """The same world, driven step by step, so that a failure is made small."""

    @initialize(method=st.sampled_from(list(METHODS)), recovery=st.sampled_from(RECOVERIES), seed=st.integers(0, 2**20))
    def begin(self, method, recovery, seed):
        logging.getLogger("losac").setLevel(logging.CRITICAL)
        self.world = World(method, recovery, seed, rate=0.0)

    @rule(rate=st.sampled_from([0.0, 0.1, 0.5]))
    def attempt(self, rate):
        self.world.rate = rate
        self.world.step()

    @rule(name=st.sampled_from([f"c{i}" for i in range(CLIENTS)]))
    def lose_disk(self, name):
        self.world.disks[name].records.clear()
        self.world.harmed.add(name)

    @rule(name=st.sampled_from([f"c{i}" for i in range(CLIENTS)]))
    def leave_or_join(self, name):
        self.world.gone ^= {name}

    @rule()
    def kill_server(self):
        self.world.rate = 0.0
        self.world.driver = self.world.new_driver()

    def teardown(self):
        logging.getLogger("losac").setLevel(logging.NOTSET)

    @invariant()
    def sums_are_right(self):
        if hasattr(self, "world"):
            assert self.world.error() < 1e-9


Federation.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestFederation = Federation.TestCase


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("method", ["losac, exact", "losac_lean, auto", "scaffold", "feddyn"])
def test_after_all_faults_the_method_still_converges_to_the_optimum(method, recovery, caplog):
    """A sum that was off by anything would keep the model away from the optimum for ever."""
    caplog.set_level(logging.CRITICAL, "losac")
    world = World(method, recovery, seed=3, rate=0.3)
    for _ in range(60):
        world.step()
    world.rate, world.gone = 0.0, set()
    assert sum(world.faults.values()) > 100
    for _ in range(800):
        world.step()
    np.testing.assert_allclose(world.setting.model(world.saved), world.optimum, atol=1e-9)


def test_a_lost_reply_is_no_bias_where_the_factor_is_the_planned_one():
    """With one of two replies lost in every round, φ is still κ times the clients' sum, κ = N over the planned S."""
    driver = driver_of("losac, paper", fewest=1)
    whole = driver.transport.exchange

    def lossy(orders, deadline):
        done = whole(orders, deadline)
        return done._replace(replies=dict(list(done.replies.items())[:1]))

    driver.transport.exchange = lossy
    for measured in driver.run(10):
        assert len(measured.answered) == 1
    driver.transport.exchange = whole
    assert driver.invariant_error() < 1e-14
    total = driver.book.total
    np.testing.assert_allclose(driver.book.server.phi, CLIENTS / 2 * total, rtol=1e-12)


# --- the book


@pytest.mark.parametrize("method", SUMMING)
@pytest.mark.parametrize("recovery", RECOVERIES)
def test_a_server_goes_on_from_its_checkpoint_bit_for_bit(method, recovery, tmp_path):
    path, setting = tmp_path / "checkpoint", setting_of(method, recovery=recovery)
    vaults = {f"c{i}": Memory() for i in range(CLIENTS)}
    first = driver_of(
        method, vaults, lambda book: save_book(path, setting, book, [{"round": book.round}]), recovery=recovery
    )
    list(first.run(4))
    book, log = load_book(path, setting)
    assert (book.round, log) == (4, [{"round": 4}])
    second = driver_of(method, vaults, book=book, recovery=recovery)
    list(second.run(8))
    whole = driver_of(method, recovery=recovery)
    list(whole.run(8))
    map_trees(np.testing.assert_array_equal, second.book.server, whole.book.server)
    map_trees(np.testing.assert_array_equal, second.book.total, whole.book.total)


def test_a_client_that_left_is_taken_out_with_all_it_contributed():
    driver = driver_of("losac, exact", sampled=4, recovery="ledger")
    list(driver.run(5))
    held = {name: member.credit for name, member in driver.book.members.items()}
    driver.keep(membership.dismiss(driver.setting, driver.book, "c2"))
    due = sum(credit for name, credit in held.items() if name != "c2")
    np.testing.assert_allclose(driver.book.server.phi, due, atol=1e-15)
    assert "c2" not in driver.book.members


def test_without_a_ledger_the_server_keeps_nothing_of_single_clients():
    driver = driver_of("losac, exact", recovery="resync")
    list(driver.run(5))
    assert all(member.credit is None for member in driver.book.members.values())


def test_a_round_with_too_few_replies_changes_nothing_and_is_tried_again():
    driver = driver_of("scaffold", fewest=2)
    before = driver.book
    driver.transport.exchange = lambda orders, deadline: driver_of("scaffold").transport.exchange({}, None)
    measured = driver.attempt()
    assert measured.void == "0 of 2 clients answered, and it needs 2"
    map_trees(np.testing.assert_array_equal, driver.book.server, before.server)
    assert driver.book.round == 0
    with pytest.raises(RefusedError, match="3 rounds in a row did not count"):
        list(driver.run(1, attempts=3))


def test_a_client_with_another_number_of_steps_is_refused_where_all_need_the_same():
    rules = Rules(clients=2, clients_per_round=2, dtype="float64")
    setting = Setting(A.vrl_sgd(0.1, batch_size=4, epochs=1), rules, START, (), zero(), Uniform(2, 2))
    book = membership.enrol(setting, setting.first_book("r"), "c0", 8)
    with pytest.raises(RefusedError, match="c1 has 9 rows and so takes another number of local steps"):
        membership.enrol(setting, book, "c1", 9)
    assert len(membership.enrol(setting, book, "c1", 7).members) == 2


def test_more_clients_than_places_are_not_taken_in():
    setting = setting_of("fedavg")
    book = setting.first_book("r")
    for i in range(CLIENTS):
        book = membership.enrol(setting, book, f"c{i}", 1)
    with pytest.raises(RefusedError, match="all 4 places taken"):
        membership.enrol(setting, book, "other", 1)
    with pytest.raises(RefusedError, match="asks for place 1, which is taken"):
        membership.enrol(setting, book, "other", 1, client=1)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [({"clients_per_round": 5}, "between 1 and clients=4"), ({"fewest": 3, "clients_per_round": 2}, "fewest=3"),
     ({"recovery": "hope"}, "'hope' must be one of ledger"), ({"largest": 0.0}, "must be positive")],
)  # fmt: skip
def test_rules_that_contradict_themselves_are_refused(rules, complaint):
    with pytest.raises(ValueError, match=complaint):
        Rules(**{"clients": 4, "clients_per_round": 2} | rules)


def test_methods_that_need_all_clients_say_so():
    with pytest.raises(ValueError, match="vrl_sgd needs every client in every round"):
        setting_of("vrl_sgd", sampled=2)


# --- bad clients


BAD = {
    "NaN": (lambda u: u._replace(x=u.x * np.nan), "NaN or infinity"),
    "infinity": (lambda u: u._replace(c=u.c + np.inf), "NaN or infinity"),
    "shape": (lambda u: u._replace(x=np.zeros(3)), r"shape \(3,\) where \(2,\) is expected"),
    "dtype": (lambda u: u._replace(x=u.x.astype(np.float32)), "dtype float32 where float64 is expected"),
    "norm": (lambda u: u._replace(x=u.x * 1e9), "is the most allowed"),
    "structure": (lambda u: u.x, "is expected"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_uploads_are_refused_and_change_nothing(kind):
    spoil, complaint = BAD[kind]
    driver = driver_of("scaffold", largest=100.0)
    driver.gather()
    driver.keep(driver.book.next_attempt())
    attempt = rounds.open_round(driver.setting, driver.book, ["c0", "c1", "c2", "c3"])
    orders = rounds.orders(driver.setting, attempt)
    bad, good = orders
    for name in (bad, good):
        reply = driver.transport.clients[name].answer(orders[name])
        if name == bad:
            with pytest.raises(RefusedError, match=complaint):
                rounds.take(driver.setting, attempt, name, reply._replace(upload=Message(spoil(reply.upload.content))))
        else:
            rounds.take(driver.setting, attempt, name, reply)
    rounds.close_phase(driver.setting, attempt, list(orders))
    book = rounds.accepted(driver.setting, attempt)
    assert book.members[bad].accepted == NOTHING
    driver.keep(book)
    assert driver.invariant_error() < 1e-14
    list(driver.run(6))
    assert driver.invariant_error() < 1e-13


def test_an_answer_counts_once_and_only_for_its_own_order():
    driver = driver_of("scaffold")
    driver.gather()
    driver.keep(driver.book.next_attempt())
    attempt = rounds.open_round(driver.setting, driver.book, ["c0", "c1", "c2", "c3"])
    name, order = next(iter(rounds.orders(driver.setting, attempt).items()))
    reply = driver.transport.clients[name].answer(order)
    with pytest.raises(RefusedError, match="other than the current one"):
        rounds.take(driver.setting, attempt, name, reply._replace(token="r/1/7"))
    with pytest.raises(RefusedError, match="other than the current one"):
        rounds.take(driver.setting, attempt, name, reply._replace(phase_index=1))
    rounds.take(driver.setting, attempt, name, reply)
    with pytest.raises(RefusedError, match="answered before"):
        rounds.take(driver.setting, attempt, name, reply)
    again = driver.transport.clients[name].answer(order)
    map_trees(np.testing.assert_array_equal, again, reply)


def test_a_token_belongs_to_one_client():
    """Two clients with one disk sent the same upload for two places."""
    driver = driver_of("scaffold")
    driver.gather()
    driver.keep(driver.book.next_attempt())
    attempt = rounds.open_round(driver.setting, driver.book, ["c0", "c1", "c2", "c3"])
    first, second = rounds.orders(driver.setting, attempt).values()
    vault = Memory()
    Client(QuickWorker(METHODS["scaffold"], 0), vault).answer(first)
    with pytest.raises(RefusedError, match="its vault holds the work of client"):
        Client(QuickWorker(METHODS["scaffold"], 1), vault).answer(second)


# --- records


def test_a_record_is_what_was_written(tmp_path):
    record = Record({"token": "a/1/2", "n": 3}, {"x": [np.arange(3), np.float32(2)], "none": []})
    durable.write(tmp_path / "record", record)
    read = durable.read(tmp_path / "record")
    assert read.values == record.values
    np.testing.assert_array_equal(read.arrays["x"][0], [0, 1, 2])
    assert read.arrays["x"][1].dtype == np.float32
    assert read.arrays["none"] == []
    assert os.listdir(tmp_path) == ["record"]
    assert durable.read(tmp_path / "other") is None


@pytest.mark.parametrize("place", [0, 20, 60, -1])
def test_a_changed_or_shortened_record_is_known_as_damaged(place, tmp_path):
    path = tmp_path / "record"
    durable.write(path, Record({"token": "a/1/2"}, {"x": [np.arange(100)]}))
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[place] ^= 1
    for content in (bytes(changed), whole[:place], b""):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match="checksum"):
            durable.read(path)


def test_a_damaged_client_file_counts_as_lost_and_is_set_aside(tmp_path, caplog):
    vault = Folder(tmp_path)
    vault.write("pending", Record({"token": "a/1/2"}, {}))
    (tmp_path / "pending").write_bytes(b"rubbish")
    assert vault.read("pending") is None
    assert "set aside as pending.damaged" in caplog.text
    assert sorted(os.listdir(tmp_path)) == ["pending.damaged"]


def test_a_damaged_checkpoint_is_an_error_and_stays(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(b"rubbish")
    with pytest.raises(DamagedError):
        load_book(path, setting_of("scaffold"))
    assert path.read_bytes() == b"rubbish"


def test_a_folder_is_held_against_another_process(tmp_path):
    with durable.locked(tmp_path), pytest.raises(BlockingIOError), durable.locked(tmp_path):
        pass


@pytest.mark.parametrize("moment", range(6))
def test_a_write_that_is_cut_off_leaves_the_old_record_or_the_new(moment, tmp_path, monkeypatch):
    """Kill the process at any of its calls to the system: what is read afterwards is one of both, whole."""
    path, calls = tmp_path / "record", iter(range(100))
    durable.write(path, Record({"n": 1}, {"x": [np.zeros(5)]}))

    def fragile(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == moment:
                raise Killed
            return function(*arguments, **options)

        return call

    for name in ("fsync", "replace", "open"):
        monkeypatch.setattr(os, name, fragile(getattr(os, name)))
    monkeypatch.setattr(Path, "unlink", lambda *arguments, **options: None)  # a killed process clears nothing up
    with contextlib.suppress(Killed):
        durable.write(path, Record({"n": 2}, {"x": [np.ones(5)]}))
    monkeypatch.undo()
    read = durable.read(path)
    assert read.values["n"] == 1 + read.arrays["x"][0][0]


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_what_a_client_holds_is_the_sum_of_its_credits(entry):
    """For every algorithm: credits, holdings and shifts say the same of one upload."""
    algorithm = entry.make(1.0, Regime("", CLIENTS, 1))
    rng = np.random.default_rng(0)
    setting = Setting(
        algorithm,
        Rules(clients=CLIENTS, clients_per_round=CLIENTS, dtype="float64"),
        START,
        (),
        zero(),
        Uniform(CLIENTS, CLIENTS),
    )
    worker, book = QuickWorker(setting.algorithm, 0), setting.first_book("r")
    place = own_phase_index(setting.algorithm)
    task = Assignment(
        0, 0, place, 0, 0, CLIENTS, CLIENTS, 1.0, 2 if setting.algorithm.draw_steps(0.5) is not None else None
    )
    message = Message(setting.call(lambda: setting.algorithm.phases()[place].broadcast(book.server)))
    result = worker.work(task, message, worker.start(START))
    if not setting.keeps_sums:
        assert jax.tree.leaves(setting.algorithm.credit(result.upload.content)) == []
        return
    credit = setting.algorithm.credit(result.upload.content)
    held = setting.algorithm.holding(setting.here, START, result.kept.state, result.kept.table)
    map_trees(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), held, credit)
    assert max(float(np.abs(a).max()) for a in jax.tree.leaves(credit)) > 1e-3
    other = map_trees(lambda a: a + rng.standard_normal(a.shape), credit)
    there = setting.shifted(book, other)
    back = setting.shifted(book._replace(server=there), map_trees(lambda a: -a, other))
    map_trees(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), back, book.server)
    np.testing.assert_array_equal(setting.algorithm.model(there), setting.algorithm.model(book.server))


def test_the_page_on_faults_counts_what_the_schedules_draw_from():
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    assert page.startswith("\n".join(head())), "run python tests/faults.py --table docs/faults.md"
