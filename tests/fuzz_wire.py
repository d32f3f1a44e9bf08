"""Mutated messages in both directions: whatever arrives, nobody crashes, hangs, grows or forgets.

    python tests/fuzz_wire.py --messages 100000

Orders and replies of real rounds are recorded, mutated (names, kinds, sizes, headers, numbers, whole records, raw
bytes) and delivered: replies to a server in the middle of a round, orders to a client with its disk. All that a server
may do is take an upload of the right shape and size; all that a client may do is answer, and what the server accepted
from it must still be there. Every message follows from the seed and its number, and a failure names both.
"""

from __future__ import annotations

import argparse
import logging
import resource
import time
from collections import Counter
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto
from flwr.supercore.task_identity import TaskIdentity

from faults import CLIENTS, METHODS, START, QuickWorker
from losac.federation import rounds
from losac.federation.book import Rules
from losac.federation.drive import Driver, Exchanged, Peer
from losac.federation.errors import RefusedError
from losac.federation.fingerprint import fingerprint
from losac.federation.protocol import Client, Order
from losac.federation.setting import Setting
from losac.federation.vault import Memory
from losac.flower.records import order_content, read_order, reply_content
from losac.flower.transport import FlowerTransport
from losac.prox import zero
from losac.simulation.engines.resident import precision
from losac.simulation.sampling import Uniform

SLOW = 5.0
"""Seconds of the processor that one message may take."""
LARGE = 2.0**28
"""Bytes by which the process may grow."""
WILD = (
    0, 1, -1, 2**31, 2**62, -(2**63), 0.0, -0.5, 1e300, float("nan"), float("inf"), True, "", "true", "done", "lost",
    "stale", "hold", "r/1/1", "r/1/999999", "../../x/1/1", "\n\x1b[31m", "ü" * 10_000, [1, 2], ["a"], b"\0",
)  # fmt: skip


class Recorded(FlowerTransport):
    """A transport to clients in this process, which keeps every message that travels as bytes."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(None, setting)  # type: ignore[arg-type]
        self.clients = {f"c{i}": Client(QuickWorker(setting.given, i), Memory()) for i in range(CLIENTS)}
        self.orders: list[tuple[str, Order, bytes, dict[str, Any]]] = []
        self.replies: list[tuple[str, Order, bytes]] = []

    def peers(self) -> list[Peer]:
        return [Peer(name, 2, int(name[1:])) for name in self.clients]

    def doubt(self, peer: Peer) -> None: ...

    def exchange(self, orders: Any, deadline: Any) -> Exchanged:
        found = {}
        for name, order in orders.items():
            sent = recorddict_to_proto(order_content(order, self.setting.given)).SerializeToString()
            self.orders.append((name, order, sent, dict(self.clients[name].vault.records)))
            with precision(np.dtype("float64")):
                reply = self.clients[name].answer(order)
            self.replies.append((name, order, recorddict_to_proto(reply_content(reply)).SerializeToString()))
            found[name] = reply
        return Exchanged(found)


def content_of(message: bytes) -> RecordDict:
    proto = Proto()
    proto.ParseFromString(message)
    return recorddict_from_proto(proto)


def mutated(rng: np.random.Generator, message: bytes, others: list[bytes]) -> RecordDict | None:
    """Return a changed message; None where Flower itself cannot read it."""
    if rng.random() < 0.2:
        data = bytearray(message)
        for _ in range(rng.integers(1, 6)):
            data[rng.integers(len(data))] = rng.integers(256)
        try:
            return content_of(bytes(data[: rng.integers(1, len(data) + 1)] if rng.random() < 0.3 else data))
        except Exception:
            return None
    content = content_of(message)
    with np.errstate(all="ignore"):
        for _ in range(rng.integers(1, 4)):
            change(rng, content, content_of(others[rng.integers(len(others))]))
    return content


def change(rng: np.random.Generator, content: RecordDict, other: RecordDict) -> None:
    """Change one thing about a message."""
    names = list(content)
    if not names or rng.random() < 0.1:
        record = ConfigRecord() if rng.random() < 0.5 else MetricRecord({"x": 1.0})
        content[str(rng.choice(["order", "reply", "message", "extra", "\n"]))] = record
        return
    name = str(rng.choice(names))
    if rng.random() < 0.1:
        del content[name]
    elif rng.random() < 0.1 and name in other:
        content[name] = other[name]
    elif isinstance(content[name], ArrayRecord):
        change_array(rng, content[name])
    else:
        change_value(rng, content[name])


def change_value(rng: np.random.Generator, record: Any) -> None:
    keys = list(record)
    if not keys:
        return
    key, value = str(rng.choice(keys)), WILD[rng.integers(len(WILD))]
    try:
        match rng.integers(6):
            case 0:
                del record[key]
            case 1:
                record[f"{key}{'x' * int(rng.integers(3))}"] = value
            case 2 | 3 if type(record[key]) in (int, float):
                record[key] += int(rng.integers(-1, 2))
            case _:
                record[key] = value
    except (TypeError, ValueError):  # Flower's records do not take it
        pass


def change_array(rng: np.random.Generator, record: Any) -> None:
    keys = list(record)
    if not keys:
        return
    key = str(rng.choice(keys))
    array = record[key]
    data, stype = array.data, array.stype
    match rng.integers(12):
        case 0:
            data = data[: rng.integers(len(data) + 1)]
        case 1:
            data = data + bytes(int(rng.integers(1, 10_000)))
        case 2:
            data = data.replace(b"(2,)", str(rng.choice(["(9,)", "(0,)", "(-2,)", "2", "()"])).encode().ljust(4))
        case 3:
            data = data.replace(b"(2,), }                ", b"(1000000000000,), }    ")
        case 4:
            data = data.replace(b"'<f8'", str(rng.choice(["'<f4'", "'|O' ", "'<i8'", "'<c8'", "'|V8'"])).encode())
        case 5:
            stype = str(rng.choice(["", "pickle", "torch"]))
        case 6:
            flat = bytearray(data)
            for _ in range(rng.integers(1, 40)):
                flat[rng.integers(len(flat))] = rng.integers(256)
            data = bytes(flat)
        case 7:
            tail = np.frombuffer(data[-8:], np.float64) if len(data) >= 8 else np.zeros(1)
            worse = float(rng.choice([np.nan, np.inf, 1e300, 1e30, -1.0])) * (tail + 1)
            data = data[:-8] + worse.tobytes()
        case 8:
            record[f"{key} "] = record.pop(key)
            return
        case _:
            head = data.index(b"\n") + 1 if b"\n" in data else len(data)
            if (len(data) - head) % 8 == 0:
                data = data[:head] + (rng.normal(1, 0.5) * np.frombuffer(data[head:], np.float64)).tobytes()
    record[key] = Array(array.dtype, array.shape, stype, data)


class Stub:
    """A grid with one node that has answered already."""

    def __init__(self) -> None:
        self.reply: Any = None
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as Flower sets them in its processes

    def get_node_ids(self) -> list[int]:
        return [7]

    def push_messages(self, messages: Any) -> list[str]:
        return ["m"]

    def pull_messages(self, numbers: Any) -> list[Any]:
        return [self.reply]


class Answer:
    """A message as the grid hands it over."""

    class metadata:  # noqa: N801
        reply_to_message_id = "m"

    def __init__(self, content: RecordDict) -> None:
        self.content = content

    def has_error(self) -> bool:
        return False


class Wire:
    """Recorded rounds of one algorithm, and both sides to deliver mutants to."""

    def __init__(self, method: str) -> None:
        rules = Rules(clients=CLIENTS, clients_per_round=2, dtype="float64")
        self.setting = Setting(METHODS[method], rules, START, (), zero(), Uniform(CLIENTS, 2))
        self.transport = Recorded(self.setting)
        driver = Driver(self.setting, self.transport, self.setting.first_book("r"))
        list(driver.run(4))
        driver.invariant_error()
        self.book, self.agreed = driver.book, fingerprint(self.setting.given)
        self.orders = [sent for _, _, sent, _ in self.transport.orders]
        self.replies = [sent for _, _, sent in self.transport.replies]
        self.server, self.grid = FlowerTransport(Stub(), self.setting), Stub()  # type: ignore[arg-type]
        self.server.grid = self.grid  # type: ignore[assignment]

    def to_server(self, rng: np.random.Generator) -> str:
        """Deliver a mutated reply; return what became of it."""
        name, order, message = self.transport.replies[rng.integers(len(self.replies))]
        content = mutated(rng, message, self.replies)
        if content is None:
            return "unreadable"
        self.grid.reply = Answer(content)
        self.server.known = {7: Peer(name, 2, int(name[1:]))}
        replies = self.server.exchange({name: order}, 0.0).replies
        if name not in replies:
            return "server refused it"
        start, tick = (int(part) for part in order.token.split("/")[1:])
        book = self.book._replace(starts=start, tick=tick)
        attempt = rounds.Attempt(book, [name], book.server, book.model_state, order.task.phase_index, {})
        before = [a.copy() for a in jax.tree.leaves((book.server, book.total))]
        try:
            rounds.take(self.setting, attempt, name, replies[name])
        except RefusedError:
            assert not attempt.uploads
            return "server refused it"
        finally:
            for a, b in zip(before, jax.tree.leaves((book.server, book.total))):
                np.testing.assert_array_equal(a, b)
        if order.kind == "train":
            assert all(np.isfinite(a).all() for a in jax.tree.leaves(attempt.uploads[name].content))
            assert 0 <= attempt.gradients < np.inf
        return "server took it"

    def to_client(self, rng: np.random.Generator) -> str:
        """Deliver a mutated order; return what became of it."""
        name, order, message, disk = self.transport.orders[rng.integers(len(self.orders))]
        content = mutated(rng, message, self.orders)
        if content is None:
            return "unreadable"
        vault = Memory()
        vault.records = dict(disk)
        client = Client(self.transport.clients[name].worker, vault)
        try:
            found = read_order(content, client.worker, self.agreed)
        except RefusedError:
            return "client refused it"
        try:
            with precision(np.dtype("float64")):
                client.answer(found)
        except Exception:  # the method itself may refuse numbers, such as one client per round
            assert set(disk) - {"pending"} <= set(vault.records)
            return "client failed over it"
        held = {record.values["token"] for record in vault.records.values()}
        known = {record.values["token"] for record in disk.values()}
        if found.accepted == order.accepted and order.accepted:
            assert order.accepted in held, "the client gave away what the server accepted"
        elif found.accepted not in known:
            assert "committed" not in disk or disk["committed"].values["token"] in held
        return "client answered it"


def fuzz(messages: int, seed: int) -> Counter[str]:
    """Deliver so many mutated messages; return what became of them."""
    wires = [Wire(method) for method in ("scaffold", "losac, exact", "mime_svrg", "tamuna")]
    outcomes: Counter[str] = Counter()
    for name in ("losac", "flwr"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(messages):
        rng = np.random.default_rng([seed, number])
        wire = wires[rng.integers(len(wires))]
        start = time.process_time()
        try:
            outcomes[wire.to_server(rng) if rng.random() < 0.5 else wire.to_client(rng)] += 1
        except BaseException as error:
            raise AssertionError(f"message {number} of seed {seed}: {type(error).__name__}: {error}") from error
        if (seconds := time.process_time() - start) > SLOW:
            raise AssertionError(f"message {number} of seed {seed} took {seconds:.1f} s")
    grown = 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began)
    assert grown < LARGE, f"the process grew by {grown / 2**20:.0f} MB"
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    for what, count in sorted(fuzz(arguments.messages, arguments.seed).items()):
        print(f"{count:8d}  {what}")
    print(f"no crash, no hang, nothing forgotten, in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
