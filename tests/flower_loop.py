"""Flower's grid within one process: real apps and really serialised messages, without its network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import losac
from losac.flower import client_app


def over_the_wire(message: Message) -> Message:
    """Turn a message into bytes and back."""
    read = ProtoMessage()
    read.ParseFromString(message_to_proto(message).SerializeToString())
    return message_from_proto(read)


class LoopGrid(Grid):
    """Nodes as apps; a message is answered when its reply is asked for. ``spoil`` may change or lose a reply."""

    def __init__(self, nodes: dict[int, tuple[Any, Context]], spoil: Callable[[int, Message], Message | None]) -> None:
        self.nodes, self.spoil, self.sent, self.count = nodes, spoil, {}, 0
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # as Flower sets them in its processes

    def set_run(self, run: Any) -> None: ...

    def run(self) -> Any: ...

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        numbers = []
        for message in messages:
            self.count += 1
            message.metadata.__dict__["_message_id"] = str(self.count)
            self.sent[str(self.count)] = message
            numbers.append(str(self.count))
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = []
        for number in message_ids:
            message = self.sent.pop(number, None)
            if message is not None:
                app, context = self.nodes[message.metadata.dst_node_id]
                reply = self.spoil(message.metadata.dst_node_id, over_the_wire(app(over_the_wire(message), context)))
                if reply is not None:
                    replies.append(over_the_wire(reply))
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError


def loop(
    task: losac.Task, algorithm: Any, folder: Path, dtype: str = "float32", spoil: Any = None, mods: Any = ()
) -> LoopGrid:
    """Return a grid with one node for each client of a task, whose states lie in a folder."""
    nodes = {}
    for i in range(task.data.num_clients):
        own = replace(task, data=task.data.subset([i]), weights="uniform", test=None)
        config = {"partition-id": i, "state-dir": str(folder / str(i))}
        context = Context(0, 100 + i, config, RecordDict(), {"dtype": dtype})
        nodes[100 + i] = client_app(lambda node, run, own=own: own, lambda run: algorithm, mods=mods), context
    return LoopGrid(nodes, spoil or (lambda node, reply: reply))
