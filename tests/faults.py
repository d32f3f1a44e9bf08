"""A federation in which everything goes wrong at random, and what must hold all the same.

    python tests/faults.py --schedules 100000
    python tests/faults.py --table docs/faults.md

The first runs so many random schedules, each a few rounds of a random algorithm with random faults: orders and replies
lost, late or doubled, clients killed before, during or after their work, disks lost or put back from an old copy, the
server killed at any of its writings, clients that join and leave. After every step the server's sums must be what the
clients hold, apart from what is known to be lost. The second measures every kind of fault by itself, for several
algorithms and for a client that keeps whatever it last computed, as most code does.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import losac.algorithms as A
from losac.algorithms.contract import Local, ValuedGradient
from losac.federation.book import Book, RefusedError, Rules
from losac.federation.drive import Driver, Exchanged, Peer
from losac.federation.protocol import NOTHING, Client, Order, Reply
from losac.federation.setting import Setting
from losac.federation.vault import Memory
from losac.federation.work import Assignment, Kept, Message, Result
from losac.prox import zero
from losac.simulation.sampling import Uniform
from losac.trees import add, map_trees

CLIENTS, SAMPLED, DIM = 4, 2, 2
BLOCKS = 2
START = np.zeros(DIM)
METHODS = {
    "losac, paper": A.losac(0.02, 2, BLOCKS),
    "losac, exact": A.losac(0.2, 2, BLOCKS, scaling="exact"),
    "losac_lean": A.losac_lean(0.2, 2, BLOCKS),
    "losac_lean, auto": A.losac_lean("auto", 2, BLOCKS),
    "scaffold": A.scaffold(0.2, 2, 1),
    "scaffold_momentum": A.scaffold_momentum(0.2, 2, 1),
    "feddyn": A.feddyn(0.2, 2, 1, alpha=1.0),
    "fedadmm": A.fedadmm(0.2, 2, 1, rho=1.0, variant="exact"),
    "fedadmm, gong": A.fedadmm(0.2, 2, 1, rho=1.0, variant="gong", server_step=0.5),
    "fedsaga": A.fedsaga(0.2, 2, BLOCKS),
    "fedavg": A.fedavg(0.2, 2, 1),
    "mime_svrg": A.mime_svrg(0.2, 2, 1),
    "feddyn, scheduled": A.feddyn(0.2, 2, 1, alpha=lambda r: 1.0 / (1.0 + 0.1 * r)),
    "fedvarp": A.fedvarp(0.2, 2, 1),
    "mifa": A.mifa(0.2, 2, 1),
    "vrl_sgd": A.vrl_sgd(0.2, 2, 1),
    "tamuna": A.tamuna(0.2, blocks=1, probability=0.5),
    "losac, robust": A.losac(0.2, 2, BLOCKS, scaling="exact", aggregation=(A.geometric_median(),)),
    "scaffold, robust": A.scaffold(0.2, 2, 1, aggregation=(A.coordinate_median(),)),
}
ZERO_SUMS = {
    "vrl_sgd": lambda x, state: (x - state.q) / state.length,
    "tamuna": lambda x, state: state.h,
}
"""Of methods whose clients' corrections add to zero without the server's help: the correction."""


KINDS = (
    "order lost", "order doubled", "old order delivered", "reply lost", "late reply instead", "client killed",
    "client killed after its work", "client away", "client joins or leaves", "client dismissed", "disk lost",
    "disk put back", "server killed before a write", "server killed after a write", "server killed in a round",
)  # fmt: skip


COMPANIONS = {
    "late reply instead": "reply kept back", "disk put back": "disk copied", "order doubled": "first reply lost"
}  # fmt: skip
"""What must happen too for a fault to happen."""


class Killed(BaseException):
    """The process is gone."""


class QuickWorker:
    """A client with f_i(x) = ½ Σ_j a_j ‖x − b_j‖² over its blocks, by NumPy alone."""

    def __init__(self, algorithm: Any, number: int) -> None:
        rng = np.random.default_rng(number)
        self.a, self.b = rng.uniform(0.5, 1.5, BLOCKS), rng.standard_normal((BLOCKS, DIM))
        self.algorithm, self.rows, self.params, self.model_state = algorithm, BLOCKS, START, ()
        self.kept_like = self.start(START)

    def start(self, params: Any) -> Kept:
        entry = np.zeros((self.algorithm.draw.blocks, DIM)) if self.algorithm.table else ()
        return Kept(self.algorithm.init_client(params), (), entry)

    def gradient(self, x: Any, block: int | None = None) -> Any:
        blocks = range(BLOCKS) if block is None else [block]
        return sum(self.a[j] * (x - self.b[j]) for j in blocks) * (1 if block is None else BLOCKS)

    def valued(self, block: int | None) -> ValuedGradient:
        blocks, times = (range(BLOCKS), 1) if block is None else ([block], BLOCKS)

        def value(x: Any) -> Any:
            return sum(0.5 * self.a[j] * np.sum((x - self.b[j]) ** 2) for j in blocks) * times

        return ValuedGradient(lambda x: self.gradient(x, block), lambda x: (value(x), self.gradient(x, block)))

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        phase = self.algorithm.at(task.round).phases()[task.phase_index]
        draw = phase.draw
        rng = np.random.default_rng([task.seed, task.round, task.client])
        here = Local(
            task.clients, task.sampled, lambda x, s: x, draw.blocks, draw.steps or 0, self.gradient, task.slot,
            jax.random.key(task.round),
        )  # fmt: skip
        local, state = phase.begin(here, message.content, kept.state)
        table = None if not phase.table else kept.table.copy()
        for _ in range(task.steps or draw.steps or 0):
            j = int(rng.integers(draw.blocks)) if draw.blocks > 1 else None
            if table is None:
                local = phase.step(here, message.content, state, local, self.valued(j))
            else:
                j = j or 0
                local, table[j] = phase.step(here, message.content, state, local, self.valued(j), table[j])
        upload, state = phase.end(here, message.content, state, local)
        found = map_trees(np.asarray, (upload, state))
        return Result(Message(found[0]), Kept(found[1], (), kept.table if table is None else table), 1.0)

    def settle(self, task: Assignment, upload: Any, accepted: Any, kept: Kept) -> Kept:
        algorithm = self.algorithm.at(task.round)
        rng, draw = np.random.default_rng([task.seed, task.round, task.client]), algorithm.draw
        here = Local(task.clients, task.sampled, None, draw.blocks, draw.steps, self.gradient, task.slot, None)
        state, change = algorithm.record(here, upload, accepted, kept.state)
        if not jax.tree.leaves(change):
            return kept._replace(state=map_trees(np.asarray, state))
        visited = np.unique([int(rng.integers(draw.blocks)) for _ in range(task.steps or draw.steps)])
        table = kept.table.copy()
        table[visited] += change / len(visited)
        return kept._replace(table=table)

    def evaluate(self, params: Any, model_state: Any) -> dict[str, float]:
        return {}


class Disk(Memory):
    """A vault that may kill its owner before or after a writing."""

    def __init__(self, rng: np.random.Generator, chance: float) -> None:
        super().__init__()
        self.rng, self.chance = rng, chance

    def _perhaps(self) -> None:
        if self.rng.random() < self.chance:
            raise Killed

    def write(self, name: str, record: Any) -> None:
        self._perhaps()
        super().write(name, record)
        self._perhaps()

    def commit(self) -> None:
        self._perhaps()
        super().commit()
        self._perhaps()


class Forgetful(Client):
    """A client as most code has it: it keeps what it last computed, and never learns what became of it."""

    def answer(self, order: Order) -> Reply:
        record = self.vault.read("committed")
        kept = self.worker.start(START) if record is None else self._kept(record)
        reply = self._hold(order, kept, record) if order.kind == "hold" else self._train(order, kept, record)
        if order.kind != "hold":
            self.vault.commit()
        return reply


class World:
    """Clients with their disks, a server with its own, and a network that loses, delays and doubles.

    It is the transport of a driver at the same time. ``rate`` is the chance of each fault at each opportunity.
    """

    def __init__(
        self, method: str, recovery: str, seed: int, rate: float = 0.1, only: str = "", naive: bool = False
    ) -> None:
        self.rng, self.rate, self.only, self.naive = np.random.default_rng(seed), rate, only, naive
        self.method, self.algorithm = method, self.make_algorithm(method)
        rules = self.make_rules(recovery, seed)
        sampler = Uniform(CLIENTS, rules.clients_per_round)
        self.setting = Setting(self.algorithm, rules, START, (), zero(), sampler)
        self.workers = {f"c{i}": self.make_worker(i) for i in range(CLIENTS)}
        self.disks = {name: Disk(self.rng, 0.0) for name in self.workers}
        self.copies: dict[str, dict[str, Any]] = {}
        self.old: list[tuple[str, Order]] = []
        self.gone: set[str] = set()
        self.saved: Book = self.setting.first_book("r")
        self.here = self.setting.here
        self.debts: dict[str, Any] = {}
        self.states: dict[str, Any] = {}
        self.faults: dict[str, int] = {}
        self.late: dict[str, Reply] = {}
        self.harmed: set[str] = set()
        self.driver = self.new_driver()

    def make_algorithm(self, method: str) -> Any:
        return METHODS[method]

    def make_rules(self, recovery: str, seed: int) -> Rules:
        sampled = SAMPLED if self.algorithm.partial else CLIENTS
        return Rules(
            clients=CLIENTS, clients_per_round=sampled, recovery=recovery, dtype="float64", seed=seed,
            fewest=1 + seed % 2,
        )  # fmt: skip

    def make_worker(self, number: int) -> Any:
        return QuickWorker(self.algorithm, number)

    def make_client(self, name: str) -> Client:
        return (Forgetful if self.naive else Client)(self.workers[name], self.disks[name])

    def make_driver(self) -> Driver:
        return Driver(self.setting, self, self.saved, self.save)

    def chance(self, name: str, share: float = 1.0) -> bool:
        """Decide whether a fault happens, and count it."""
        if self.only:
            share = 1.0 if name in (self.only, COMPANIONS.get(self.only)) else 0.0
        happens = bool(self.rng.random() < self.rate * share)
        if happens:
            self.faults[name] = self.faults.get(name, 0) + 1
        return happens

    # -- the server and its disk

    def save(self, book: Book) -> None:
        if self.chance("server killed before a write", 0.1):
            raise Killed
        self.saved = book
        if self.chance("server killed after a write", 0.1):
            raise Killed

    def new_driver(self) -> Driver:
        """Start the server from its disk, as often as it is killed while it starts."""
        while True:
            try:
                return self.make_driver()
            except Killed:
                continue

    # -- the transport

    def peers(self) -> list[Peer]:
        there = [name for name in self.workers if name not in self.gone and not self.chance("client away", 0.5)]
        return [Peer(name, BLOCKS, int(name[1:])) for name in there]

    def doubt(self, peer: Peer) -> None: ...

    def exchange(self, orders: Any, deadline: Any) -> Exchanged:
        replies: dict[str, Reply] = {}
        for name, order in orders.items():
            self.old.append((name, order))
            if self.chance("order lost"):
                continue
            if self.old and self.chance("old order delivered"):
                self.deliver(*self.old[int(self.rng.integers(len(self.old)))])
            reply = self.deliver(name, order)
            if self.chance("order doubled"):
                again = self.deliver(name, order)
                reply = again if self.chance("first reply lost", 3.0) else reply or again
            if reply is not None and reply.status == "lost":
                assert order.accepted != NOTHING, "a client of which nothing is held cannot have lost it"
                assert name in self.harmed, "a client whose disk is whole says that it lost its state"
            if reply is not None and not self.chance("reply lost"):
                replies[name] = reply
            if name in self.late and self.chance("late reply instead"):
                replies[name] = self.late[name]
            if reply is not None and self.chance("reply kept back"):
                self.late[name] = reply
            if self.chance("server killed in a round", 0.1):
                raise Killed
        self.old = self.old[-20:]
        return Exchanged(replies)

    def deliver(self, name: str, order: Order) -> Reply | None:
        """Let a client answer; None where it is killed."""
        disk = self.disks[name]
        disk.chance = self.rate / 3 if self.only in ("", "client killed") else 0.0
        try:
            reply = self.make_client(name).answer(order)
        except Killed:
            self.faults["client killed"] = self.faults.get("client killed", 0) + 1
            return None
        finally:
            disk.chance = 0.0
        return None if self.chance("client killed after its work", 0.5) else reply

    # -- what happens between rounds

    def step(self) -> None:
        """One attempt at a round, with whatever happens before it."""
        for name in self.workers:
            if self.chance("disk copied", 0.5):
                self.copies[name] = dict(self.disks[name].records)
            if self.chance("disk lost", 0.3):
                self.disks[name].records.clear()
                self.harmed.add(name)
            if name in self.copies and self.chance("disk put back", 0.3):
                self.disks[name].records = dict(self.copies[name])
                self.harmed.add(name)
            if self.chance("client joins or leaves", 0.2):
                self.gone ^= {name}
        members = list(self.driver.book.members)
        try:
            if members and self.chance("client dismissed", 0.3):
                from losac.federation.membership import dismiss

                name = members[int(self.rng.integers(len(members)))]
                self.driver.keep(dismiss(self.setting, self.driver.book, name))
                self.gone.add(name)
            self.driver.attempt()
        except Killed:
            self.faults["server killed"] = self.faults.get("server killed", 0) + 1
            self.driver = self.new_driver()
        except RefusedError:
            pass

    # -- what must hold

    def kept(self, name: str, accepted: str) -> Kept | None:
        """What a client keeps of what the server accepted; None where its disk does not have it."""
        client = Client(self.workers[name], self.disks[name])
        for record in self.disks[name].records.values():
            if self.naive or client._is(record, accepted):
                return client._kept(record)
        return None

    def holding(self, name: str, accepted: str) -> Any:
        """What a client holds of what the server accepted."""
        kept = self.kept(name, accepted)
        return kept and self.algorithm.at(self.saved.round).holding(self.here, self.saved.first, kept.state, kept.table)

    def zero_sum(self) -> float:
        """How far the clients' corrections are from adding to zero; a state not on the disk counts as it last was."""
        found, x = [np.zeros(DIM)], self.setting.model(self.saved)
        for name, member in self.saved.members.items():
            fresh = self.workers[name].start(self.saved.first)
            kept = fresh if member.accepted == NOTHING else self.kept(name, member.accepted)
            self.states[name] = kept or self.states[name]
            found.append(ZERO_SUMS[self.method](x, self.states[name].state))
        return float(np.abs(sum(found)).max() / (1 + np.abs(found).sum()))

    def error(self) -> float:
        """How far the server's sums are from what its clients hold, or held before they lost it."""
        if self.method in ("fedvarp", "mifa"):
            rows = [np.zeros(DIM), *(member.row for member in self.saved.members.values())]
            return float(np.abs(self.saved.server.mean - sum(rows) / CLIENTS).max())
        if self.method in ZERO_SUMS:
            return self.zero_sum()
        if not self.setting.keeps_sums:
            return 0.0
        book, due, size = self.saved, map_trees(np.zeros_like, self.setting.no_credit), 1.0
        for name, member in book.members.items():
            if member.accepted != NOTHING:
                held = self.holding(name, member.accepted)
                if held is not None:
                    self.debts[name] = held
            elif not book.unsettled:
                self.debts.pop(name, None)
        for name in list(self.debts):
            if name not in book.members and not book.unsettled:
                del self.debts[name]
        for held in self.debts.values():
            due = add(due, held)
            size += sum(float(np.abs(a).sum()) for a in jax.tree.leaves(held))
        total = max(float(np.abs(a - b).max()) for a, b in zip(jax.tree.leaves(book.total), jax.tree.leaves(due)))
        bare = self.setting.shifted(book, map_trees(lambda a: -a, book.total))
        start = self.setting.call(lambda: self.setting.algorithm.at(0).init(book.first))
        left = 0.0
        for a, b, c in zip(*map(jax.tree.leaves, (bare, start, book.server))):
            if np.any(a != c):
                left = max(left, float(np.abs(a - b).max()))
        return max(total, left) / size

    @property
    def optimum(self) -> np.ndarray:
        """Where the sum of all clients' losses is least."""
        a = np.concatenate([w.a for w in self.workers.values()])
        return (a[:, None] * np.concatenate([w.b for w in self.workers.values()])).sum(0) / a.sum()


def run_schedule(seed: int, steps: int = 8, method: str | None = None, recovery: str | None = None) -> World:
    """Run one random schedule; raise AssertionError where the sums are wrong after any step."""
    rng = np.random.default_rng([seed, 1])
    method = method or list(METHODS)[int(rng.integers(len(METHODS)))]
    recovery = recovery or ("ledger", "resync", "reset")[int(rng.integers(3))]
    world = World(method, recovery, seed, rate=float(rng.uniform(0.02, 0.4)))
    for step in range(steps):
        world.step()
        assert world.driver.book is world.saved, "the server believes in something that is not on its disk"
        error = world.error()
        assert error < 1e-9, f"schedule {seed}, {method}, {recovery}, step {step}: the sums are off by {error:.1e}"
    return world


def largest_error(method: str, kind: str, naive: bool = False, schedules: int = 20, steps: int = 12) -> float:
    """Return the largest error over some schedules with one kind of fault only."""
    worst = 0.0
    for seed in range(schedules):
        world = World(method, "ledger" if naive else "resync", seed, rate=0.3, only=kind, naive=naive)
        world.harmed = set(world.workers)
        for _ in range(steps):
            world.step()
            if naive:
                world.debts.clear()
            worst = max(worst, world.error())
    return worst


TABULATED = ("losac, paper", "losac, exact", "scaffold", "feddyn", "fedadmm")


def head() -> list[str]:
    """Return the page up to the table's rows."""
    return [
        "# Faults and sums\n",
        "How far faults drive the server's sums away from what the clients hold, with [the protocol](protocol.md) and "
        "without it. For readers who want to see whether the protocol is needed.\n",
        "The table has the largest relative error of the server's sum (φ − κ Σ_i Y_i of LoSAC, and the "
        "corresponding sums of the others) after any step of 20 runs of 12 rounds. In each run one kind of fault "
        "happens with a chance of 0.3 at every opportunity (double precision, four clients, two per round, "
        "resync). The last column is LoSAC as most code would run it: clients keep what they last computed, and "
        "the server adds up what comes back. Measured by `python tests/faults.py --table docs/faults.md`.\n",
        f"The random schedules of `python tests/faults.py --schedules` draw from all {len(KINDS)} faults at once, and "
        f"from {len(METHODS)} methods: {'; '.join(METHODS)}.\n",
        f"| fault | {' | '.join(TABULATED)} | losac, without the protocol |",
        f"|---|{'---|' * (len(TABULATED) + 1)}",
    ]


def write_table(path: str) -> None:
    """Measure every kind of fault separately, and write a page."""
    lines = head()
    for kind in KINDS:
        cells = [f"{largest_error(method, kind):.0e}" for method in TABULATED]
        cells.append(f"{largest_error('losac, exact', kind, naive=True):.0e}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    Path(path).write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--table", help="measure every kind of fault by itself, and write this page")
    arguments = parser.parse_args()
    logging.getLogger("losac").setLevel(logging.CRITICAL)
    if arguments.table:
        write_table(arguments.table)
        return
    began, faults, rounds = time.time(), {}, 0
    for seed in range(arguments.first, arguments.first + arguments.schedules):
        world = run_schedule(seed, arguments.steps)
        rounds += world.saved.round
        for name, count in world.faults.items():
            faults[name] = faults.get(name, 0) + count
    print(f"{arguments.schedules} schedules, {rounds} rounds accepted, {time.time() - began:.0f} s; faults:")
    for name, count in sorted(faults.items(), key=lambda item: -item[1]):
        print(f"  {count:8d} {name}")


if __name__ == "__main__":
    main()
