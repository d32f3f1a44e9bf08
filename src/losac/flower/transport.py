"""Orders over Flower's grid: to the nodes that are connected, with deadlines, counting bytes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import httpx
from flwr.app import Message, MessageType, RecordDict
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid

from losac.federation.book import RefusedError
from losac.federation.drive import Exchanged, Peer
from losac.federation.protocol import Order, Reply
from losac.federation.setting import Setting
from losac.flower.records import order_content, read_reply, to_arrays
from losac.trees import Tree

LOG = logging.getLogger("losac")

POLL = 0.2
"""Seconds between two looks for replies."""
LONGEST_NAME = 200
MARGIN = 60.0
"""Seconds that a message lives beyond its deadline."""


class FlowerTransport:
    """A transport over a grid.

    Args:
      grid: Flower's.
      setting: what is run; it says what replies must look like.
      patience: seconds that a node has to introduce itself.
    """

    def __init__(self, grid: Grid, setting: Setting, patience: float = 60.0) -> None:
        self.grid, self.setting, self.patience = grid, setting, patience
        self.known: dict[int, Peer] = {}
        self.ask_again: dict[int, float] = {}

    def peers(self) -> Iterable[Peer]:
        """Return the clients that are connected; nodes not met before are asked who they are.

        A node that does not say so is left alone for a while. Of two nodes with one name the later counts.
        """
        online, now = self._online(), time.monotonic()
        unknown = [node for node in online if node not in self.known and self.ask_again.get(node, now) <= now]
        self.ask_again |= dict.fromkeys(unknown, now + 2 * self.patience)
        messages = [self._message(RecordDict(), MessageType.QUERY, node, self.patience) for node in unknown]
        for node, reply in self._send(dict(zip(unknown, messages)), self.patience).items():
            try:
                peer = _read_hello(reply)
            except Exception as error:
                LOG.error("node %d does not say who it is: %s", node, type(error).__name__)
                continue
            for other in [other for other, known in self.known.items() if known.name == peer.name]:
                if other in online:
                    LOG.error("client %s is at node %d and at node %d: the later is used", peer.name, other, node)
                del self.known[other]
            self.known[node] = peer
        return [self.known[node] for node in online if node in self.known]

    def exchange(self, orders: Mapping[str, Order], deadline: float | None) -> Exchanged:
        """Send orders and wait for the replies, so many seconds at most."""
        nodes = {self.known[node].name: node for node in self._online() if node in self.known}
        messages = {}
        down = 0
        for name, order in orders.items():
            if name in nodes:
                content = order_content(order, self.setting.given)
                kind = MessageType.TRAIN if order.kind == "train" else MessageType.QUERY
                messages[nodes[name]] = self._message(content, kind, nodes[name], deadline)
                down += recorddict_to_proto(content).ByteSize()
        names = {node: name for name, node in nodes.items()}
        replies: dict[str, Reply] = {}
        up = 0
        for node, content in self._send(messages, deadline).items():
            up += recorddict_to_proto(content).ByteSize()
            try:
                replies[names[node]] = self._read(content, orders[names[node]])
            except Exception as error:  # a client may send anything
                why = error if isinstance(error, RefusedError) else type(error).__name__
                LOG.error("what client %s (node %d) sent is refused: %s", names[node], node, why)
        return Exchanged(replies, up, down)

    def evaluate(self, params: Tree, model_state: Tree, deadline: float | None) -> dict[str, dict[str, float]]:
        """Return the metrics of all connected clients on their own data, with their number of ``rows``."""
        messages = {}
        for node in self._online():
            if node in self.known:
                content = RecordDict({"message": to_arrays(params)})
                if model_state:
                    content["model_state"] = to_arrays(model_state)
                messages[node] = self._message(content, MessageType.EVALUATE, node, deadline)
        found = {}
        for node, content in self._send(messages, deadline).items():
            try:
                metrics: Mapping[str, Any] = content.metric_records["metrics"]
                values = {name: float(value) for name, value in metrics.items()}
                assert values["rows"] > 0
                assert math.isfinite(values["loss"])
            except Exception:
                LOG.error("client %s (node %d) sent no metrics", self.known[node].name, node)
                continue
            found[self.known[node].name] = values
        return found

    def _online(self) -> list[int]:
        return list(self._try(self.grid.get_node_ids, []))

    def _try(self, call: Callable[[], Iterable[Any]], otherwise: Iterable[Any]) -> Iterable[Any]:
        """Return what the grid answers; while it cannot be reached, as if nobody were there."""
        try:
            return call()
        except httpx.HTTPError as error:
            LOG.warning("the SuperLink cannot be reached: %s", type(error).__name__)
            time.sleep(1)
            return otherwise

    def _read(self, content: RecordDict, order: Order) -> Reply:
        if "failed" in content:
            raise RefusedError("it failed; its own log says why")
        due = self.setting.payload_like(order.task.place) if order.kind == "train" else self.setting.no_credit
        state = self.setting.model_state if order.kind == "train" else ()
        return read_reply(content, due, state)

    def _message(self, content: RecordDict, kind: str, node: int, deadline: float | None) -> Message:
        return Message(content, node, kind, ttl=None if deadline is None else deadline + MARGIN)

    def _send(self, messages: Mapping[int, Message], deadline: float | None) -> dict[int, RecordDict]:
        """Return what came back within the deadline, by node; errors are told and left out."""
        if not messages:
            return {}
        pushed = zip(self._try(lambda: self.grid.push_messages(list(messages.values())), []), messages)
        sent = {number: node for number, node in pushed if number}  # None: it could not be sent
        until = None if deadline is None else time.monotonic() + deadline
        found: dict[int, RecordDict] = {}
        while sent:
            for reply in self._try(lambda: self.grid.pull_messages(list(sent)), []):
                node = sent.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if reply.has_error():
                    LOG.error("node %d did not answer: Flower's error %d", node, reply.error.code)
                else:
                    found[node] = reply.content
            if not sent or (until is not None and time.monotonic() > until):
                break
            time.sleep(POLL)
        for node in sent.values():
            LOG.warning("node %d did not answer within %s s", node, deadline)
        return found


def _read_hello(content: RecordDict) -> Peer:
    """Return who a node says it is."""
    hello: Mapping[str, Any] = content.config_records["hello"]
    name, rows, place = str(hello["name"]), int(hello["rows"]), int(hello["client"])
    if not 0 < len(name) <= LONGEST_NAME or rows < 1:
        raise RefusedError(f"a client with {rows} rows and a name of {len(name)} letters")
    return Peer(name, rows, None if place < 0 else place)
