"""Runs a federation whose server sees sums only: every phase of a round, and every check, is one masked sum.

The book holds who is in a sum, with the sum itself, before any client is asked to unmask it. A server that is killed
after that continues with the same clients; one that is killed before starts the round again, with fresh keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from losac.algorithms.contract import Received
from losac.federation import rounds
from losac.federation.book import Book, RefusedError
from losac.federation.checks import check_arrays, check_cost
from losac.federation.drive import Driver, MeasuredRound
from losac.federation.invariant import norm
from losac.federation.membership import assignment
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.secure import session as sums
from losac.federation.secure.levels import (
    Levels,
    as_int64,
    credit_of,
    credit_values,
    credited,
    values_of,
)
from losac.federation.secure.likes import masked_reply_like
from losac.federation.secure.refusals import LEAST
from losac.federation.secure.sealed import Sealed
from losac.federation.secure.session import Session
from losac.federation.setting import Setting
from losac.federation.shapes import own_phase_index
from losac.federation.work import Message
from losac.trees import Tree, map_trees

LOG = logging.getLogger("losac")


class SecureDriver(Driver):
    """The loop of a server that sees sums only; arguments as for :class:`losac.federation.drive.Driver`."""

    def _attempt(self) -> MeasuredRound:
        """Try one round, or finish the one that was begun before a crash."""
        if self.book.sealed is None:
            return super()._attempt()
        began, present = time.perf_counter(), self.gather()
        self.spent.clear()
        LOG.warning("the round is continued where its clients were fixed")
        return self._carry_out(self.book.sealed.attempt(self.book), present, began)

    def resync(self, present: Any) -> None:
        """Never: the sum before a loss less the sum after it would be what one client held."""
        raise AssertionError("with secure aggregation all start again after a loss")

    def invariant_error(self) -> float:
        """Return how far the server's sum is from what all clients hold, in whole numbers: 0 if it is the same.

        NaN if not all answer: what only some hold, taken from the sum, is what the others hold.
        """
        if not self.setting.keeps_sums:
            return 0.0
        present = self.gather()
        if not set(self.book.members) <= present or self.book.sealed is not None:
            return float("nan")
        self.keep(self.book.next_attempt())
        book, orders = self.book, {}
        for name, member in book.members.items():
            task = assignment(self.setting, book, member, 0, 0, None)
            orders[name] = Order("hold", book.token, member.accepted, task, start=book.first, name=name, key=member.key)
        session = self._collect(orders, masked_reply_like(self.setting, "hold"), [])
        if set(session.survivors) != set(orders):
            return float("nan")
        try:
            held = as_int64(sums.reveal(session, orders, self._exchange))
        except RefusedError as error:
            LOG.error("what the clients hold stays masked: %s", error)
            return float("nan")
        total: Levels = jax.tree.leaves(book.total)
        off = norm([a - b for a, b in zip(total, held)]) / max(norm(total), 1.0)
        rounded = exact_server(self.setting, book, max(book.round - 1, 0))
        pairs = list(zip(jax.tree.leaves(rounded), jax.tree.leaves(book.server)))
        return max(off, norm([a - b for a, b in pairs]) / max(norm([b for _, b in pairs]), 1e-30))

    # -- one round

    def _go_through(self, attempt: rounds.Attempt, present: set[str]) -> None:
        session = None if self.book.sealed is None else self.book.sealed.session
        while not attempt.void and attempt.phase_index < len(self.setting.algorithm.phases()):
            before = None if attempt.uploads is None else list(attempt.uploads)
            orders = rounds.orders(self.setting, attempt)
            if orders is None:
                attempt.phase_index += 1
                continue
            sent = {name: order for name, order in orders.items() if name in present}
            session = session or self._sum(attempt, sent, before)
            self._check_count(attempt, session, len(orders))
            if not attempt.void:
                if self.book.sealed is None:
                    self.keep(self.book._replace(sealed=Sealed.of(attempt, session, before)))
                self._close(attempt, session, sent)
                session = None
                if not attempt.void and attempt.phase_index < len(self.setting.algorithm.phases()):
                    self.book = self.book._replace(sealed=None)  # the next phase's follows, or the round is void
        if attempt.void and self.book.sealed is not None:
            self.keep(self.book._replace(sealed=None))

    def _sum(self, attempt: rounds.Attempt, sent: Mapping[str, Order], before: Sequence[str] | None) -> Session:
        """Collect the masked uploads of a phase."""
        like = masked_reply_like(self.setting, "train", attempt.phase_index)
        session = self._collect(sent, like, attempt.lost)
        attempt.failed |= set(sent) - set(session.survivors)
        return session

    def _collect(self, orders: Mapping[str, Order], like: Sequence[np.ndarray], lost: list[str]) -> Session:
        """Let clients agree on keys, and add up what they send under masks."""
        assert self.setting.rules.secure is not None
        session = Session("", 0, 0, 0) if not orders else sums.begin(orders, self.setting.rules.secure)
        sums.exchange_keys(session, orders, self._exchange)
        for name, reply in self._exchange(sums.masked_orders(session, orders)).items():
            try:
                _check_reply(session, name, reply, lost)
                sums.take(session, name, reply, like)
            except Exception as error:  # whatever it sent, the sum goes on without it
                reason = error if isinstance(error, RefusedError) else type(error).__name__
                LOG.error("what client %s sent is refused: %s", name, reason, extra={"client": name})
        return session

    def _check_count(self, attempt: rounds.Attempt, session: Session, asked: int) -> None:
        now = self.setting.algorithm.at(attempt.book.round)
        least = max(rounds.needed(self.setting), asked if now.needs_all_replies else LEAST)
        if len(session.survivors) < least:
            attempt.void = f"{len(session.survivors)} of {asked} clients answered, and it needs {least}"

    def _close(self, attempt: rounds.Attempt, session: Session, orders: Mapping[str, Order]) -> None:
        """Unmask the sum of a phase and update the server with it, or find that the round does not count."""
        setting, count = self.setting, len(session.survivors)
        now = setting.algorithm.at(attempt.book.round)
        phase, payload = now.phases()[attempt.phase_index], setting.payload_like(attempt.phase_index)
        try:
            levels = as_int64(sums.reveal(session, orders, self._exchange))
            most = count * 2 ** now.transforms_of(phase)[-1].bits
            if any((abs(level) > most).any() for level in levels):
                raise RefusedError("the sum is larger than all uploads together can be")
            received = Received(values_of(payload, levels), np.asarray(count, setting.rules.dtype))
            server = setting.call(lambda: phase.update(setting.here, attempt.server, received))
            check_arrays(server, attempt.book.server)
        except RefusedError as error:
            attempt.void = f"the sum cannot be used: {error}"
            return
        attempt.server = server
        attempt.uploads = {name: Message(()) for name in session.survivors}
        attempt.gradients += session.gradients
        if phase is now:
            attempt.own = {name: ((), attempt.book.members[name].row) for name in session.survivors}
            attempt.levels = credit_of(credited(now, payload), levels)
        attempt.phase_index += 1

    def _accepted(self, attempt: rounds.Attempt) -> Book:
        """Return the book after a finished round; the sum is a sum of whole numbers, and the server's state follows."""
        book = attempt.book
        accepted = book.token if self.setting.keeps_state else NOTHING
        members = {
            name: member._replace(accepted=accepted) if name in attempt.own else member
            for name, member in book.members.items()
        }
        leaves, structure = jax.tree.flatten(book.total)
        assert attempt.levels is not None
        total = jax.tree.unflatten(structure, [a + b for a, b in zip(leaves, attempt.levels)])
        book = book._replace(server=attempt.server, total=total, members=members, sealed=None)
        server = exact_server(self.setting, book, book.round)
        starts, tick = self.book.starts, self.book.tick  # later than the round's, if it was begun before a crash
        return book._replace(server=server, round=book.round + 1, starts=starts, tick=tick)


def exact_server(setting: Setting, book: Book, round_index: int) -> Tree:
    """Return the server's state with its sum over the clients as the whole numbers say, rounded once.

    Floating-point sums of many rounds would drift away from these.
    """
    if not setting.keeps_sums:
        return book.server
    book = book._replace(round=round_index)
    moved = setting.shifted(book, map_trees(np.ones_like, setting.no_credit))
    start = setting.call(lambda: setting.algorithm.at(0).init(book.first))
    bare = map_trees(lambda now, other, first: first if np.any(now != other) else now, book.server, moved, start)
    payload = setting.payload_like(own_phase_index(setting.algorithm))
    parts = credited(setting.algorithm.at(round_index), payload)
    total = credit_values(parts, jax.tree.leaves(book.total), setting.no_credit)
    return setting.shifted(book._replace(server=bare), total)


def _check_reply(session: Session, name: str, reply: Reply, lost: list[str]) -> None:
    if (reply.token, reply.phase_index) != (session.token, session.phase_index):
        raise RefusedError("it answers an order other than the current one")
    if reply.status == "lost":
        lost.append(name)
        raise RefusedError("it no longer has the state that was accepted from it, and all start again")
    if reply.status != "done":
        raise RefusedError("it takes the order for an old one")
    check_cost(reply.gradients)
