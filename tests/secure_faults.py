"""The world in which everything goes wrong, with secure aggregation.

    python tests/secure_faults.py --schedules 2000

Clients and the server are killed at any of their writings and between any two steps of a sum; orders and replies are
lost, late and doubled; disks are lost or put back. After every step the server's sum must be, in whole numbers, what
the clients hold; and no client may ever tell both secrets of a peer, or sign two sets of survivors, in one session.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

import jax
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import losac.algorithms as A
from faults import BLOCKS, CLIENTS, DIM, Killed, World
from losac.federation.book import Rules
from losac.federation.drive import Exchanged
from losac.federation.errors import RefusedError
from losac.federation.numpy import numpy_worker
from losac.federation.protocol import NOTHING, Client, Order, Reply
from losac.federation.secure import notes
from losac.federation.secure.client import SecureClient, session_of
from losac.federation.secure.drive import SecureDriver, exact_server
from losac.federation.secure.identity import Trust, public_key
from losac.federation.secure.rules import SecureRules

METHODS = {
    "losac, exact": A.losac(0.2, 2, BLOCKS, scaling="exact"),
    "scaffold": A.scaffold(0.2, 2, 1),
    "feddyn": A.feddyn(0.2, 2, 1, alpha=1.0),
    "mime_svrg": A.mime_svrg(0.2, 2, 1),
}
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(CLIENTS)]
PEERS = {f"c{n}": public_key(key) for n, key in enumerate(KEYS)}


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x.T @ (x @ w - y) / len(x)


class SecureWorld(World):
    """A world whose server sees sums only."""

    def __init__(self, method: str, seed: int, rate: float) -> None:
        self.told: dict[tuple[str, str, str], set[str]] = {}
        self.signed: dict[tuple[str, str], set[bytes]] = {}
        self.resumed = 0
        super().__init__(method, "reset", seed, rate)

    def make_algorithm(self, method: str) -> Any:
        return METHODS[method].replace(uploads=(A.fixed_point(16.0, 30),))

    def make_rules(self, recovery: str, seed: int) -> Rules:
        return Rules(
            clients=CLIENTS, clients_per_round=CLIENTS, recovery=recovery, dtype="float64", seed=seed, fewest=3,
            largest=None, secure=SecureRules(threshold=3),
        )  # fmt: skip

    def make_worker(self, number: int) -> Any:
        rng = np.random.default_rng(number)
        x, y = rng.standard_normal((2 * BLOCKS, DIM)), rng.standard_normal(2 * BLOCKS)
        return numpy_worker(self.algorithm, gradient, x, y, params=np.zeros(DIM))

    def make_client(self, name: str) -> Client:
        return SecureClient(self.workers[name], self.disks[name], Trust(name, KEYS[int(name[1:])], PEERS))

    def make_driver(self) -> SecureDriver:
        return SecureDriver(self.setting, self, self.saved, self.save)

    def deliver(self, name: str, order: Order) -> Reply | None:
        """Let a client answer, and note what it tells, also where its answer is lost."""
        try:
            reply = super().deliver(name, order)
        except RefusedError:
            return None
        session = session_of(order.token, order.task.phase_index)
        if reply is not None and reply.secure and order.kind == "unmask":
            for kind, owners in notes.read(reply.secure, "own", "mask").items():
                for owner in owners:
                    self.told.setdefault((session, name, owner), set()).add(kind)
        if reply is not None and reply.secure and order.kind == "agree":
            self.signed.setdefault((session, name), set()).add(reply.secure)
        return reply

    def exchange(self, orders: Any, deadline: Any) -> Exchanged:
        """Carry orders; the server may be killed right after those that lead to a sum."""
        found = super().exchange(orders, deadline)
        late = {order.kind for order in orders.values()} & {"train", "agree", "unmask"}
        if late and self.chance("server killed between two steps of a sum", 2.0):
            raise Killed
        return found

    def step(self) -> None:
        self.resumed += self.driver.book.sealed is not None
        super().step()

    def held(self, name: str, accepted: str) -> Any:
        """What a client holds of what the server accepted, in whole numbers; None if its disk does not have it."""
        client = Client(self.workers[name], self.disks[name])
        for place, record in self.disks[name].records.items():
            if place != "session" and client._is(record, accepted):
                return record.arrays["held"]
        return None

    def error(self) -> float:
        """1 if any promise is broken, or how far the server's state is from its own whole numbers."""
        assert all(len(kinds) == 1 for kinds in self.told.values()), "a client has told both secrets of a peer"
        assert all(len(signatures) == 1 for signatures in self.signed.values()), "a client signed two sets"
        if not self.setting.keeps_sums:
            return 0.0
        book, due = self.saved, [np.zeros(DIM, np.int64) for _ in jax.tree.leaves(self.setting.no_credit)]
        for name, member in book.members.items():
            if member.accepted == NOTHING:
                self.debts.pop(name, None)
            elif (held := self.held(name, member.accepted)) is not None:
                self.debts[name] = held
        for name in list(self.debts):
            if name not in book.members:
                del self.debts[name]
        for held in self.debts.values():
            due = [a + b for a, b in zip(due, held)]
        if any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(book.total), due)):
            return 1.0
        if book.round == 0 or not self.debts:
            return 0.0
        exact = exact_server(self.setting, book, book.round - 1)
        pairs = zip(jax.tree.leaves(exact), jax.tree.leaves(book.server))
        return max(float(np.abs(a - b).max()) for a, b in pairs)


def run_schedule(seed: int, steps: int = 8) -> SecureWorld:
    """Run one random schedule; raise AssertionError where a promise is broken."""
    rng = np.random.default_rng([seed, 2])
    method = list(METHODS)[int(rng.integers(len(METHODS)))]
    with jax.enable_x64(True):
        world = SecureWorld(method, seed, float(rng.uniform(0.005, 0.05)))
        for step in range(steps):
            world.step()
            error = world.error()
            assert error == 0.0, f"schedule {seed}, {method}, step {step}: off by {error:.1e}"
    return world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    logging.getLogger("losac").setLevel(logging.CRITICAL)
    began, faults, rounds, resumed = time.time(), {}, 0, 0
    for seed in range(arguments.first, arguments.first + arguments.schedules):
        world = run_schedule(seed)
        rounds, resumed = rounds + world.saved.round, resumed + world.resumed
        for name, count in world.faults.items():
            faults[name] = faults.get(name, 0) + count
    seconds = time.time() - began
    print(
        f"{arguments.schedules} schedules, {rounds} rounds accepted, {resumed} continued after a kill, {seconds:.0f} s"
    )
    for name, count in sorted(faults.items(), key=lambda item: -item[1]):
        print(f"  {count:8d} {name}")


if __name__ == "__main__":
    main()
