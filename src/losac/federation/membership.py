"""Who belongs to a federation, and how the server's sums stay right when somebody's part of them is gone.

All functions return a new book; nothing else changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from losac.federation.book import Book, Member, RefusedError
from losac.federation.checks import check_arrays
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.setting import Setting
from losac.federation.work import Assignment
from losac.trees import add, scale, sub

LOG = logging.getLogger("losac")


def enrol(setting: Setting, book: Book, name: str, rows: int, client: int | None = None, weight: float = 1.0) -> Book:
    """Take in a client, at the place it asks for or at the first that is free."""
    if name in book.members:
        return book
    if not weight > 0:
        raise RefusedError(f"{name} has {rows} rows and so the weight {weight}, which must be positive")
    taken = {member.client for member in book.members.values()}
    places = setting.rules.clients
    free = [place for place in range(places) if place not in taken]
    if client is not None and client not in free:
        raise RefusedError(f"{name} asks for place {client}, which is taken or not among the {places} places")
    if not free:
        raise RefusedError(f"{name} finds all {places} places taken")
    row = setting.own(setting.algorithm.at(0).init_server_row(setting.params))
    return book.with_member(name, Member(free[0] if client is None else client, rows, weight, row=row))


def dismiss(setting: Setting, book: Book, name: str) -> Book:
    """Take out a client that left for good, and what it contributed."""
    book = lose(setting, book, [name])
    if setting.algorithm.server_rows:
        now, row = setting.algorithm.at(book.round), book.members[name].row
        book = book._replace(server=setting.call(lambda: now.drop_row(setting.here, book.server, row)))
    return book._replace(members={other: member for other, member in book.members.items() if other != name})


def lose(setting: Setting, book: Book, names: Iterable[str]) -> Book:
    """Take out what clients contributed from a state that they no longer have; they begin anew."""
    gone = [name for name in names if book.members[name].accepted != NOTHING]
    if not gone:
        return book
    alone = setting.algorithm.restarts_alone
    if not alone or (setting.keeps_sums and setting.rules.recovery == "reset"):
        return reset(setting, book)
    for name in gone:
        member = book.members[name]
        if member.credit is not None:
            back = scale(-1, member.credit)
            book = book._replace(server=setting.shifted(book, back), total=setting.own(add(book.total, back)))
        book = book.with_member(name, member._replace(accepted=NOTHING, credit=None))
    return book._replace(unsettled=book.unsettled or (setting.keeps_sums and setting.rules.recovery == "resync"))


def reset(setting: Setting, book: Book) -> Book:
    """Let all clients and the server's sums begin anew from the present model."""
    params = setting.model(book)
    LOG.warning("a client has lost its state: all begin anew from the present model")
    members = {name: member._replace(accepted=NOTHING, credit=None) for name, member in book.members.items()}
    server = setting.call(lambda: setting.algorithm.at(book.round).init(params))
    return book._replace(server=server, total=setting.no_credit, first=params, members=members, unsettled=False)


def assignment(setting: Setting, book: Book, member: Member, place: int, slot: int, steps: int | None) -> Assignment:
    """Return what a client's work depends on."""
    n, s = setting.rules.clients, setting.rules.clients_per_round
    return Assignment(setting.rules.seed, book.round, place, member.client, slot, n, s, member.weight, steps)


def ask_holdings(setting: Setting, book: Book, present: Iterable[str]) -> dict[str, Order]:
    """Return the orders that ask clients what they hold; the book's token must be a new one."""
    found = {}
    for name in present:
        member = book.members[name]
        if member.accepted != NOTHING:
            task = assignment(setting, book, member, 0, 0, None)
            found[name] = Order("hold", book.token, member.accepted, task, start=book.first)
    return found


def settle(setting: Setting, book: Book, replies: Mapping[str, Reply]) -> Book:
    """Make the sums anew from what clients hold; those who did not answer begin anew when they come back."""
    total, members = setting.no_credit, dict(book.members)
    for name, member in book.members.items():
        reply = replies.get(name)
        if reply is not None and reply.status == "done" and reply.token == book.token:
            try:
                check_arrays(reply.upload.content, setting.no_credit)
                total = setting.own(add(total, reply.upload.content))
                continue
            except RefusedError as error:
                LOG.error("what client %s says it holds is refused: %s", name, error)
        members[name] = member._replace(accepted=NOTHING, credit=None)
    server = setting.shifted(book, sub(total, book.total))
    return book._replace(server=server, total=total, members=members, unsettled=False)
