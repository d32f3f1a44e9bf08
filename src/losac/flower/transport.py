"""Orders over Flower's grid: to the nodes that are connected, with deadlines, counting bytes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

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

    def peers(self) -> Iterable[Peer]:
        """Return the clients that are connected; nodes not met before are asked who they are."""
        online = list(self.grid.get_node_ids())
        unknown = [node for node in online if node not in self.known]
        messages = [self._message(RecordDict(), MessageType.QUERY, node, self.patience) for node in unknown]
        for node, reply in self._send(dict(zip(unknown, messages)), self.patience).items():
            if "hello" in reply:
                hello: Mapping[str, Any] = reply.config_records["hello"]
                place = int(hello["client"])
                self.known[node] = Peer(str(hello["name"]), int(hello["rows"]), None if place < 0 else place)
        return list({self.known[node].name: self.known[node] for node in online if node in self.known}.values())

    def exchange(self, orders: Mapping[str, Order], deadline: float | None) -> Exchanged:
        """Send orders and wait for the replies, so many seconds at most."""
        nodes = {self.known[node].name: node for node in self.grid.get_node_ids() if node in self.known}
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
            except (RefusedError, KeyError, TypeError, ValueError) as error:
                LOG.error("what client %s (node %d) sent is refused: %s", names[node], node, error)
        return Exchanged(replies, up, down)

    def evaluate(self, params: Tree, model_state: Tree, deadline: float | None) -> dict[str, dict[str, float]]:
        """Return the metrics of all connected clients on their own data, with their number of ``rows``."""
        messages = {}
        for node in self.grid.get_node_ids():
            if node in self.known:
                content = RecordDict({"message": to_arrays(params)})
                if model_state:
                    content["model_state"] = to_arrays(model_state)
                messages[node] = self._message(content, MessageType.EVALUATE, node, deadline)
        found = {}
        for node, content in self._send(messages, deadline).items():
            if "metrics" in content:
                metrics: Mapping[str, Any] = content.metric_records["metrics"]
                found[self.known[node].name] = {name: float(value) for name, value in metrics.items()}
        return found

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
        pushed = zip(self.grid.push_messages(list(messages.values())), messages)
        sent = {number: node for number, node in pushed if number}  # None: it could not be sent
        until = None if deadline is None else time.monotonic() + deadline
        found: dict[int, RecordDict] = {}
        while sent:
            for reply in self.grid.pull_messages(list(sent)):
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
