"""One attempt at a round: who is asked for what, what comes back, and the book in which it counts.

Until :func:`accepted` is on the disk nothing of an attempt counts, and an attempt that fails leaves the book as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Received
from losac.federation.book import Book, RefusedError
from losac.federation.checks import check_arrays, check_norm
from losac.federation.membership import assignment
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.secret import secret_key
from losac.federation.setting import Setting
from losac.federation.shapes import decode
from losac.federation.work import Message
from losac.simulation.client import averages_by_weight, summed
from losac.simulation.costs import lot
from losac.simulation.sampling import draw_clients
from losac.trees import Tree, add, map_trees, scale


@dataclass
class Attempt:
    """A round while it goes on: who takes part, by slot, and the server as it would be after it."""

    book: Book
    asked: list[str]
    server: Tree
    model_state: Tree
    place: int = 0
    uploads: dict[str, Message] | None = None
    """What the clients of the present phase have sent; None before the first that takes place."""
    own: dict[str, tuple[Tree, Tree]] = field(default_factory=dict)
    """What they sent in the algorithm's own phase, and the server's new row for each."""
    lost: list[str] = field(default_factory=list)
    """Who no longer has the state that was accepted from it."""
    failed: set[str] = field(default_factory=set)
    """Who was asked and did not answer well."""
    gradients: float = 0.0
    void: str = ""
    """Why the round does not count, once that is known."""


def open_round(setting: Setting, book: Book, present: Iterable[str]) -> Attempt:
    """Begin a round with those who are there; the book's token must be a new one."""
    asked = _draw(setting, book, set(present))
    void = f"{len(asked)} clients are there, and it needs {needed(setting)}" if len(asked) < needed(setting) else ""
    return Attempt(book, asked, book.server, book.model_state, void=void)


def orders(setting: Setting, attempt: Attempt) -> dict[str, Order] | None:
    """Return the orders of the present phase; None where its chance decides against it.

    A phase that follows another asks only those who answered there.
    """
    now, phase = _phase(setting, attempt)
    book, place = attempt.book, attempt.place
    round_key = jax.random.fold_in(jax.random.key(setting.rules.seed), book.round)
    if phase.chance is not None and not bool(lot(jax.random.fold_in(round_key, place)) < phase.chance):
        return None
    everybody = sorted(book.members, key=lambda name: book.members[name].client)
    before, attempt.uploads = attempt.uploads, {}
    slots = list(enumerate(everybody if phase.clients == "all" else attempt.asked))
    if before is not None:
        slots = [(slot, name) for slot, name in slots if name in before]
    steps = None
    if phase is now and now.draw_steps(0.5) is not None:
        steps = int(now.draw_steps(jax.random.uniform(jax.random.fold_in(round_key, 2**31 - 1), (), jnp.float32)))
    message = Message(setting.call(lambda: phase.broadcast(attempt.server)), attempt.model_state)
    found = {}
    for slot, name in slots:
        member = book.members[name]
        fresh = setting.keeps_state and member.accepted == NOTHING
        task = assignment(setting, book, member, place, slot, steps)
        start = book.first if fresh else None
        found[name] = Order("train", book.token, member.accepted, task, message, before is not None, start)
    return found


def take(setting: Setting, attempt: Attempt, name: str, reply: Reply) -> None:
    """Take in one answer; raise RefusedError where it is not accepted, which changes nothing."""
    if reply.token != attempt.book.token or reply.place != attempt.place:
        raise RefusedError("it answers another order than the present one")
    assert attempt.uploads is not None
    if name in attempt.uploads:
        raise RefusedError("it has answered before")
    if reply.status == "lost":
        attempt.lost.append(name)
        raise RefusedError("it no longer has the state that was accepted from it, and begins anew")
    if reply.status != "done":
        raise RefusedError("it takes the order for an old one")
    check_arrays(reply.upload.content, setting.payload_like(attempt.place))
    check_arrays(reply.upload.model_state, attempt.book.model_state)
    now, _ = _phase(setting, attempt)
    content = setting.call(lambda: decode(now, attempt.place, reply.upload.content))
    check_norm(content, setting.rules.largest)
    attempt.uploads[name] = Message(content, reply.upload.model_state)
    attempt.gradients += reply.gradients


def close_phase(setting: Setting, attempt: Attempt, asked: Sequence[str]) -> None:
    """End a phase: update the server by what came, or find that the round does not count."""
    now, phase = _phase(setting, attempt)
    assert attempt.uploads is not None
    came = [name for name in asked if name in attempt.uploads]
    least = max(needed(setting), len(asked)) if now.needs_all_replies else needed(setting)
    if len(came) < least:
        attempt.void = f"{len(came)} of {len(asked)} clients answered, and it needs {least}"
    if attempt.void:
        return
    total, changes, count = None, None, 0.0
    for name in came:
        upload, member = attempt.uploads[name], attempt.book.members[name]
        content = upload.content
        if phase is now:
            content, row = setting.call(partial(now.receive, member.row, content))
            attempt.own[name] = upload.content, row
        weight = member.weight if averages_by_weight(phase) else 1.0
        content = content if weight == 1.0 else setting.own(scale(weight, content))
        total = content if total is None else add(total, content)
        changes = upload.model_state if changes is None else add(changes, upload.model_state)
        count += weight
    transforms = now.transforms_of(phase)
    if any(transform.on_the_sum for transform in transforms):
        noisy = total
        total = setting.call(lambda: summed(transforms, secret_key(), noisy))
    received = Received(total, np.asarray(count, setting.rules.dtype))
    attempt.server = setting.call(lambda: phase.update(setting.here, attempt.server, received))
    attempt.model_state = setting.own(map_trees(lambda s, d: s + d / count, attempt.model_state, changes))
    try:
        check_arrays((attempt.server, attempt.model_state), (attempt.book.server, attempt.book.model_state))
    except RefusedError as error:
        attempt.void = f"what came back does not add up to a model: {error}"
    attempt.place += 1


def accepted(setting: Setting, attempt: Attempt) -> Book:
    """Return the book in which a finished round counts, for those who answered in the algorithm's own phase."""
    book, now = attempt.book, setting.algorithm.at(attempt.book.round)
    members, total = dict(book.members), book.total
    for name, (content, row) in attempt.own.items():
        member, credit = members[name], setting.own(now.credit(content))
        total = add(total, credit)
        if setting.rules.recovery == "ledger" and setting.keeps_sums:
            member = member._replace(credit=credit if member.credit is None else add(member.credit, credit))
        members[name] = member._replace(accepted=book.token if setting.keeps_state else NOTHING, row=row)
    return book._replace(
        round=book.round + 1, server=attempt.server, model_state=attempt.model_state, total=total, members=members
    )


def _phase(setting: Setting, attempt: Attempt) -> tuple[Any, Any]:
    """Return the algorithm of the round and its present phase."""
    now = setting.algorithm.at(attempt.book.round)
    return now, now.phases()[attempt.place]


def needed(setting: Setting) -> int:
    """Return how many clients a round needs."""
    return setting.rules.clients_per_round if setting.algorithm.needs_all_replies else setting.rules.fewest


def _draw(setting: Setting, book: Book, present: set[str]) -> list[str]:
    """Return the round's clients: the sampler's, absent ones replaced by others at random."""
    rules = setting.rules
    ids, active = draw_clients(setting.sampler, rules.seed, book.round, 1, rules.clients, rules.clients_per_round)
    there = {member.client: name for name, member in book.members.items() if name in present}
    drawn = ids[0][active[0]].tolist()
    others = [client for client in sorted(there) if client not in drawn]
    spare = iter(np.random.default_rng([rules.seed, book.round, book.tick]).permutation(others).tolist())
    chosen = [client if client in there else next(spare, None) for client in drawn]
    return [there[client] for client in chosen if client is not None]
