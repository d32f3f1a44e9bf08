"""A client that sends its uploads under masks, and what it answers to reveal their sum and nothing else.

What it knows of a session, the sum of one phase of one attempt, is in its vault before it replies, so a crash between
any two steps changes nothing: the same order gets the same answer, and another one about the same step is refused.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

import jax
import numpy as np

from losac.algorithms.contract import Federation
from losac.algorithms.fixed_point import FixedPoint
from losac.federation.checks import norm_of
from losac.federation.durable import Record
from losac.federation.errors import RefusedError
from losac.federation.protocol import Client, Order, Reply, parse_token
from losac.federation.secure import notes
from losac.federation.secure.consent import check_names, check_survivors, phase_of
from losac.federation.secure.graph import holders_of, threshold_for
from losac.federation.secure.identity import Trust
from losac.federation.secure.levels import Credited, as_uint64, credit_of, credit_values, credited, levels_of
from losac.federation.secure.notes import Advert
from losac.federation.secure.primitives import (
    SEED,
    X25519PrivateKey,
    apply_masks,
    commitment,
    fresh_seed,
    own_mask,
    pair_mask,
    private_key,
    public_part,
    seal,
    split,
    unseal,
)
from losac.federation.shapes import credit_zeros, own_phase_index, payload_like
from losac.federation.vault import Vault
from losac.federation.work import Kept, Message, Worker
from losac.trees import Tree, sub

LOG = logging.getLogger("losac")
SESSION = "session"
"""The record of the latest session in a vault."""
FORGOTTEN = ("cipher", "mask", "own", "own share", "adverts", "names", "holders", "threshold")
"""What is not needed any more once a client has told its shares."""
DRIFT = 1e-3
"""How far, relatively, a client's state may be from the whole numbers that it sent: by rounding only."""


def session_of(token: str, phase_index: int) -> str:
    """Return the name of a session; two phases, or two attempts, have different ones."""
    return f"{token} {phase_index}"


class SecureClient(Client):
    """A client of a federation with secure aggregation.

    Args:
      worker: its computation; ``fixed_point`` is the last of its algorithm's transforms.
      vault: where its state is kept.
      trust: its own key, and those of its peers.
    """

    def __init__(self, worker: Worker, vault: Vault, trust: Trust) -> None:
        super().__init__(worker, vault)
        self.trust = trust

    def answer(self, order: Order) -> Reply:
        """Carry out an order once: the same order again gets the same answer."""
        if not order.secure:
            raise RefusedError("it asks for an upload without masks, and this client sends none")
        record = self.vault.read(SESSION)
        session = session_of(order.token, order.task.phase_index)
        known = None if record is None or record.values["session"] != session else dict(record.values)
        if known is None and (order.kind != "keys" or _later(record, order)):
            return Reply("stale", order.token, order.task.phase_index)
        if order.kind == "keys":
            return self._said(order, self._keys(order, session, record) if known is None else known["said"])
        assert known is not None
        if order.kind == "shares":
            return self._said(order, self._shares(order, known))
        if order.kind == "agree":
            return self._said(order, {"signature": self._agree(order, known)})
        if order.kind == "unmask":
            return self._said(order, self._unmask(order, known))
        if "answered" in known:
            return Reply("stale", order.token, order.task.phase_index)
        masks = self._enter(order, known)
        reply = super().answer(order._replace(secure=b""))
        if reply.status != "done":
            return reply
        arrays = as_uint64(levels_of(reply.upload.content) if order.kind == "train" else list(reply.upload.content))
        return reply._replace(upload=Message(tuple(apply_masks(arrays, masks))))

    # -- the steps of a session

    def _keys(self, order: Order, session: str, before: Record | None) -> dict[str, Any]:
        """Make fresh keys; return what the others must know of them."""
        notes.read(order.secure)
        cipher, mask, own = secrets.token_bytes(32), fresh_seed(), fresh_seed()
        public = Advert(
            public_part(X25519PrivateKey.from_private_bytes(cipher)),
            public_part(private_key(mask, "mask", session)),
            commitment(own, session),
        )
        signature = self.trust.sign(public.text(session, self.trust.name))
        said = {"advert": [part.hex() for part in public._replace(signature=signature)]}
        values = {"session": session, "token": order.token, "place": order.task.phase_index, "said": said}
        values |= {"cipher": cipher.hex(), "mask": mask.hex(), "own": own.hex()}
        self._note(values | {"round": order.task.round, "told": _told(before, order)})
        return said

    def _shares(self, order: Order, known: dict[str, Any]) -> dict[str, Any]:
        """Check the others' keys, and share the seeds among them; each share is encrypted for one."""
        asked = order.secure.hex()
        if "shared" in known:
            _same(known["asked shares"], asked)
            return {"sealed": known["shared"]}
        session, me = known["session"], self.trust.name
        note = notes.read(order.secure, "names", "degree", "threshold", "adverts")
        names = notes.as_names(note["names"])
        degree = notes.as_number(note["degree"], 0, len(names))
        check_names(names, self.trust)
        holders = holders_of(me, names, degree, session)
        threshold = threshold_for(len(holders), notes.as_number(note["threshold"], 0, len(self.trust.peers)))
        if threshold > len(holders):
            raise RefusedError(f"{len(holders)} clients show keys, and {threshold} must, so that a sum can be told")
        adverts = notes.as_adverts(note["adverts"])
        if sorted(adverts) != holders:
            raise RefusedError("the keys are not those of the clients that share with this one")
        if [part.hex() for part in adverts[me]] != known["said"]["advert"]:
            raise RefusedError("the server shows other keys for this client than it made")
        for name, advert in adverts.items():
            if not self.trust.signed(name, advert.signature, advert.text(session, name)):
                raise RefusedError(f"the keys of {name} are not signed with the key of {name} in the list of peers")
        own, mask = bytes.fromhex(known["own"]), bytes.fromhex(known["mask"])
        own_shares, mask_shares = (split(seed, threshold, holders) for seed in (own, mask))
        cipher = X25519PrivateKey.from_private_bytes(bytes.fromhex(known["cipher"]))
        shared = {
            name: seal(cipher, adverts[name].cipher, own_shares[name] + mask_shares[name], session, me, name).hex()
            for name in holders
            if name != me
        }
        known |= {"asked shares": asked, "shared": shared, "names": names, "holders": holders, "threshold": threshold}
        known |= {"adverts": {name: [part.hex() for part in advert] for name, advert in adverts.items()}}
        self._note(known | {"own share": own_shares[me].hex()})
        return {"sealed": shared}

    def _enter(self, order: Order, known: dict[str, Any]) -> list[tuple[bytes, bool]]:
        """Keep the shares that came from others; return the masks of those who sent any."""
        asked = f"{order.kind} {order.accepted} {order.secure.hex()}"
        if "shared" not in known:
            raise RefusedError("it asks for a masked upload before any keys were shared")
        if "received" in known:
            _same(known["asked upload"], asked)
        else:
            sealed = notes.as_bytes_by_name(notes.read(order.secure, "sealed")["sealed"], notes.SEALED)
            others = [name for name in known["holders"] if name != self.trust.name]
            if not set(sealed) <= set(others):
                raise RefusedError("it passes on shares of clients that do not share with this one")
            if len(sealed) + 1 < known["threshold"]:
                raise RefusedError(f"{len(sealed) + 1} clients share their keys, and {known['threshold']} are needed")
            known |= {"received": {name: note.hex() for name, note in sealed.items()}, "asked upload": asked}
            self._note(known | {"kind": order.kind})
        session, me = known["session"], self.trust.name
        mask = private_key(bytes.fromhex(known["mask"]), "mask", session)
        pairs = [pair_mask(mask, bytes.fromhex(known["adverts"][v][1]), session, me, v) for v in known["received"]]
        return [(own_mask(bytes.fromhex(known["own"]), session), True), *pairs]

    def _agree(self, order: Order, known: dict[str, Any]) -> str:
        """Sign who is in the sum: once, and only a sum that is large enough."""
        if "received" not in known:
            raise RefusedError("it asks who is in a sum that this client is not in")
        names = notes.as_names(notes.read(order.secure, "survivors")["survivors"])
        if "survivors" in known:
            _same(known["survivors"], names)
        else:
            check_survivors(names, known, self.trust)
            self._note(known | {"survivors": names})
        return self.trust.sign(notes.survivors_text(known["session"], names)).hex()

    def _unmask(self, order: Order, known: dict[str, Any]) -> dict[str, Any]:
        """Return shares of the own masks of those in the sum, and of the keys of those who dropped out."""
        if "survivors" not in known:
            raise RefusedError("it asks to unmask a sum before its clients have agreed who is in it")
        note = notes.read(order.secure, "survivors", "signatures")
        _same(known["survivors"], notes.as_names(note["survivors"]))
        if "answered" in known:
            return dict(known["answered"])
        text = notes.survivors_text(known["session"], known["survivors"])
        signatures = notes.as_bytes_by_name(note["signatures"], notes.SIGNATURE)
        among = set(known["holders"]) & set(known["survivors"])
        agreed = sum(self.trust.signed(name, signatures[name], text) for name in among & set(signatures))
        if agreed < known["threshold"]:
            raise RefusedError(f"{agreed} clients have signed who is in the sum, and {known['threshold']} are needed")
        survivors = set(known["survivors"])
        answer: dict[str, dict[str, str]] = {"own": {self.trust.name: known["own share"]}, "mask": {}}
        cipher = X25519PrivateKey.from_private_bytes(bytes.fromhex(known["cipher"]))
        for name, sealed in known["received"].items():
            about = known["session"], name, self.trust.name
            try:
                shares = unseal(cipher, bytes.fromhex(known["adverts"][name][0]), bytes.fromhex(sealed), *about)
            except RefusedError:
                LOG.error("the shares of %s cannot be read, and are left out", name)
                continue
            kind, share = ("own", shares[:SEED]) if name in survivors else ("mask", shares[SEED:])
            answer[kind][name] = share.hex()
        told = known["told"] | {phase_of(known): known["survivors"]}
        kept = {name: value for name, value in known.items() if name not in FORGOTTEN}
        self._note(kept | {"told": told, "answered": answer})
        return answer

    # -- what the client keeps

    def _note(self, values: dict[str, Any]) -> None:
        self.vault.write(SESSION, Record(values, {}))

    def _said(self, order: Order, said: dict[str, Any]) -> Reply:
        return Reply("done", order.token, order.task.phase_index, secure=notes.write(**said))

    def _train(self, order: Order, kept: Kept, before: Record | None) -> Reply:
        """Refuse what masks cannot protect, or what would spoil the sum, before anything is kept."""
        if jax.tree.leaves(order.message.model_state):
            raise RefusedError("the model has a state, which would travel without masks")
        return super()._train(order, kept, before)

    def _also_kept(self, order: Order, upload: Message, before: Record | None) -> dict[str, list[np.ndarray]]:
        """Return what the client holds in whole numbers: the sum of what it has sent."""
        levels = levels_of(upload.content)
        now = self.worker.algorithm.at(order.task.round)
        fixed = now.transforms_of(now.phases()[order.task.phase_index])[-1]
        assert isinstance(fixed, FixedPoint)
        if count := fixed.clipped(upload.content):
            LOG.warning("%d entries of an upload are cut off at the limit: %s", count, fixed)
        held = self._held(before)
        if order.task.phase_index == own_phase_index(self.worker.algorithm):
            held = [a + b for a, b in zip(held, credit_of(self._credited(order), levels))]
        return {"held": held}

    def _held(self, record: Record | None) -> list[np.ndarray]:
        if record is not None:
            return list(record.arrays["held"])
        return [np.zeros(np.shape(leaf), np.int64) for leaf in jax.tree.leaves(self._no_credit())]

    def _hold(self, order: Order, kept: Kept | None, before: Record | None) -> Reply:
        """Say what is held, in whole numbers; nothing is held by a client that never took part."""
        if kept is None and self.vault.read("committed") is not None:
            return Reply("lost", order.token)
        if kept is not None:
            here = Federation(order.task.clients, order.task.sampled, lambda x, step: x)
            algorithm = self.worker.algorithm.at(order.task.round)
            floating = algorithm.holding(here, order.start, kept.state, kept.table)
            sent = credit_values(self._credited(order), self._held(before), self._no_credit())
            off = norm_of(sub(floating, sent))
            if off > DRIFT * max(norm_of(sent), norm_of(floating)):
                raise RefusedError("its state is not the sum of what it sent")
        return Reply("done", order.token, upload=Message(tuple(self._held(before))))

    def _credited(self, order: Order) -> list[Credited]:
        return credited(self.worker.algorithm.at(order.task.round), self._payload_like())

    def _payload_like(self) -> Tree:
        algorithm = self.worker.algorithm
        return payload_like(algorithm, own_phase_index(algorithm), self.worker.params, 2, 2)

    def _no_credit(self) -> Tree:
        return credit_zeros(self.worker.algorithm, self.worker.params, 2, 2)


def _later(record: Record | None, order: Order) -> bool:
    """Whether a session of the same run has begun after the one of an order."""
    if record is None:
        return False
    run, *then = parse_token(record.values["token"])
    asked, *when = parse_token(order.token)
    return run == asked and (then, record.values["place"]) > (when, order.task.phase_index)


def _told(before: Record | None, order: Order) -> dict[str, list[str]]:
    """Return whose sums this client has told in the round of an order, by phase."""
    if before is None or before.values["round"] != order.task.round:
        return {}
    return dict(before.values["told"]) if parse_token(before.values["token"])[0] == parse_token(order.token)[0] else {}


def _same(before: Any, now: Any) -> None:
    """Refuse another order about a step that was taken."""
    if before != now:
        raise RefusedError("it asks for a step of this session again, with other words: a client answers each once")
