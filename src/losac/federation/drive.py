"""Runs a federation over any transport: rounds, deadlines, lost and late clients, checkpoints, what is measured."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from losac._costs import COSTS
from losac.federation import logs, membership, rounds
from losac.federation.book import Book, RefusedError
from losac.federation.invariant import invariant_error
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.setting import Setting

LOG = logging.getLogger("losac")

LONGEST_PAUSE = 60.0


class Peer(NamedTuple):
    """A client that is there: its name, its number of rows, the place it asks for, if any, its key, its losac."""

    name: str
    rows: int
    client: int | None = None
    key: str = ""
    losac: str = ""


class Exchanged(NamedTuple):
    """What came back within the deadline, by client, and what it cost, by name in :data:`losac._costs.COSTS`."""

    replies: Mapping[str, Reply]
    costs: Mapping[str, float] = MappingProxyType({})


class Transport(Protocol):
    """How orders travel."""

    def peers(self) -> Iterable[Peer]:
        """Return the clients that are present now."""

    def exchange(self, orders: Mapping[str, Order], deadline: float | None) -> Exchanged:
        """Send orders and wait for the replies until the deadline; late and broken ones are left out."""

    def doubt(self, peer: Peer) -> None:
        """Take note that a client is refused: whoever said that it is this one may say something else later."""


class MeasuredRound(NamedTuple):
    """The outcome of a round: the book after it, who took part, and what it cost."""

    book: Book
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    void: str
    costs: Mapping[str, float]
    seconds: float


class Driver:
    """The server's loop.

    Args:
      setting: what is run.
      transport: how orders travel.
      book: to continue from, or the setting's first.
      save: puts a book on the disk; called before anything is sent that builds on it.
      deadline: seconds for each phase of a round; None waits for all.
      weigh: a client's N·p_i from its number of rows.
      forget_after: dismiss clients that were not there for so many rounds; None never does.
      requests: returns a book after what an operator asked for; called before each round.
      pause: seconds to wait after a round that did not count; twice as many after the next, and so on.
    """

    def __init__(
        self, setting: Setting, transport: Transport, book: Book, save: Callable[[Book], None] = lambda book: None, *,
        deadline: float | None = None, weigh: Callable[[int], float] = lambda rows: 1.0,
        forget_after: int | None = None, pause: float = 0.0, requests: Callable[[Book], Book] = lambda book: book,
    ) -> None:  # fmt: skip
        self.setting, self.transport, self.save = setting, transport, save
        self.deadline, self.weigh, self.forget_after, self.pause = deadline, weigh, forget_after, pause
        self.requests = requests
        self.seen: dict[str, int] = {}
        self.present: set[str] = set()
        self.releases: dict[str, str] = {}
        self.failed: set[str] = set()
        self.spent: Counter[str] = Counter()
        self.book = book
        self.keep(book.started())

    def keep(self, book: Book) -> None:
        """Put a book on the disk; it counts from here on."""
        self.save(book)
        self.book = book

    def run(self, stop: int, attempts: int = 20) -> Iterator[MeasuredRound]:
        """Run until this many rounds are accepted; give up after this many attempts in a row that did not count.

        After each of these it waits, longer every time, for clients to come back.
        """
        idle = 0
        while self.book.round < stop:
            measured = self.attempt()
            yield measured
            idle = idle + 1 if measured.void else 0
            if idle >= attempts:
                raise RefusedError(f"{idle} rounds in a row did not count, the last because {measured.void}")
            if idle:
                time.sleep(min(self.pause * 2 ** (idle - 1), LONGEST_PAUSE))

    def attempt(self) -> MeasuredRound:
        """Try one round; repair the sums first if necessary."""
        with logs.about(round=self.book.round + 1):
            return self._attempt()

    def _attempt(self) -> MeasuredRound:
        began, self.spent = time.perf_counter(), Counter()
        if (asked_for := self.requests(self.book)) is not self.book:
            self.keep(asked_for)
        present = self.gather()
        self._dismiss_the_gone(present)
        if self.book.unsettled:
            self.resync(present)
        self.keep(self.book.next_attempt())
        willing = present - self.failed if len(present - self.failed) >= rounds.needed(self.setting) else present
        attempt = rounds.open_round(self.setting, self.book, willing)
        return self._carry_out(attempt, present, began)

    def _carry_out(self, attempt: rounds.Attempt, present: set[str], began: float) -> MeasuredRound:
        """Go through the phases of a round, and keep what follows from them."""
        self._go_through(attempt, present)
        if not attempt.void:
            self.keep(self._accepted(attempt)._replace(answered=tuple(attempt.own)))
        else:
            LOG.warning("this attempt at the round does not count: %s", attempt.void)
            if attempt.book.bounds != self.book.bounds:
                self.keep(self.book._replace(bounds=attempt.book.bounds))
        if attempt.lost:
            self.keep(membership.lose(self.setting, self.book, attempt.lost))
        asked, answered = tuple(attempt.asked), tuple(attempt.own)
        spent = {**self.spent, "gradients": attempt.gradients}
        self.failed = attempt.failed
        return MeasuredRound(
            self.book, asked, () if attempt.void else answered, attempt.void,
            {name: spent.get(name, 0) for name in COSTS},
            time.perf_counter() - began,
        )  # fmt: skip

    def _accepted(self, attempt: rounds.Attempt) -> Book:
        """Return the book after a finished round."""
        return rounds.accepted(self.setting, attempt)

    def gather(self) -> set[str]:
        """Return the members that are present, including newcomers."""
        present = set()
        for peer in self.transport.peers():
            try:
                weight = self.weigh(peer.rows)
                book = membership.enrol(self.setting, self.book, peer.name, peer.rows, peer.client, weight, peer.key)
            except RefusedError as error:
                LOG.error("a client is not taken in: %s", error, extra={"client": peer.name})
                self.transport.doubt(peer)
                continue
            if book is not self.book:
                self.keep(book)
            present.add(peer.name)
            self.seen[peer.name] = self.book.round
            self.releases[peer.name] = peer.losac
        self.present = present
        return present

    def resync(self, present: Iterable[str]) -> None:
        """Form the server's sums again from what the clients hold."""
        self.keep(self.book.next_attempt())
        asked = membership.ask_holdings(self.setting, self.book, present)
        replies = self._exchange(asked)
        self.keep(membership.settle(self.setting, self.book, replies))
        LOG.warning("the sums were formed again from what %d of %d clients hold", len(replies), len(asked))

    def invariant_error(self) -> float:
        """Ask all clients what they hold; return how far the server's sums are from it, NaN if not all answer."""
        present = self.gather()
        if self.book.unsettled:
            self.resync(present)
        self.keep(self.book.next_attempt())
        asked = membership.ask_holdings(self.setting, self.book, present)
        if len(asked) < sum(member.accepted != NOTHING for member in self.book.members.values()):
            return float("nan")
        replies = self._exchange(asked)
        held = [
            membership.weighted(self.setting, self.book.members[name], reply.upload.content)
            for name, reply in replies.items()
            if reply.status == "done"
        ]
        return invariant_error(self.setting, self.book, held) if len(held) == len(asked) else float("nan")

    def _go_through(self, attempt: rounds.Attempt, present: set[str]) -> None:
        for _ in self.setting.algorithm.phases():
            if attempt.void:
                return
            orders = rounds.orders(self.setting, attempt)
            if orders is None:
                attempt.phase_index += 1
                continue
            sent = {name: order for name, order in orders.items() if name in present}
            for name, reply in self._exchange(sent).items():
                try:
                    rounds.take(self.setting, attempt, name, reply)
                except Exception as error:  # whatever it sent, the round goes on without it
                    reason = error if isinstance(error, RefusedError) else type(error).__name__
                    LOG.error("what client %s sent is refused: %s", name, reason, extra={"client": name})
            for name, why in rounds.sift(self.setting, attempt).items():
                LOG.error("what client %s sent is refused: %s", name, why, extra={"client": name})
            attempt.failed |= set(sent) - set(attempt.uploads or ())
            rounds.close_phase(self.setting, attempt, list(orders))

    def _exchange(self, orders: Mapping[str, Order]) -> Mapping[str, Reply]:
        if not orders:
            return {}
        exchanged = self.transport.exchange(orders, self.deadline)
        self.spent.update(exchanged.costs)
        return exchanged.replies

    def _dismiss_the_gone(self, present: set[str]) -> None:
        if self.forget_after is None:
            return
        for name in set(self.book.members) - present:
            last = self.seen.setdefault(name, self.book.round)
            if self.book.round - last >= self.forget_after:
                LOG.warning(
                    "client %s was absent for %d rounds and is removed", name, self.forget_after, extra={"client": name}
                )
                self.keep(membership.dismiss(self.setting, self.book, name))
