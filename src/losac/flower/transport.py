"""Sends orders over Flower's grid to the connected nodes, with deadlines, and counts bytes."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import httpx
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid

from losac._checks import shown
from losac.federation.book import Member, RefusedError
from losac.federation.drive import Exchanged, Peer
from losac.federation.protocol import Order, Reply
from losac.federation.secure.likes import masked_reply_like
from losac.federation.setting import Setting
from losac.federation.versions import check_versions, versions
from losac.flower.records import order_content, read_reply, to_arrays
from losac.trees import Tree

LOG = logging.getLogger("losac")

POLL = 0.2
"""Seconds between two polls for replies."""
LONGEST_NAME = 200
MOST_ROWS = 10**12
ERRORS = {
    1: "its app cannot be loaded", 2: "its app failed", 3: "the order is no longer there", 4: "the reply is gone",
    5: "it is offline", 7: "it does not run this app: is the app pinned there?", 8: "the process of its app died",
}  # fmt: skip
"""What Flower's error codes mean here."""
LONGEST_REST = 3600.0
"""Seconds after which a node that does not say who it is is asked again at the latest."""
MARGIN = 60.0
"""Seconds that a message stays valid after its deadline."""


class FlowerTransport:
    """A transport over a grid.

    Args:
      grid: Flower's.
      setting: what is run; it says what replies must look like.
      patience: seconds that a node has to introduce itself.
      node_keys: whether nodes have keys that last.
    """

    def __init__(self, grid: Grid, setting: Setting, patience: float = 60.0, *, node_keys: bool = True) -> None:
        self.grid, self.setting, self.patience, self.node_keys = grid, setting, patience, node_keys
        self.known: dict[int, Peer] = {}
        self.doubted: set[int] = set()
        self.asked: dict[int, int] = {}
        self.ask_again: dict[int, float] = {}

    def peers(self) -> Iterable[Peer]:
        """Return the clients that are connected; nodes not met before are asked who they are.

        A node that does not say so, or that the book refuses, is asked again, each time after twice as long a rest: all
        others wait while it is asked. Nodes with keys are all returned: the book decides which of them has a name. Of
        two nodes without keys and with one name the later counts.
        """
        online, now = self._online(), time.monotonic()
        unsure = [node for node in online if node not in self.known or node in self.doubted]
        unknown = [node for node in unsure if self.ask_again.get(node, now) <= now]
        for node in unknown:
            self.asked[node] = self.asked.get(node, 0) + 1
            self.ask_again[node] = now + min(
                self.patience * 2 ** self.asked[node], max(LONGEST_REST, 2 * self.patience)
            )
        hello = RecordDict({"hello": ConfigRecord(versions())})
        messages = [self._message(hello, MessageType.QUERY, node, self.patience) for node in unknown]
        for node, reply in self._send(dict(zip(unknown, messages)), self.patience).items():
            try:
                peer = _read_hello(reply)._replace(key=online[node])
            except Exception as error:
                why = error if isinstance(error, RefusedError) else type(error).__name__
                LOG.error("node %d does not say who it is: %s", node, why)
                continue
            for other in [other for other, known in self.known.items() if known.name == peer.name and not peer.key]:
                if other in online:
                    LOG.error(
                        "client %s is at node %d and at node %d: the later is used", peer.name, other, node,
                        extra={"client": peer.name},
                    )  # fmt: skip
                del self.known[other]
            self.known[node] = peer
            self.doubted.discard(node)
        return [self.known[node] for node in online if node in self.known]

    def doubt(self, peer: Peer) -> None:
        """Ask the node that says it is this client again, after a rest: it may have been set up anew."""
        self.doubted |= {node for node, known in self.known.items() if known == peer}

    def exchange(self, orders: Mapping[str, Order], deadline: float | None) -> Exchanged:
        """Send orders and wait for the replies, so many seconds at most."""
        nodes = self._nodes({name: order.key for name, order in orders.items()})
        messages = {}
        down = 0
        for name, order in orders.items():
            if name in nodes:
                content = order_content(order, self.setting.given, self.setting.frozen)
                kind = MessageType.TRAIN if order.kind == "train" else MessageType.QUERY
                messages[nodes[name]] = self._message(content, kind, nodes[name], deadline)
                down += recorddict_to_proto(content).ByteSize()
        names = {node: name for name, node in nodes.items()}
        replies: dict[str, Reply] = {}
        up = 0
        for node, content in self._send(messages, deadline).items():
            try:
                replies[names[node]] = self._read(content, orders[names[node]])
                up += recorddict_to_proto(content).ByteSize()
            except Exception as error:  # a client may send anything
                replies.pop(names[node], None)
                up += _data(content)
                why = error if isinstance(error, RefusedError) else type(error).__name__
                name = names[node]
                LOG.error("what client %s (node %d) sent is refused: %s", name, node, why, extra={"client": name})
        return Exchanged(replies, {"bytes_up": up, "bytes_down": down})

    def evaluate(
        self, members: Mapping[str, Member], params: Tree, model_state: Tree, deadline: float | None
    ) -> dict[str, float]:
        """Return the losses of all connected members on their own data."""
        messages = {}
        for node in self._nodes({name: member.key for name, member in members.items()}).values():
            content = RecordDict({"message": to_arrays(params)})
            if model_state:
                content["model_state"] = to_arrays(model_state)
            messages[node] = self._message(content, MessageType.EVALUATE, node, deadline)
        found = {}
        for node, content in self._send(messages, deadline).items():
            try:
                loss = content.metric_records["metrics"]["loss"]
                if not (isinstance(loss, float) and math.isfinite(loss)):
                    raise RefusedError(f"its loss is {shown(loss)}")
            except Exception as error:
                why = error if isinstance(error, RefusedError) else "it sent no metrics"
                name = self.known[node].name
                LOG.error("client %s (node %d) is left out of the loss: %s", name, node, why, extra={"client": name})
                continue
            found[self.known[node].name] = loss
        return found

    def _online(self) -> dict[int, str]:
        """Return the nodes that are connected, and the fingerprints of their keys, empty where they have none."""
        nodes = getattr(self.grid, "get_nodes", None)
        if nodes is None or not self.node_keys:
            return dict.fromkeys(self._try(self.grid.get_node_ids, []), "")
        return {node.node_id: _fingerprint(node.public_key) for node in self._try(nodes, [])}

    def _nodes(self, keys: Mapping[str, str]) -> dict[str, int]:
        """Return where the clients are that have these keys, by name."""
        there = {node: self.known[node] for node in self._online() if node in self.known}
        return {peer.name: node for node, peer in there.items() if keys.get(peer.name) == peer.key}

    def _who(self, node: int) -> dict[str, str]:
        """Return the fields of a line about a node."""
        return {"client": self.known[node].name} if node in self.known else {}

    def _try(self, call: Callable[[], Iterable[Any]], otherwise: Iterable[Any]) -> Iterable[Any]:
        """Return what the grid answers; if it cannot be reached, the answer without any node."""
        try:
            return call()
        except httpx.HTTPError as error:
            LOG.warning("the SuperLink cannot be reached: %s", type(error).__name__)
            time.sleep(1)
            return otherwise

    def _read(self, content: RecordDict, order: Order) -> Reply:
        if "failed" in content:
            raise RefusedError("it failed; its own log says why")
        setting = self.setting
        if setting.rules.secure is not None:
            return read_reply(content, masked_reply_like(setting, order.kind, order.task.phase_index), ())
        due = setting.payload_like(order.task.phase_index) if order.kind == "train" else setting.no_credit
        return read_reply(content, due, setting.model_state if order.kind == "train" else ())

    def _message(self, content: RecordDict, kind: str, node: int, deadline: float | None) -> Message:
        return Message(content, node, kind, ttl=None if deadline is None else deadline + MARGIN)

    def _send(self, messages: Mapping[int, Message], deadline: float | None) -> dict[int, RecordDict]:
        """Return what came back within the deadline, by node; errors are logged and left out."""
        if not messages:
            return {}
        pushed = zip(self._try(lambda: self.grid.push_messages(list(messages.values())), []), messages)
        sent = {number: node for number, node in pushed if number}  # None: it could not be sent
        until = None if deadline is None else time.monotonic() + deadline
        found: dict[int, RecordDict] = {}
        while sent:
            with replies_whole_by(until):
                pulled = self._try(lambda: self.grid.pull_messages(list(sent)), [])
            for reply in pulled:
                node = sent.pop(reply.metadata.reply_to_message_id, None)
                if node is None:
                    continue
                if reply.has_error():
                    why = ERRORS.get(reply.error.code, "no further reason")
                    LOG.error(
                        "node %d did not answer: Flower's error %d, %s", node, reply.error.code, why,
                        extra=self._who(node),
                    )  # fmt: skip
                else:
                    found[node] = reply.content
            if not sent or (until is not None and time.monotonic() > until):
                break
            time.sleep(POLL)
        for node in sent.values():
            LOG.warning("node %d did not answer within %s s", node, deadline, extra=self._who(node))
        return found


@contextlib.contextmanager
def replies_whole_by(until: float | None) -> Iterator[None]:
    """Give up a reply whose content does not follow its announcement in time; Flower waits for minutes, up to hours."""
    flower: Any = sys.modules.get("flwr.superlink.grid.http_grid")  # not there, it pulls nothing
    if (pull := getattr(flower, "pull_objects", None)) is None:
        yield
        return

    def pull_in_time(*given: Any, **named: Any) -> Any:
        left = None if until is None else max(until - time.monotonic(), 0.0)
        return pull(*given, **named | ({} if left is None else {"max_time": left, "backoff_cap": 1.0}))

    flower.pull_objects = pull_in_time
    try:
        yield
    finally:
        flower.pull_objects = pull


def _fingerprint(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest() if public_key else ""


def _read_hello(content: RecordDict) -> Peer:
    """Return who a node says it is."""
    if "failed" in content:
        raise RefusedError("it failed; its own log says why")
    hello: Mapping[str, Any] = content.config_records["hello"]
    release = check_versions(hello, "it")
    name, rows, number = hello["name"], hello["rows"], hello["client"]
    if not (isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable() and name == name.strip()):
        raise RefusedError(f"it says that its name is {shown(name)}: use up to {LONGEST_NAME} printable letters")
    if not (type(rows) is int and 0 < rows <= MOST_ROWS and type(number) is int and -1 <= number <= MOST_ROWS):
        raise RefusedError(f"it says that it has {shown(rows)} rows and the number {shown(number)}")
    return Peer(name, rows, None if number < 0 else number, losac=release)


def _data(content: RecordDict) -> int:
    """Return the bytes of a message's arrays, which nothing was done with."""
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())
