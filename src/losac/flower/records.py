"""Orders and replies as Flower's records, and back: arrays by the names of their places in the trees.

What a message must look like follows from the algorithm and the model, so that nothing in it says how to build
anything: names, and later shapes and dtypes, are compared with what is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from losac.algorithms.contract import Algorithm
from losac.federation.book import RefusedError
from losac.federation.fingerprint import fingerprint
from losac.federation.protocol import Order, Reply
from losac.federation.shapes import message_like
from losac.federation.work import Assignment, Message, Worker
from losac.trees import Tree

Config = dict[str, Any]


def order_content(order: Order, algorithm: Algorithm) -> RecordDict:
    """Return the records of an order."""
    task = order.task._asdict() | {"steps": -1 if order.task.steps is None else order.task.steps}
    config: Config = {"kind": order.kind, "token": order.token, "accepted": order.accepted, "follows": order.follows}
    content = RecordDict({"order": ConfigRecord(config | task | {"algorithm": fingerprint(algorithm)})})
    return _with_arrays(
        content, message=order.message.content, model_state=order.message.model_state, start=order.start
    )


def read_order(content: RecordDict, worker: Worker, agreed: str) -> Order:
    """Return the order that some records hold; raise RefusedError where it does not fit the worker.

    ``agreed`` is the fingerprint of the algorithm that the client takes the server to run, without transforms of its
    own.
    """
    config: Mapping[str, Any] = content.config_records["order"]
    if config["algorithm"] != agreed:
        raise RefusedError(
            f"the server runs {config['algorithm']} and this client {agreed}: give both the same algorithm and settings"
        )
    values = {name: config[name] for name in Assignment._fields}
    task = Assignment(**values | {"steps": None if values["steps"] < 0 else values["steps"]})
    kind = config["kind"]
    like = message_like(worker.algorithm, task.place, worker.params) if kind == "train" else ()
    message = Message(
        from_arrays(content, "message", like), from_arrays(content, "model_state", worker.model_state if like else ())
    )
    start = from_arrays(content, "start", worker.params) if "start" in content else None
    return Order(kind, str(config["token"]), str(config["accepted"]), task, message, bool(config["follows"]), start)


def reply_content(reply: Reply) -> RecordDict:
    """Return the records of a reply."""
    config: Config = {"status": reply.status, "token": reply.token, "place": reply.place, "gradients": reply.gradients}
    content = RecordDict({"reply": ConfigRecord(config)})
    return _with_arrays(content, message=reply.upload.content, model_state=reply.upload.model_state)


def read_reply(content: RecordDict, due: Tree, model_state: Tree) -> Reply:
    """Return the reply that some records hold; raise RefusedError where its arrays are not those due."""
    config: Mapping[str, Any] = content.config_records["reply"]
    upload = Message(())
    if config["status"] == "done":
        upload = Message(from_arrays(content, "message", due), from_arrays(content, "model_state", model_state))
    status: Any = str(config["status"])
    return Reply(status, str(config["token"]), int(config["place"]), upload, float(config["gradients"]))


def to_arrays(tree: Tree) -> ArrayRecord:
    """Return a tree's arrays by the names of their places."""
    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in named(tree).items()})


def from_arrays(content: RecordDict, field: str, like: Tree) -> Tree:
    """Return a tree of the structure of ``like`` with the arrays of one record."""
    names = list(named(like))
    record: Mapping[str, Array] = content.array_records.get(field, {})
    if sorted(record) != sorted(names):
        raise RefusedError(f"{field} holds the arrays {sorted(record)[:5]} where {sorted(names)[:5]} are due")
    return jax.tree.unflatten(jax.tree.structure(like), [record[name].numpy() for name in names])


def named(tree: Tree) -> dict[str, Any]:
    """Return a tree's leaves by the names of their places."""
    return {jax.tree_util.keystr(path) or ".": leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _with_arrays(content: RecordDict, **trees: Tree) -> RecordDict:
    for name, tree in trees.items():
        if jax.tree.leaves(tree):
            content[name] = to_arrays(tree)
    return content
