"""The server's side of one sum: whose uploads it is of, and how to reveal it and nothing else.

Bonawitz et al., *Practical secure aggregation for privacy-preserving machine learning* (CCS 2017), in the version for
servers that may lie: keys and the set of survivors are signed. The server passes messages on, adds up, and takes off
the masks that the clients' shares tell it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from losac.federation.checks import check_arrays
from losac.federation.errors import RefusedError
from losac.federation.protocol import Order, Reply
from losac.federation.secure import notes
from losac.federation.secure.client import session_of
from losac.federation.secure.graph import holders_of, threshold_for
from losac.federation.secure.notes import Advert
from losac.federation.secure.primitives import (
    SEED,
    X25519PrivateKey,
    apply_masks,
    commitment,
    join,
    own_mask,
    pair_mask,
    private_key,
    public_part,
    shared_secret,
)
from losac.federation.secure.rules import SecureRules

LOG = logging.getLogger("losac")

T = TypeVar("T")
Exchange = Callable[[Mapping[str, Order]], Mapping[str, Reply]]


@dataclass
class Session:
    """One sum on its way: what the server needs to finish it, also after a crash.

    ``adverts`` are the keys of those who took part at first, ``received`` by receiver the encrypted shares that it was
    sent, ``survivors`` whose uploads are in ``total``.
    """

    token: str
    phase_index: int
    threshold: int
    neighbours: int
    adverts: dict[str, list[str]] = field(default_factory=dict)
    received: dict[str, dict[str, str]] = field(default_factory=dict)
    survivors: list[str] = field(default_factory=list)
    gradients: float = 0.0
    total: list[np.ndarray] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The session's name, as the clients know it."""
        return session_of(self.token, self.phase_index)

    def holders(self, name: str) -> list[str]:
        """Return who holds shares of a client's seeds."""
        return holders_of(name, sorted(self.adverts), self.neighbours, self.name)

    def threshold_of(self, name: str) -> int:
        """Return how many shares tell a client's seed."""
        return threshold_for(len(self.holders(name)), self.threshold)

    def plain(self) -> dict[str, Any]:
        """Return what a file holds of it besides the total."""
        return {name: value for name, value in asdict(self).items() if name != "total"}


def begin(orders: Mapping[str, Order], rules: SecureRules) -> Session:
    """Return the session of a phase's orders."""
    first = next(iter(orders.values()))
    return Session(first.token, first.task.phase_index, rules.threshold, rules.neighbours)


def exchange_keys(session: Session, orders: Mapping[str, Order], exchange: Exchange) -> None:
    """Ask for fresh keys, and pass on shares of the seeds, each encrypted for one client."""
    replies = exchange({name: _step(order, "keys", notes.write()) for name, order in orders.items()})
    adverts = _read(session, replies, lambda name, note: _advert(notes.read(note, "advert")["advert"]))
    session.adverts = {name: [part.hex() for part in advert] for name, advert in adverts.items()}
    if not session.adverts:
        return
    names = sorted(session.adverts)
    about: dict[str, Any] = {"names": names, "degree": session.neighbours, "threshold": session.threshold}
    asked = {}
    for name in names:
        theirs = {holder: session.adverts[holder] for holder in session.holders(name)}
        asked[name] = _step(orders[name], "shares", notes.write(**about, adverts=theirs))
    shared = _read(
        session,
        exchange(asked),
        lambda name, note: notes.as_bytes_by_name(
            notes.read(note, "sealed")["sealed"], notes.SEALED, [each for each in session.holders(name) if each != name]
        ),
    )
    for name in shared:
        others = [each for each in session.holders(name) if each in shared and each != name]
        session.received[name] = {other: shared[other][name].hex() for other in others}


def masked_orders(session: Session, orders: Mapping[str, Order]) -> dict[str, Order]:
    """Return the orders of the phase, for those who have shared their seeds with enough others."""
    return {
        name: orders[name]._replace(secure=notes.write(sealed=sealed))
        for name, sealed in session.received.items()
        if len(sealed) + 1 >= session.threshold_of(name)
    }


def take(session: Session, name: str, reply: Reply, like: Sequence[np.ndarray]) -> None:
    """Add a masked upload to the total; raise RefusedError if it is not accepted, which changes nothing."""
    if name in session.survivors:
        raise RefusedError("it has answered before")
    check_arrays(reply.upload.content, tuple(like))
    total = session.total or [np.zeros(np.shape(a), np.uint64) for a in like]
    session.total = [a + b for a, b in zip(total, reply.upload.content)]
    session.survivors = sorted([*session.survivors, name])
    session.gradients += reply.gradients


def reveal(session: Session, orders: Mapping[str, Order], exchange: Exchange) -> list[np.ndarray]:
    """Let the clients agree who is in the sum, ask for the shares of the masks, and return the sum without these.

    The session must be on the disk before: clients do this once.
    """
    there = [name for name in session.survivors if name in orders]
    note = notes.write(survivors=session.survivors)
    replies = exchange({name: _step(orders[name], "agree", note) for name in there})
    signatures = _read(
        session,
        replies,
        lambda name, note: notes.as_bytes(notes.read(note, "signature")["signature"], notes.SIGNATURE),
    )
    note = notes.write(survivors=session.survivors, signatures=signatures)
    replies = exchange({name: _step(orders[name], "unmask", note) for name in signatures})
    shares: dict[str, dict[str, dict[str, bytes]]] = {"own": {}, "mask": {}}
    for name, told in _read(session, replies, lambda name, note: _shares(note)).items():
        for kind, by_holder in shares.items():
            for owner, share in told[kind].items():
                by_holder.setdefault(owner, {})[name] = share
    return apply_masks(session.total, [*_own_masks(session, shares["own"]), *_left_over(session, shares["mask"])])


def _own_masks(session: Session, shares: Mapping[str, Mapping[str, bytes]]) -> list[tuple[bytes, bool]]:
    """Return the own masks of those in the sum, to take away."""
    found = []
    for name in session.survivors:
        seed = _joined(session, name, shares.get(name, {}))
        if commitment(seed, session.name).hex() != session.adverts[name][2]:
            raise RefusedError(f"the shares of {name}'s own mask are not of the seed that it committed to")
        found.append((own_mask(seed, session.name), False))
    return found


def _left_over(session: Session, shares: Mapping[str, Mapping[str, bytes]]) -> list[tuple[bytes, bool]]:
    """Return the masks that those in the sum share with clients that dropped out, to take away."""
    survivors, found = set(session.survivors), []
    for name in sorted({sender for receiver in survivors for sender in session.received[receiver]} - survivors):
        key = private_key(_joined(session, name, shares.get(name, {})), "mask", session.name)
        if public_part(key).hex() != session.adverts[name][1]:
            raise RefusedError(f"the shares of {name}'s key are not of the key that it showed")
        for other in sorted(survivors & set(session.holders(name))):
            if name in session.received[other]:
                found.append(pair_mask(key, bytes.fromhex(session.adverts[other][1]), session.name, name, other))
    return found


def _joined(session: Session, name: str, shares: Mapping[str, bytes]) -> bytes:
    holders = session.holders(name)
    known = {holder: shares[holder] for holder in holders if holder in shares}
    try:
        return join(known, session.threshold_of(name), holders)
    except RefusedError as error:
        raise RefusedError(f"the masks of {name} stay: {error}") from None


def _step(order: Order, kind: Any, note: bytes) -> Order:
    """Return an order for one step of a session, about the same work as another."""
    return Order(kind, order.token, order.accepted, order.task, name=order.name, key=order.key, secure=note)


def _advert(value: Any) -> Advert:
    """Return what a client says of its keys; refuse points that no key can be agreed on with."""
    advert = notes.as_advert(value)
    for point in (advert.cipher, advert.mask):
        shared_secret(X25519PrivateKey.generate(), point)
    return advert


def _shares(note: bytes) -> dict[str, dict[str, bytes]]:
    """Return the shares that a client tells, by kind and by the owner of the seed."""
    told = notes.read(note, "own", "mask")
    return {kind: notes.as_bytes_by_name(part, SEED) for kind, part in told.items()}


def _read(session: Session, replies: Mapping[str, Reply], read: Callable[[str, bytes], T]) -> dict[str, T]:
    """Return what clients said in a step, by name; what cannot be read is logged and left out."""
    found = {}
    for name, reply in sorted(replies.items()):
        try:
            if (reply.status, reply.token, reply.phase_index) != ("done", session.token, session.phase_index):
                raise RefusedError(f"its answer is {reply.status!r}, to another step or from another attempt")
            found[name] = read(name, reply.secure)
        except RefusedError as error:
            LOG.error("what client %s says of its keys is refused: %s", name, error, extra={"client": name})
    return found
