"""The messages of server and clients, and the answers of a client: nothing is counted twice or lost.

Every attempt at a round has a token; later ones are larger. A client keeps its *committed* state, which the server has
accepted, and a *pending* one, which it may have. Each order names what the server accepted last from this client, so
the client knows which of both is true. docs/protocol.md describes the whole protocol on one page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from losac.algorithms.aggregation import accepted
from losac.algorithms.contract import Federation
from losac.federation.durable import Record
from losac.federation.errors import RefusedError
from losac.federation.shapes import decode, own_phase_index, payload_like
from losac.federation.vault import Vault
from losac.federation.work import Assignment, Kept, Message, Worker
from losac.trees import Tree, map_trees

NOTHING = ""
"""The token that stands for no accepted round: the server holds nothing of the client."""

Kind = Literal["train", "hold", "keys", "shares", "agree", "unmask"]
"""To work, to say what is held, and the steps of :mod:`losac.federation.secure` before and after these."""
Status = Literal["done", "lost", "stale"]


class Order(NamedTuple):
    """What the server asks of one client: to train, or to report what it holds.

    ``accepted`` is the token of the last round that the server accepted from this client; ``follows`` says that the
    phase continues an earlier one of the same round; ``start`` is x⁰, for clients without an accepted round.
    ``name`` and ``key`` are the client's, as the book binds them. ``share`` says how much of what was accepted last the
    server used, by the part of the upload; None: all of it.
    """

    kind: Kind
    token: str
    accepted: str
    task: Assignment
    message: Message = Message(())
    follows: bool = False
    start: Tree = None
    name: str = ""
    key: str = ""
    share: Mapping[str, Tree] | None = None
    secure: bytes = b""
    """A note of secure aggregation; nothing where it is off."""


class Reply(NamedTuple):
    """A client's answer; an upload comes only with ``done``.

    ``lost`` means that the client does not have the state that the server accepted, ``stale`` that the order is an old
    one, or that the phase before is missing.
    """

    status: Status
    token: str
    phase_index: int = 0
    upload: Message = Message(())
    gradients: float = 0.0
    secure: bytes = b""


def make_token(run: str, start: int, tick: int) -> str:
    """Return the token of an attempt: the run's name, the number of its server's starts, the attempts since."""
    return f"{run}/{start}/{tick}"


def parse_token(token: str) -> tuple[str, int, int]:
    """Return a token's parts; within one run, later tokens have larger parts.

    >>> parse_token("a1/2/10") > parse_token("a1/2/9")
    True
    """
    run, start, tick = token.rsplit("/", 2)
    return run, int(start), int(tick)


class Client:
    """One client: a worker, and a vault that survives it.

    Args:
      worker: its computation.
      vault: where its state is kept.
    """

    def __init__(self, worker: Worker, vault: Vault) -> None:
        self.worker, self.vault = worker, vault

    def answer(self, order: Order) -> Reply:
        """Carry out an order once: the same order again gets the same answer."""
        if order.secure or order.kind not in ("train", "hold"):
            raise RefusedError(
                "it belongs to secure aggregation, and this client has no list of peers: put peers.json, from the "
                "operator, into its state-dir"
            )
        phase_index = order.task.phase_index
        pending, committed = self.vault.read("pending"), self.vault.read("committed")
        _require_own(order, pending, committed)
        if _overtaken(order.token, pending, committed):
            return Reply("stale", order.token, phase_index)
        if pending is not None and pending.values["token"] == order.token:
            if order.kind == "train" and pending.values["place"] == phase_index:
                return self._again(pending, order)
            if pending.values["place"] > phase_index or order.kind != "train":
                return Reply("stale", order.token, phase_index)
            return self._train(order, self._kept(pending), pending)
        if order.follows:
            return Reply("stale", order.token, phase_index)
        if pending is not None and self._is(pending, order.accepted):
            committed = self._settled(pending, order)
            self.vault.commit()
        if order.accepted == NOTHING:
            kept, committed = None, None
        elif committed is None or not self._is(committed, order.accepted):
            return Reply("lost", order.token, phase_index)
        else:
            kept = self._kept(committed)
        if order.kind == "hold":
            return self._hold(order, kept, committed)
        if kept is None:
            kept = self.worker.start(self.worker.params if order.start is None else order.start)
        return self._train(order, kept, committed)

    def _is(self, record: Record | None, accepted: str) -> bool:
        """Whether a record is the state that the server accepted: after the algorithm's own phase, not before.

        A client that lost its disk may receive an old order again, for the first of two phases.
        """
        own = own_phase_index(self.worker.algorithm)
        return record is not None and record.values["token"] == accepted and int(record.values["place"]) >= own

    def _settled(self, pending: Record, order: Order) -> Record:
        """Correct the pending state to what the server used of its upload, once."""
        if order.share is None or pending.values.get("settled"):
            return pending
        task = Assignment(*pending.values["task"])
        algorithm = self.worker.algorithm.at(task.round)
        sent = self._again(pending, order._replace(task=task)).upload
        upload = decode(algorithm, task.phase_index, sent.content)
        kept = self.worker.settle(task, upload, accepted(upload, order.share), self._kept(pending))
        settled = Record({**pending.values, "settled": True}, {**pending.arrays, **_named(kept)})
        self.vault.write("pending", settled)
        return settled

    def _train(self, order: Order, kept: Kept, before: Record | None) -> Reply:
        result = self.worker.work(order.task, order.message, kept)
        upload = result.upload
        arrays = _named(result.kept)
        arrays |= {f"sent {name}": jax.tree.leaves(tree) for name, tree in zip(Message._fields, upload)}
        values = {"token": order.token, "place": order.task.phase_index, "gradients": result.gradients}
        values |= {"client": order.task.client, "task": list(order.task)}
        arrays |= self._also_kept(order, upload, before)
        self.vault.write("pending", Record(values, arrays))
        return Reply("done", order.token, order.task.phase_index, upload, result.gradients)

    def _also_kept(self, order: Order, upload: Message, before: Record | None) -> dict[str, list[np.ndarray]]:
        """Return what else a record holds after an upload, which continues another record."""
        return {}

    def _again(self, pending: Record, order: Order) -> Reply:
        """Return the answer that was given before, or would have been given."""
        task, worker = order.task, self.worker
        content = payload_like(worker.algorithm, task.phase_index, worker.params, task.clients, task.sampled)
        like = Message(content, worker.model_state)
        sent = (fill(tree, pending.arrays[f"sent {name}"]) for name, tree in zip(Message._fields, like))
        return Reply("done", order.token, order.task.phase_index, Message(*sent), pending.values["gradients"])

    def _kept(self, record: Record) -> Kept:
        like = self.worker.kept_like
        return Kept(*(fill(tree, record.arrays[name]) for name, tree in zip(Kept._fields, like)))

    def _hold(self, order: Order, kept: Kept | None, before: Record | None) -> Reply:
        here = Federation(order.task.clients, order.task.sampled, lambda x, step: x)
        algorithm = self.worker.algorithm.at(order.task.round)
        if kept is None:
            return Reply("lost", order.token)
        held = algorithm.holding(here, order.start, kept.state, kept.table)
        return Reply("done", order.token, upload=Message(map_trees(np.asarray, held)))


def _named(kept: Kept) -> dict[str, Any]:
    """Return what is kept as arrays of a record."""
    return {name: jax.tree.leaves(tree) for name, tree in zip(Kept._fields, kept)}


def _require_own(order: Order, *records: Record | None) -> None:
    """Refuse an order with the tokens of another client's work, which means that two clients share a vault."""
    for record in records:
        if record is not None and record.values["token"] in (order.token, order.accepted):
            client = record.values.get("client", order.task.client)  # records of earlier versions do not say
            if client != order.task.client:
                raise RefusedError(
                    f"its vault holds the work of client {client} and the order is for client {order.task.client}: "
                    "give every client a state-dir of its own"
                )


def _overtaken(token: str, pending: Record | None, committed: Record | None) -> bool:
    """Whether a later order of the same run has been carried out, or the same one committed."""
    run, *when = parse_token(token)
    for record, or_same in ((pending, False), (committed, True)):
        if record is not None:
            other, *then = parse_token(record.values["token"])
            if other == run and (then > when or (or_same and then == when)):
                return True
    return False


def fill(like: Tree, leaves: Any) -> Tree:
    """Return a tree of one tree's structure with other leaves."""
    return jax.tree.unflatten(jax.tree.structure(like), list(leaves))
