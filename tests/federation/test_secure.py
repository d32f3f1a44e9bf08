"""Secure aggregation: the sum is right whoever drops out and when, and a client tells no more than that."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import losac.algorithms as A
from losac.federation.book import Rules
from losac.federation.errors import RefusedError
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.secure import notes, primitives
from losac.federation.secure import session as sums
from losac.federation.secure.client import SESSION, SecureClient
from losac.federation.secure.graph import holders_of, threshold_for
from losac.federation.secure.identity import Trust, make_identity, public_key, read_trust, write_peers
from losac.federation.secure.levels import as_int64
from losac.federation.secure.rules import PEERS, SecureRules
from losac.federation.setting import Setting
from losac.federation.vault import Memory
from losac.federation.work import Assignment, Kept, Message, Result
from losac.prox import zero
from losac.simulation.sampling import Uniform
from secure_faults import run_schedule

FIXED = A.fixed_point(limit=8.0, bits=20)
METHOD = A.fedavg(0.1, uploads=(FIXED,))
KEYS = {name: Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n, name in enumerate("abcdefgh")}
PEERS_OF = {name: public_key(key) for name, key in KEYS.items()}
LIKE = (np.zeros(3, np.uint64),)


class Worker:
    """A client whose upload is known."""

    algorithm, rows, params, model_state, kept_like = METHOD, 1, np.zeros(3, np.float32), (), Kept((), (), ())

    def __init__(self, number: int) -> None:
        values = np.array([number + 1, -number, 0.5**number], np.float32)
        self.payload = jax.tree.map(np.asarray, FIXED.encode(None, (), values)[0])

    def start(self, params: Any) -> Kept:
        return self.kept_like

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        return Result(Message(self.payload), kept, 1.0)


def client(name: str, minimum: int = 2, peers: Mapping[str, bytes] | None = None) -> SecureClient:
    trust = Trust(name, KEYS[name], peers or {each: PEERS_OF[each] for each in "abcdefgh"[:5]}, minimum)
    return SecureClient(Worker("abcdefgh".index(name)), Memory(), trust)


def order(name: str, kind: Any = "train", token: str = "run/1/1") -> Order:
    return Order(kind, token, NOTHING, Assignment(0, 0, 0, "abcdefgh".index(name), 0, 8, 3, 1.0), name=name)


STEPS = ("keys", "shares", "train", "agree", "unmask", "never")


class Network:
    """Clients that drop out at a step: they carry out the steps before it."""

    def __init__(self, names: str, dropped: Mapping[str, str], minimum: int = 2) -> None:
        self.clients = {name: client(name, minimum) for name in names}
        self.dropped = {name: STEPS.index(dropped.get(name, "never")) for name in names}
        self.sent: list[tuple[str, Order, Reply]] = []

    def __call__(self, orders: Mapping[str, Order]) -> dict[str, Reply]:
        replies = {}
        for name, each in orders.items():
            if STEPS.index(each.kind) < self.dropped[name]:
                replies[name] = self.clients[name].answer(each)
                self.sent.append((name, each, replies[name]))
        return replies


def summed(names: str, rules: SecureRules, exchange: Any) -> tuple[sums.Session, Any]:
    """One session, as the driver holds it; its sum in whole numbers, if it can be told."""
    orders = {name: order(name) for name in names}
    session = sums.begin(orders, rules)
    sums.exchange_keys(session, orders, exchange)
    for name, reply in exchange(sums.masked_orders(session, orders)).items():
        sums.take(session, name, reply, LIKE)
    return session, (lambda: as_int64(sums.reveal(session, orders, exchange)))


def check(names: str, rules: SecureRules, dropped: Mapping[str, str]) -> bool:
    """Whether a session told its sum; if so, it is the plain one."""
    network = Network(names, dropped)
    try:
        session, reveal = summed(names, rules, network)
        there = {step: [n for n in names if network.dropped[n] > STEPS.index(step)] for step in STEPS}
        found = reveal()
    except RefusedError:
        return False
    if found:
        due = sum(network.clients[name].worker.payload.levels() for name in there["train"])
        np.testing.assert_array_equal(found[0], due)
        assert session.survivors == there["train"]
    return bool(found)


@pytest.mark.parametrize(("names", "threshold"), [("abc", 2), ("abcd", 3)])
def test_the_sum_is_the_plain_one_for_every_way_to_drop_out_and_too_few_tell_nothing(names, threshold):
    """Each client drops out before any step. All patterns of three clients; of four, each once up to their order."""
    four = itertools.combinations_with_replacement(STEPS, 4)
    told = 0
    for steps in itertools.product(STEPS, repeat=3) if len(names) == 3 else four:
        shown = sum(step != "keys" for step in steps)
        needed = max(2, threshold_for(shown, threshold))
        answered = sum(step == "never" for step in steps)
        agreed = sum(STEPS.index(step) > STEPS.index("agree") for step in steps)
        found = check(names, SecureRules(threshold=threshold), dict(zip(names, steps)))
        assert found == (answered >= needed and agreed >= needed), steps
        told += found
    assert told


def test_few_neighbours_are_enough():
    """Eight clients with four neighbours each, two of whom drop out after their keys are shared."""
    names = "abcdefgh"
    rules = SecureRules(threshold=3, neighbours=4)
    clients = {name: client(name, peers=PEERS_OF) for name in names}
    network = Network("", {})
    network.clients, network.dropped = clients, dict.fromkeys(names, 5) | {"c": 2, "f": 2}
    session, reveal = summed(names, rules, network)
    assert all(len(session.holders(name)) == 5 for name in names)
    assert session.survivors == list("abdegh")
    due = sum(clients[name].worker.payload.levels() for name in session.survivors)
    np.testing.assert_array_equal(reveal()[0], due)
    shares = [json.loads(each.secure) for _, each, _ in network.sent if each.kind == "shares"]
    assert all(len(each["adverts"]) == 5 for each in shares)


def test_neighbours_are_mutual_and_differ_from_session_to_session():
    names = [f"client-{k}" for k in range(20)]
    rings = []
    for session in ("one", "other"):
        holders = {name: holders_of(name, names, 6, session) for name in names}
        assert all(len(each) == 7 and name in each for name, each in holders.items())
        assert all(name in holders[other] for name, each in holders.items() for other in each)
        rings.append(holders)
    assert rings[0] != rings[1]
    assert holders_of("client-3", names, 0, "one") == sorted(names)


def test_no_upload_travels_open_and_every_session_has_fresh_keys():
    network = Network("abc", {})
    said = []
    for token in ("run/1/1", "run/1/2"):
        orders = {name: order(name, token=token) for name in "abc"}
        session = sums.begin(orders, SecureRules())
        sums.exchange_keys(session, orders, network)
        for name, reply in network(sums.masked_orders(session, orders)).items():
            levels = network.clients[name].worker.payload.levels()
            assert not np.any(as_int64(reply.upload.content)[0] == levels)
            assert np.all(abs(as_int64(reply.upload.content)[0]) > 2**40), "masks fill all 64 bits"
            sums.take(session, name, reply, LIKE)
        sums.reveal(session, orders, network)
        said.append(session.adverts)
    seen = [part for adverts in said for advert in adverts.values() for part in advert]
    assert len(set(seen)) == len(seen)
    for each in network.clients.values():
        assert not {"own", "mask", "cipher"} & set(each.vault.read(SESSION).values), "seeds that are told are forgotten"


# ---------------------------------------------------------------- what a client refuses


def edited(order: Order, change: Any) -> Order:
    parts = json.loads(order.secure)
    change(parts)
    return order._replace(secure=json.dumps(parts).encode())


def forge(parts: dict[str, Any]) -> None:
    """Keys that the server made, with a signature of another key."""
    fake = notes.Advert(bytes(32), bytes([9]) * 32, bytes(32), b"")
    signature = KEYS["h"].sign(fake.text("run/1/1 0", "b"))
    parts["adverts"]["b"] = [part.hex() for part in (*fake[:3], signature)]


def replay(parts: dict[str, Any]) -> None:
    """Keys of b from another session."""
    other = client("b").answer(order("b", "keys", "run/1/9")._replace(secure=notes.write()))
    parts["adverts"]["b"] = json.loads(other.secure)["advert"]


REFUSALS = [
    ("shares", forge, "not signed with the key of b in the list of peers"),
    ("shares", replay, "not signed with the key of b"),
    ("shares", lambda p: p["adverts"]["a"].__setitem__(0, "00" * 32), "other keys for this client than it made"),
    ("shares", lambda p: p.update(names=["a"], adverts={"a": p["adverts"]["a"]}), "a sum over 1 clients is smaller"),
    ("shares", lambda p: p["names"].append("x"), "'x' is not in this client's list"),
    ("shares", lambda p: p["names"].remove("a"), "this client's are missing"),
    ("shares", lambda p: p["names"].reverse(), "not in order"),
    ("shares", lambda p: p["adverts"].pop("b"), "not those of the clients that share"),
    ("shares", lambda p: p.update(threshold="2"), "whole number"),
    ("shares", lambda p: p.update(more=1), "are due"),
    ("train", lambda p: p["sealed"].pop("b") and p["sealed"].pop("c"), "1 clients share their keys, and 2 are needed"),
    ("train", lambda p: p["sealed"].update(d="00" * 48), "clients that do not share with this one"),
    ("train", lambda p: p["sealed"].update(b="00"), "is not 48 bytes"),
    ("agree", lambda p: p.update(survivors=["a"]), "a sum over 1 clients is smaller than this client's 2"),
    ("agree", lambda p: p.update(survivors=["b", "c"]), "it says that this client dropped out"),
    ("agree", lambda p: p.update(survivors=["a", "b", "d"]), "clients that were not asked"),
    ("unmask", lambda p: p.update(survivors=["a", "b"]), "with other words"),
    ("unmask", lambda p: p.update(signatures={"a": p["signatures"]["b"]}), "0 clients have signed who is in the sum"),
]  # fmt: skip


@pytest.mark.parametrize(("step", "change", "complaint"), REFUSALS, ids=[f"{s} {c}" for s, _, c in REFUSALS])
def test_a_client_refuses_what_would_show_more_than_a_sum(step, change, complaint):
    network, asked = waiting(step)
    alice = network.clients["a"]
    with pytest.raises(RefusedError, match=complaint):
        alice.answer(edited(asked[step], change))
    assert alice.answer(asked[step]).status == "done", "a refusal changes nothing"


def waiting(step: str) -> tuple[Network, dict[str, Order]]:
    """All clients before a step of client a, with the orders that it gets."""
    network, asked = Network("abc", {}), {}

    def exchange(orders: Mapping[str, Order]) -> dict[str, Reply]:
        asked.update({each.kind: each for name, each in orders.items() if name == "a"})
        if step in asked:
            raise StopIteration
        return network(orders)

    with pytest.raises(StopIteration):
        summed("abc", SecureRules(threshold=2), exchange)[1]()
    return network, asked


def test_a_client_answers_each_step_once_and_the_same_order_alike():
    """Neither another set of survivors after a crash, nor both secrets of a peer, nor an older session."""
    network, asked = Network("abc", {}), {}

    def exchange(orders: Mapping[str, Order]) -> dict[str, Reply]:
        asked.update({each.kind: each for name, each in orders.items() if name == "a"})
        return network(orders)

    summed("abc", SecureRules(threshold=2), exchange)[1]()
    old = network.clients["a"]
    alice = SecureClient(old.worker, old.vault, old.trust)  # the process is another, the disk the same
    told = notes.read(alice.answer(asked["unmask"]).secure, "own", "mask")
    assert (sorted(told["own"]), told["mask"]) == (["a", "b", "c"], {})
    assert alice.answer(asked["agree"]).secure
    for step in ("agree", "unmask"):
        with pytest.raises(RefusedError, match="with other words"):
            alice.answer(edited(asked[step], lambda parts: parts.update(survivors=["a", "b"])))
    assert alice.answer(asked["train"]).status == "stale", "its masks are told"
    later = order("a", "keys", "run/1/2")._replace(secure=notes.write())
    assert alice.answer(later).status == "done"
    assert [alice.answer(asked[step]).status for step in ("keys", "shares", "train", "unmask")] == ["stale"] * 4
    assert alice.answer(later).secure == alice.answer(later).secure


def test_one_round_is_not_summed_over_two_sets_of_clients():
    """A server that finds its round void would learn by subtraction what the client sent that it left out."""
    network = Network("abcd", {})
    rules = SecureRules(threshold=3)
    summed("abcd", rules, network)[1]()
    for names, token, allowed in (("abc", "run/1/2", False), ("abcd", "run/1/3", True)):
        orders = {name: order(name, token=token) for name in names}
        session = sums.begin(orders, rules)
        sums.exchange_keys(session, orders, network)
        for name, reply in network(sums.masked_orders(session, orders)).items():
            sums.take(session, name, reply, LIKE)
        if allowed:
            sums.reveal(session, orders, network)
        else:
            with pytest.raises(RefusedError, match="was told before, of other clients"):
                sums.reveal(session, orders, network)


def test_a_client_with_peers_sends_nothing_without_masks():
    with pytest.raises(RefusedError, match="asks for an upload without masks"):
        client("a").answer(order("a"))
    alice = client("a")
    assert alice.answer(order("a")._replace(secure=notes.write(sealed={}))).status == "stale"
    alice.answer(order("a", "keys")._replace(secure=notes.write()))
    with pytest.raises(RefusedError, match="before any keys were shared"):
        alice.answer(order("a")._replace(secure=notes.write(sealed={})))


def test_holdings_are_told_for_all_peers_together_only():
    network = Network("abc", {}, 2)
    orders = {name: order(name, "hold") for name in "abc"}  # of five peers
    session = sums.begin(orders, SecureRules(threshold=2))
    sums.exchange_keys(session, orders, network)
    asked = sums.masked_orders(session, orders)
    alice = network.clients["a"]
    alice.answer(asked["a"])
    agree = order("a", "agree")._replace(secure=notes.write(survivors=["a", "b", "c"]))
    with pytest.raises(RefusedError, match="what some of the clients hold"):
        alice.answer(agree)


def test_a_share_that_was_changed_is_noticed_at_both_sides(caplog):
    """A client leaves out what it cannot read; the server compares a seed with what its owner showed."""
    network = Network("abc", {})

    def exchange(orders: Mapping[str, Order]) -> dict[str, Reply]:
        replies = network(orders)
        if "b" in replies and orders["b"].kind == "unmask":
            replies["b"] = replies["b"]._replace(
                secure=edited(Order("unmask", "", "", None, secure=replies["b"].secure), corrupt).secure
            )
        return replies

    def corrupt(parts: dict[str, Any]) -> None:
        parts["own"]["a"] = "11" * 16

    _, reveal = summed("abc", SecureRules(threshold=3), exchange)
    with pytest.raises(RefusedError, match="not of the seed that it committed to"):
        reveal()
    with pytest.raises(RefusedError, match="not a point"):
        primitives.shared_secret(primitives.X25519PrivateKey.generate(), bytes(32))


# ---------------------------------------------------------------- files and rules


def test_an_operator_gives_every_client_the_same_list_of_peers(tmp_path):
    keys = {name: make_identity(tmp_path / name) for name in ("a", "b", "c")}
    assert keys["a"] == make_identity(tmp_path / "a")
    assert (tmp_path / "a" / "identity").stat().st_mode & 0o777 == 0o600
    for name in keys:
        write_peers(tmp_path / name / PEERS, keys, minimum=3)
    trust = read_trust(tmp_path / "a", "a")
    assert (trust.minimum, sorted(trust.peers)) == (3, ["a", "b", "c"])
    assert trust.signed("a", trust.sign(b"x"), b"x")
    assert not trust.signed("b", trust.sign(b"x"), b"x")
    with pytest.raises(RefusedError, match="another key for 'b'"):
        read_trust(tmp_path / "a", "b")
    (tmp_path / "a" / PEERS).write_text("{}")
    with pytest.raises(RefusedError, match="is no list of peers"):
        read_trust(tmp_path / "a", "a")


def setting(algorithm: Any, **rules: Any) -> Setting:
    given = {"recovery": "reset", "largest": None, "clients": 4, "clients_per_round": 4} | rules
    return Setting(
        algorithm, Rules(**given, secure=SecureRules()), np.zeros(2, np.float32), rules.get("state", ()), zero(),
        Uniform(given["clients"], given["clients_per_round"]),
    )  # fmt: skip


UPLOADS = {"uploads": (A.fixed_point(1.0),)}


@pytest.mark.parametrize(
    ("algorithm", "rules", "complaint"),
    [
        (A.fedvarp(0.1, **UPLOADS), {}, "fedvarp keeps a row for each client at the server"),
        (A.mifa(0.1, **UPLOADS), {}, "mifa keeps a row for each client"),
        (A.tamuna(0.1, blocks=1, probability=0.5), {}, "tamuna keeps a row for each client"),
        (A.fedavg(0.1, aggregation=(A.coordinate_median(),), **UPLOADS), {}, "compares single uploads"),
        (A.fedavg(0.1), {}, r"let fixed_point\(limit\) be the last"),
        (A.fedavg(0.1, weighting="average", **UPLOADS), {}, "weighs the uploads at the server"),
        (A.scaffold(0.1, **UPLOADS), {"recovery": "ledger"}, "must see single uploads"),
        (A.scaffold(0.1, **UPLOADS), {"recovery": "resync"}, "less the sum after it is what that client alone held"),
        (A.scaffold(0.1, **UPLOADS), {"largest": "adaptive"}, "bounds the norm of single uploads"),
        (A.scaffold(0.1, **UPLOADS), {"largest": 3.0}, "bounds the norm of single uploads"),
        (A.scaffold(0.1, **UPLOADS), {"clients_per_round": 2}, "a sum over fewer than 3 clients protects nobody"),
        (A.fedavg(0.1, uploads=(A.fixed_point(1.0, 48),)), {"clients": 10**5}, "may not fit into 64 bits"),
        (A.feddyn(0.1, alpha=lambda r: 1 / (1 + r), **UPLOADS), {}, "no sum of whole numbers; use a constant"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_needs_single_uploads_is_refused_with_the_reason(algorithm, rules, complaint):
    with pytest.raises(RefusedError, match=complaint):
        setting(algorithm, **rules)


def test_rules_are_checked():
    wrong = {"threshold": 6, "neighbours": 4}
    for bad in ({"threshold": -1}, {"neighbours": 3}, {"neighbours": 2}, {"threshold": 1.5}, wrong):
        with pytest.raises(ValueError, match=next(iter(bad))):
            SecureRules(**bad)


def test_whatever_is_killed_the_sum_is_what_the_clients_hold_and_nobody_tells_too_much():
    """`python tests/secure_faults.py` draws as many schedules as you like."""
    worlds = [run_schedule(seed) for seed in range(5)]
    assert sum(world.saved.round for world in worlds) > 4
    assert any(world.told for world in worlds)
