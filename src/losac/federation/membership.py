"""The members of a federation, and how the server's sums stay correct when a client's part of them is lost.

All functions return a new book; nothing else changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import numpy as np

from losac.federation.book import Book, Member, RefusedError
from losac.federation.checks import check_arrays, check_norm
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.setting import Setting
from losac.federation.work import Assignment
from losac.simulation.program.client import averages_by_weight
from losac.simulation.program.drawing import step_counts
from losac.trees import Tree, add, scale, sub

LOG = logging.getLogger("losac")
ROUNDING = 1e-3
"""By how much a sum of many credits may differ from what the server added up."""


def enrol(
    setting: Setting, book: Book, name: str, rows: int, client: int | None = None, weight: float = 1.0, key: str = ""
) -> Book:
    """Take in a client, at the place it asks for or at the first that is free, and bind its name to its node's key."""
    if name in book.members:
        return _bound(book, name, key)
    if key and (other := next((known for known, member in book.members.items() if member.key == key), None)):
        raise RefusedError(f"{name} is claimed with the key of {other}: a key has one name")
    if not 0 < weight <= setting.rules.clients:
        raise RefusedError(
            f"{name} says it has {rows} rows, which is {weight:g} times the mean; the {setting.rules.clients} clients "
            f"together have {setting.rules.clients} times the mean"
        )
    taken = {member.client for member in book.members.values()}
    places = setting.rules.clients
    free = [number for number in range(places) if number not in taken]
    if client is not None and client not in free:
        raise RefusedError(f"{name} asks for place {client}, which is taken or not among the {places} places")
    if not free:
        raise RefusedError(f"{name} finds all {places} places taken")
    everyones_rows = np.array([rows, *(member.rows for member in book.members.values())])
    if setting.algorithm.same_steps and np.ptp(step_counts(setting.algorithm.draw, everyones_rows)):
        raise RefusedError(
            f"{name} has {rows} rows and so takes another number of local steps than the others, but "
            f"{setting.algorithm.label} needs the same of all: give the algorithm local_steps instead of epochs"
        )
    row = setting.own(setting.algorithm.at(0).init_server_row(setting.params))
    return book.with_member(name, Member(free[0] if client is None else client, rows, weight, row=row, key=key))


def _bound(book: Book, name: str, key: str) -> Book:
    """Return the book with a known client's name bound to a key; refuse another than the one it is bound to."""
    member = book.members[name]
    if member.key == key:
        return book
    if member.key:
        raise RefusedError(
            f"{name} is bound to the key {member.key[:12]} and is claimed with {key[:12] or 'none'}: if its key was "
            f"renewed, say so with losac deploy free RESULTS {name} --rebind; where nodes have no registered keys, set "
            "node-keys to false"
        )
    if any(other.key == key for other in book.members.values()):
        raise RefusedError(f"{name} is claimed with another client's key: a key has one name")
    return book.with_member(name, member._replace(key=key))


def unbind(book: Book, name: str) -> Book:
    """Let a client come with another key."""
    return book.with_member(name, book.members[name]._replace(key=""))


def dismiss(setting: Setting, book: Book, name: str) -> Book:
    """Remove a client that left for good, and what it contributed."""
    book = lose(setting, book, [name])
    if setting.algorithm.server_rows:
        now, member = setting.algorithm.at(book.round), book.members[name]
        weight = weight_in_sums(setting, member)
        book = book._replace(server=setting.call(lambda: now.drop_row(setting.here, book.server, member.row, weight)))
    members = {other: member for other, member in book.members.items() if other != name}
    return book._replace(members=members, sealed=None)  # a round that it may be in does not count


def weight_in_sums(setting: Setting, member: Member) -> float:
    """Return the weight that a client's uploads have in the server's sums."""
    return member.weight if averages_by_weight(setting.algorithm) else 1.0


def weighted(setting: Setting, member: Member, part: Tree) -> Tree:
    """Return a client's part of the server's sums as these contain it."""
    weight = weight_in_sums(setting, member)
    return part if weight == 1.0 else setting.own(scale(weight, part))


def lose(setting: Setting, book: Book, names: Iterable[str]) -> Book:
    """Remove what clients contributed from a state that they no longer have; they start again."""
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
    """Start all clients and the server's sums again from the present model."""
    params = setting.model(book)
    LOG.warning("a client has lost its state: all start again from the present model")
    row = setting.own(setting.algorithm.at(0).init_server_row(params))
    members = {name: member._replace(accepted=NOTHING, credit=None, row=row) for name, member in book.members.items()}
    server = setting.call(lambda: setting.algorithm.at(book.round).restart(book.server))
    book = book._replace(server=server, total=setting.no_total, first=params, members=members)
    return book._replace(unsettled=False, sealed=None)


def assignment(
    setting: Setting, book: Book, member: Member, phase_index: int, slot: int, steps: int | None
) -> Assignment:
    """Return what a client's work depends on."""
    n, s = setting.rules.clients, setting.rules.clients_per_round
    return Assignment(setting.rules.seed, book.round, phase_index, member.client, slot, n, s, member.weight, steps)


def ask_holdings(setting: Setting, book: Book, present: Iterable[str]) -> dict[str, Order]:
    """Return the orders that ask clients what they hold; the book's token must be a new one."""
    found = {}
    for name in present:
        member = book.members[name]
        if member.accepted != NOTHING:
            task = assignment(setting, book, member, 0, 0, None)
            found[name] = Order(
                "hold", book.token, member.accepted, task, start=book.first, name=name, key=member.key,
                share=member.share,
            )  # fmt: skip
    return found


def settle(setting: Setting, book: Book, replies: Mapping[str, Reply]) -> Book:
    """Form the sums again from what clients hold; those who did not answer start again when they come back."""
    total, members = setting.no_credit, dict(book.members)
    for name, member in book.members.items():
        reply = replies.get(name)
        if reply is not None and reply.status == "done" and reply.token == book.token:
            try:
                check_arrays(reply.upload.content, setting.no_credit)
                norm = check_norm(reply.upload.content, member.moved * (1 + ROUNDING))
                members[name] = member._replace(moved=norm)
                total = setting.own(add(total, weighted(setting, member, reply.upload.content)))
                continue
            except Exception as error:
                reason = error if isinstance(error, RefusedError) else type(error).__name__
                LOG.error("what client %s says it holds is refused: %s", name, reason, extra={"client": name})
        members[name] = member._replace(accepted=NOTHING, credit=None)
    server = setting.shifted(book, sub(total, book.total))
    return book._replace(server=server, total=total, members=members, unsettled=False)
