"""Orders and replies as Flower's records, and back: arrays by the names of their places in the trees.

What a message must look like follows from the algorithm and the model. Nothing in it says how to build anything:
names, and later shapes and dtypes, are compared with what is due.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import Any, get_args

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from losac._checks import shown
from losac.algorithms.contract import Algorithm
from losac.federation.arrays import dtype_of
from losac.federation.book import RefusedError
from losac.federation.checks import check_norm
from losac.federation.fingerprint import fingerprint
from losac.federation.orders import check_order
from losac.federation.protocol import Order, Reply, Status
from losac.federation.shapes import message_like, share_like
from losac.federation.work import Assignment, Message, Worker
from losac.simulation.engines.resident import precision
from losac.trees import Tree

Config = dict[str, Any]

FLOATING = (np.dtype(np.float32), np.dtype(np.float64))
"""The precisions of a run."""
HEADER = 4096
"""Bytes that an array may have in front of its numbers; NumPy writes 128."""
NOTE = "secure"
"""The record of what secure aggregation adds."""
LONGEST = 512
"""Letters of the longest text in an order or a reply."""
ORDER: Mapping[str, type] = {
    **dict.fromkeys(("kind", "token", "accepted", "algorithm", "name", "key"), str), "follows": bool, "weight": float,
    **dict.fromkeys(("seed", "round", "place", "client", "slot", "clients", "sampled", "steps"), int),
}  # fmt: skip
REPLY: Mapping[str, type] = {"status": str, "token": str, "place": int, "gradients": float}
READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

SENT_AS = {"phase_index": "place"}
"""Fields with another name in messages: that of earlier releases, which still read it."""


def order_content(order: Order, algorithm: Algorithm, frozen: str = "") -> RecordDict:
    """Return the records of an order."""
    values = order.task._asdict() | {"steps": -1 if order.task.steps is None else order.task.steps}
    task = {SENT_AS.get(name, name): value for name, value in values.items()}
    config: Config = {"kind": order.kind, "token": order.token, "accepted": order.accepted, "follows": order.follows}
    config |= {"name": order.name, "key": order.key}
    content = RecordDict({"order": ConfigRecord(config | task | {"algorithm": fingerprint(algorithm, frozen)})})
    _put_note(content, order.secure)
    return _with_arrays(
        content, message=order.message.content, model_state=order.message.model_state, start=order.start,
        share=order.share,
    )  # fmt: skip


def read_order(content: RecordDict, worker: Worker, agreed: str) -> Order:
    """Return the order in some records; raise RefusedError if it does not fit the worker.

    ``agreed`` is the fingerprint of the algorithm, and of the frozen weights, that the client takes the server to run
    with, without the client's own transforms.
    """
    config = _config(content, "order", ORDER, {"message", "model_state", "start", "share", NOTE})
    if config["algorithm"] != agreed:
        raise RefusedError(
            f"the server runs {shown(config['algorithm'])} and this client {agreed}: give both the same algorithm and "
            "settings, on the same frozen weights"
        )
    values = {name: config[SENT_AS.get(name, name)] for name in Assignment._fields}
    task = Assignment(**values | {"steps": None if values["steps"] < 0 else values["steps"]})
    kind = config["kind"]
    check_order(worker.algorithm, dtype_of(worker.params), kind, config["token"], config["accepted"], task)
    trained = kind == "train"
    like = _message_like(worker, task.phase_index) if trained else ()
    message = Message(
        from_arrays(content, "message", like, in_any_precision=True),
        from_arrays(content, "model_state", worker.model_state if trained else (), in_any_precision=True),
    )
    start = from_arrays(content, "start", worker.params, in_any_precision=True) if "start" in content else None
    check_norm((message, start), None)
    share = _share(content, worker, task) if "share" in content else None
    return Order(
        kind, config["token"], config["accepted"], task, message, config["follows"], start, config["name"],
        config["key"], share, _note(content),
    )  # fmt: skip


def _share(content: RecordDict, worker: Worker, task: Assignment) -> Tree:
    """Return how much of the accepted upload the server says it used: shares from 0 to 1."""
    with precision(dtype_of(worker.params)):
        like = share_like(worker.algorithm, worker.params, task.clients, task.sampled)
    share = from_arrays(content, "share", () if like is None else like, in_any_precision=True)
    if any((np.asarray(a) < 0).any() or (np.asarray(a) > 1).any() for a in jax.tree.leaves(share)):
        raise RefusedError("share holds numbers that are not between 0 and 1")
    return share


def reply_content(reply: Reply) -> RecordDict:
    """Return the records of a reply."""
    config: Config = {
        "status": reply.status,
        "token": reply.token,
        "place": reply.phase_index,
        "gradients": reply.gradients,
    }
    content = RecordDict({"reply": ConfigRecord(config)})
    _put_note(content, reply.secure)
    return _with_arrays(content, message=reply.upload.content, model_state=reply.upload.model_state)


def read_reply(content: RecordDict, due: Tree, model_state: Tree) -> Reply:
    """Return the reply that some records hold; raise RefusedError where its arrays are not those due."""
    config = _config(content, "reply", REPLY, {"message", "model_state", NOTE})
    if config["status"] not in get_args(Status):
        raise RefusedError(f"its status is {shown(config['status'])}")
    upload = Message(())
    if config["status"] == "done":
        upload = Message(from_arrays(content, "message", due), from_arrays(content, "model_state", model_state))
    status: Any = str(config["status"])
    phase_index, gradients = int(config[SENT_AS["phase_index"]]), float(config["gradients"])
    return Reply(status, str(config["token"]), phase_index, upload, gradients, _note(content))


def _put_note(content: RecordDict, note: bytes) -> None:
    """Add a note of secure aggregation, where there is one."""
    if note:
        content[NOTE] = ConfigRecord({NOTE: note})


def _note(content: RecordDict) -> bytes:
    """Return the note of secure aggregation in some records; nothing where there is none."""
    if NOTE not in content:
        return b""
    record: Mapping[str, Any] = content.config_records.get(NOTE, {})
    if sorted(record) != [NOTE] or type(record[NOTE]) is not bytes:
        raise RefusedError(f"{NOTE} holds {shown(sorted(record)[:5])}, and is to hold some bytes")
    return record[NOTE]


def to_arrays(tree: Tree) -> ArrayRecord:
    """Return a tree's arrays by the names of their places."""
    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in named(tree).items()})


def from_arrays(content: RecordDict, field: str, like: Tree, *, in_any_precision: bool = False) -> Tree:
    """Return a tree of the structure of ``like`` with the arrays of one record.

    A client takes them in any precision: the server chooses that of the run.
    """
    due = named(like)
    record: Mapping[str, Array] = content.array_records.get(field, {})
    if sorted(record) != sorted(due):
        found = shown(sorted(record)[:5])
        raise RefusedError(f"{field} holds the arrays {found} where {sorted(due)[:5]} are expected")
    leaves = [_read_array(f"{field} {name}", record[name], leaf, in_any_precision) for name, leaf in due.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _read_array(name: str, array: Array, like: Any, in_any_precision: bool) -> np.ndarray:
    """Return an array; its sizes are compared with those due before anything is allocated."""
    shape, due = np.shape(like), np.dtype(like.dtype)
    dtypes = FLOATING if in_any_precision and due in FLOATING else (due,)
    sizes = [dtype.itemsize * math.prod(shape) for dtype in dtypes]
    if array.stype != "numpy.ndarray":
        raise RefusedError(f"{name} is serialised as {shown(array.stype)}")
    if not min(sizes) < len(array.data) <= max(sizes) + HEADER:
        raise RefusedError(f"{name} comes in {len(array.data)} bytes where {max(sizes)} and a header are expected")
    stream = io.BytesIO(array.data)
    try:
        read = READERS[np.lib.format.read_magic(stream)]
        found, fortran, kind = read(stream, max_header_size=HEADER)
    except Exception as error:  # NumPy reads it as Python, and many things can be wrong with it
        raise RefusedError(f"{name} is no array: {type(error).__name__}") from None
    if found != shape:
        raise RefusedError(f"{name} has the shape {shown(found)} where {shape} is expected")
    if kind not in dtypes:
        raise RefusedError(f"{name} has the dtype {shown(str(kind))} where {due} is expected")
    if len(array.data) - stream.tell() != kind.itemsize * math.prod(shape):
        raise RefusedError(f"{name} does not end where it should")
    order: Any = "F" if fortran else "C"
    leaf = np.frombuffer(array.data, kind, offset=stream.tell()).reshape(shape, order=order).copy()
    if np.issubdtype(kind, np.floating) and not np.isfinite(leaf).all():
        raise RefusedError(f"{name} contains NaN or infinity")
    return leaf


def _config(content: RecordDict, field: str, kinds: Mapping[str, type], others: set[str]) -> Mapping[str, Any]:
    """Return a record of plain values; refuse other names or kinds, further records, and texts that are too long."""
    unknown = sorted(set(content) - {field} - others)
    if unknown:
        raise RefusedError(f"it holds the records {shown(unknown[:5])}, which are not expected")
    record: Mapping[str, Any] = content.config_records.get(field, {})
    if sorted(record) != sorted(kinds):
        raise RefusedError(f"{field} holds {shown(sorted(record)[:20])} where {sorted(kinds)} are expected")
    for name, kind in kinds.items():
        if type(record[name]) is not kind:
            raise RefusedError(f"{field} {name} is {shown(record[name])}, which is not of the kind {kind.__name__}")
        if kind is str and not (len(record[name]) <= LONGEST and record[name].isprintable()):
            raise RefusedError(f"{field} {name} is {shown(record[name])}: too long, or not printable")
    return record


def _message_like(worker: Worker, phase_index: int) -> Tree:
    """Return the shapes and dtypes of a phase's message, in the precision of the worker."""
    with precision(dtype_of(worker.params)):
        return message_like(worker.algorithm, phase_index, worker.params)


def named(tree: Tree) -> dict[str, Any]:
    """Return a tree's leaves by the names of their places."""
    return {jax.tree_util.keystr(path) or ".": leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _with_arrays(content: RecordDict, **trees: Tree) -> RecordDict:
    for name, tree in trees.items():
        if jax.tree.leaves(tree):
            content[name] = to_arrays(tree)
    return content
