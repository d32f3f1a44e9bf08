"""One attempt at a round: who is asked for what, what comes back, and the book that counts it.

Until :func:`accepted` is on the disk nothing of an attempt counts, and an attempt that fails leaves the book as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from losac import _random
from losac.algorithms.aggregation import accepted as used
from losac.algorithms.aggregation import aggregate, told
from losac.algorithms.contract import Received
from losac.federation import bounds
from losac.federation.book import Book, RefusedError
from losac.federation.checks import check_arrays, check_cost, check_norm, norm_of
from losac.federation.membership import assignment, weighted
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.setting import Setting
from losac.federation.shapes import decode
from losac.federation.work import Message
from losac.simulation.program.client import averages_by_weight, summed
from losac.simulation.sampling import draw_clients
from losac.trees import Tree, add, map_trees, scale


@dataclass
class Attempt:
    """A round in progress: who takes part, by slot, and the server as it would be after it."""

    book: Book
    asked: list[str]
    server: Tree
    model_state: Tree
    phase_index: int = 0
    uploads: dict[str, Message] | None = None
    """What the clients of the present phase have sent; None before the first that takes place."""
    own: dict[str, tuple[Tree, Tree]] = field(default_factory=dict)
    """What counts of what they sent in the algorithm's own phase, and the server's new row for each."""
    shares: dict[str, Mapping[str, Tree]] = field(default_factory=dict)
    """How much of it the server used, where clients must be told."""
    lost: list[str] = field(default_factory=list)
    """Who no longer has the state that was accepted from it."""
    norms: dict[str, float] = field(default_factory=dict)
    """The norms of the present phase's uploads."""
    failed: set[str] = field(default_factory=set)
    """Clients that were asked and did not answer correctly."""
    gradients: float = 0.0
    levels: list[np.ndarray] | None = None
    """Under masks: the sum of what was credited in the algorithm's own phase, in whole numbers."""
    void: str = ""
    """Why the round does not count, once that is known."""


def open_round(setting: Setting, book: Book, present: Iterable[str]) -> Attempt:
    """Begin a round with the clients that are present; the book's token must be a new one."""
    asked = _draw(setting, book, set(present))
    void = f"{len(asked)} clients are there, and it needs {needed(setting)}" if len(asked) < needed(setting) else ""
    return Attempt(book, asked, book.server, book.model_state, void=void)


def orders(setting: Setting, attempt: Attempt) -> dict[str, Order] | None:
    """Return the orders of the present phase; None if its chance decides against it.

    A phase that follows another asks only those who answered there.
    """
    now, phase = _phase(setting, attempt)
    book, phase_index = attempt.book, attempt.phase_index
    round_key = _random.round_key(_random.run_key(setting.rules.seed), book.round)
    if phase.chance is not None and not bool(
        _random.chance_uniform(_random.phase_key(round_key, phase_index)) < phase.chance
    ):
        return None
    everybody = sorted(book.members, key=lambda name: book.members[name].client)
    before, attempt.uploads, attempt.norms = attempt.uploads, {}, {}
    slots = list(enumerate(everybody if phase.clients == "all" else attempt.asked))
    if before is not None:
        slots = [(slot, name) for slot, name in slots if name in before]
    steps = None
    if phase is now and now.draw_steps(0.5) is not None:
        steps = int(now.draw_steps(_random.steps_uniform(round_key)))
    message = Message(setting.call(lambda: phase.broadcast(attempt.server)), attempt.model_state)
    found = {}
    for slot, name in slots:
        member = book.members[name]
        fresh = setting.keeps_state and member.accepted == NOTHING
        task = assignment(setting, book, member, phase_index, slot, steps)
        start = book.first if fresh else None
        follows = before is not None
        found[name] = Order(
            "train", book.token, member.accepted, task, message, follows, start, name, member.key, member.share
        )
    return found


def take(setting: Setting, attempt: Attempt, name: str, reply: Reply) -> None:
    """Process one answer; raise RefusedError if it is not accepted, which changes nothing."""
    if reply.token != attempt.book.token or reply.phase_index != attempt.phase_index:
        raise RefusedError("it answers an order other than the current one")
    assert attempt.uploads is not None
    if name in attempt.uploads:
        raise RefusedError("it has answered before")
    if reply.status == "lost":
        attempt.lost.append(name)
        raise RefusedError("it no longer has the state that was accepted from it, and starts again")
    if reply.status != "done":
        raise RefusedError("it takes the order for an old one")
    check_arrays(reply.upload.content, setting.payload_like(attempt.phase_index))
    check_arrays(reply.upload.model_state, attempt.book.model_state)
    now, _ = _phase(setting, attempt)
    content = setting.call(lambda: decode(now, attempt.phase_index, reply.upload.content))
    check_cost(reply.gradients)
    attempt.norms[name] = check_norm(content, setting.rules.fixed_bound)
    check_norm(reply.upload.model_state, None)
    attempt.uploads[name] = Message(content, reply.upload.model_state)
    attempt.gradients += reply.gradients


def sift(setting: Setting, attempt: Attempt) -> dict[str, RefusedError]:
    """Leave out uploads that are far larger than others have been, where the bound is adaptive; return why, by name."""
    if setting.rules.largest != bounds.ADAPTIVE or not attempt.uploads:
        return {}
    kinds: dict[str, dict[str, float]] = {}
    for name, norm in attempt.norms.items():
        fresh = "first " if attempt.book.members[name].accepted == NOTHING else ""
        kinds.setdefault(f"{fresh}{attempt.phase_index}", {})[name] = norm
    refused: dict[str, RefusedError] = {}
    tracked = dict(attempt.book.bounds)
    for kind, norms in kinds.items():
        most = bounds.largest(tracked.get(kind), list(norms.values()))
        tracked[kind] = bounds.track(tracked.get(kind), list(norms.values()))
        refused |= {
            name: RefusedError(
                f"its norm is {norm:.3g}, and {most:.3g} is {bounds.FACTOR:g} times what is usual: if it is right, set "
                "a fixed bound with largest"
            )
            for name, norm in norms.items()
            if norm > most
        }
    attempt.book = attempt.book._replace(bounds=tracked)
    attempt.uploads = {name: upload for name, upload in attempt.uploads.items() if name not in refused}
    return refused


def close_phase(setting: Setting, attempt: Attempt, asked: Sequence[str]) -> None:
    """End a phase: update the server with what came, or find that the round does not count."""
    now, phase = _phase(setting, attempt)
    assert attempt.uploads is not None
    came = [name for name in asked if name in attempt.uploads]
    least = max(needed(setting), len(asked)) if now.needs_all_replies else needed(setting)
    if len(came) < least:
        attempt.void = f"{len(came)} of {len(asked)} clients answered, and it needs {least}"
    if attempt.void:
        return
    robust = _judge(setting, attempt, came) if now.aggregation else None
    total, changes, count = None, None, 0.0
    for name in came:
        upload, member = attempt.uploads[name], attempt.book.members[name]
        content = upload.content
        if phase is now:
            content, row = setting.call(partial(now.receive, member.row, content))
            attempt.own[name] = setting.call(partial(used, upload.content, attempt.shares.get(name, {}))), row
        weight = member.weight if averages_by_weight(phase) else 1.0
        weighed = content, upload.model_state
        content, change = weighed if weight == 1.0 else setting.own(scale(weight, weighed))
        total = content if total is None else add(total, content)
        changes = change if changes is None else add(changes, change)
        count += weight
    total = total if robust is None else robust
    transforms = now.transforms_of(phase)
    if any(transform.on_the_sum for transform in transforms):
        noisy = total
        total = setting.call(lambda: summed(transforms, _random.secret_key(), noisy))
    received = Received(total, np.asarray(count, setting.rules.dtype))
    attempt.server = setting.call(lambda: phase.update(setting.here, attempt.server, received))
    attempt.model_state = setting.own(map_trees(lambda s, d: s + d / count, attempt.model_state, changes))
    try:
        check_arrays((attempt.server, attempt.model_state), (attempt.book.server, attempt.book.model_state))
    except RefusedError as error:
        attempt.void = f"what came back does not add up to a model: {error}"
    attempt.phase_index += 1


def _judge(setting: Setting, attempt: Attempt, came: Sequence[str]) -> Tree:
    """Return what the server uses instead of the sum of the uploads; keep what clients must be told of it."""
    now, phase = _phase(setting, attempt)
    assert attempt.uploads is not None
    round_key = _random.round_key(_random.run_key(setting.rules.seed), attempt.book.round)
    key = _random.aggregation_key(_random.phase_key(round_key, attempt.phase_index))
    uploads = map_trees(lambda *a: np.stack(a), *(attempt.uploads[name].content for name in came))
    recorded = now.records(uploads) if phase is now else ()
    found = setting.call(lambda: aggregate(now.aggregation, key, uploads, np.ones(len(came), bool), recorded))
    if recorded and now.acknowledges:
        everyones = told(found.shares, recorded)
        attempt.shares = {name: map_trees(lambda a, k=k: a[k], everyones) for k, name in enumerate(came)}
    return found.total


def accepted(setting: Setting, attempt: Attempt) -> Book:
    """Return the book after a finished round, which counts for those who answered in the algorithm's own phase."""
    book, now = attempt.book, setting.algorithm.at(attempt.book.round)
    members, total = dict(book.members), book.total
    for name, (content, row) in attempt.own.items():
        member = members[name]
        own = setting.own(now.credit(content))
        credit = weighted(setting, member, own)
        total = add(total, credit)
        if setting.rules.recovery == "ledger" and setting.keeps_sums:
            member = member._replace(credit=credit if member.credit is None else add(member.credit, credit))
        moved = norm_of(own) if member.accepted == NOTHING else member.moved + norm_of(own)
        token = book.token if setting.keeps_state else NOTHING
        members[name] = member._replace(accepted=token, row=row, moved=moved, share=attempt.shares.get(name))
    return book._replace(
        round=book.round + 1, server=attempt.server, model_state=attempt.model_state, total=total, members=members
    )


def _phase(setting: Setting, attempt: Attempt) -> tuple[Any, Any]:
    """Return the algorithm of the round and its present phase."""
    now = setting.algorithm.at(attempt.book.round)
    return now, now.phases()[attempt.phase_index]


def needed(setting: Setting) -> int:
    """Return how many clients a round needs."""
    return setting.rules.clients_per_round if setting.algorithm.needs_all_replies else setting.rules.fewest


def _draw(setting: Setting, book: Book, present: set[str]) -> list[str]:
    """Return the round's clients: the sampler's choice, with absent ones replaced at random."""
    rules = setting.rules
    ids, active = draw_clients(setting.sampler, rules.seed, book.round, 1, rules.clients, rules.clients_per_round)
    there = {member.client: name for name, member in book.members.items() if name in present}
    drawn = ids[0][active[0]].tolist()
    others = [client for client in sorted(there) if client not in drawn]
    spare = iter(_random.spares_generator(rules.seed, book.round, book.tick).permutation(others).tolist())
    chosen = [client if client in there else next(spare, None) for client in drawn]
    return [there[client] for client in chosen if client is not None]
