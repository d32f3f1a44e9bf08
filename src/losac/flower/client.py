"""A Flower client app from a function that returns the client's own problem."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from losac.algorithms.contract import Algorithm
from losac.federation import durable, logs
from losac.federation.book import RefusedError
from losac.federation.compiled import CompiledWorker
from losac.federation.fingerprint import fingerprint
from losac.federation.owner import claim
from losac.federation.protocol import Client, Reply, parse_token
from losac.federation.secure.configured import configured
from losac.federation.secure.rules import PEERS
from losac.federation.vault import Folder
from losac.federation.versions import check_versions, versions
from losac.federation.work import Worker
from losac.flower.identity import client_name
from losac.flower.private import OWN, protected
from losac.flower.records import from_arrays, read_order, reply_content
from losac.task import Task

LOG = logging.getLogger("losac")

RUNS_KEPT = 8
"""The number of other runs that a client keeps its state of."""
RUN = "[0-9a-f]{12}"
"""The format of a run's name."""

MakeProblem = Callable[[Mapping[str, Any], Mapping[str, Any]], "Task | Worker"]
MakeAlgorithm = Callable[[Mapping[str, Any]], Algorithm]


class _Known(NamedTuple):
    """A worker, and the fingerprint of the algorithm that it shares with the server."""

    worker: Worker
    agreed: str


def client_app(problem: MakeProblem, algorithm: MakeAlgorithm, *, mods: Sequence[Any] = ()) -> ClientApp:
    """Return a Flower app for the clients of a federation.

    Args:
      problem: ``problem(node_config, run_config)``: this client's task, with only its own rows as data; or a worker,
        such as :func:`losac.federation.torch.torch_worker`'s.
      algorithm: ``algorithm(run_config)``; the server must be given the same.
      mods: Flower's, around everything the app receives and sends; and :func:`losac.flower.private`'s.

    A node's configuration holds the folder of its state (``state-dir``, which must survive a restart) and its place
    among the N (``partition-id``).
    """
    app = ClientApp(mods=list(mods))
    last: dict[Any, _Known] = {}  # a process that serves several messages loads its data once

    def known(context: Context) -> _Known:
        key = repr((sorted(context.node_config.items()), sorted(context.run_config.items()))), OWN.get()
        if key not in last:
            made = problem(context.node_config, context.run_config)
            method = configured(algorithm(context.run_config), context.run_config)
            dtype = str(context.run_config.get("dtype") or "float32")
            plain = CompiledWorker(made, method, dtype) if isinstance(made, Task) else _with(made, context.run_config)
            last.clear()
            agreed = fingerprint(plain.algorithm, getattr(plain, "frozen", ""))
            last[key] = _Known(protected(plain, OWN.get()), agreed)
        return last[key]

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _quietly(message, context, lambda: _carry_out(message, context, known(context)))

    @app.query()
    def query(message: Message, context: Context) -> Message:
        def answer() -> RecordDict:
            if "order" in message.content:
                return _carry_out(message, context, known(context))
            check_versions(message.content.config_records.get("hello", {}), "the server")
            return _introduce(context, known(context).worker)

        return _quietly(message, context, answer)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        def answer() -> RecordDict:
            client = known(context).worker
            if any(transform.private for transform in client.algorithm.transforms()) or _trusts(context):
                raise RefusedError("it protects its uploads, and a loss on its own data would travel unprotected")
            content = message.content
            params = from_arrays(content, "message", client.params, in_any_precision=True)
            model_state = from_arrays(content, "model_state", client.model_state, in_any_precision=True)
            found = client.evaluate(params, model_state)
            return RecordDict({"metrics": MetricRecord({**found, "rows": client.rows})})

        return _quietly(message, context, answer)

    return app


def state_folder(context: Context) -> Path:
    """Return where a node keeps its state."""
    where = context.node_config.get("state-dir")
    if where is None:
        return Path.home() / ".losac" / "federation" / str(context.node_config.get("partition-id", context.node_id))
    return Path(str(where))


def _carry_out(message: Message, context: Context, known: _Known) -> RecordDict:
    """Answer an order, with the folder of its run locked against other processes."""
    worker, agreed = known
    order = read_order(message.content, worker, agreed)
    run = parse_token(order.token)[0]
    if not re.fullmatch(RUN, run):
        raise RefusedError(f"{run!r} is not the name of a run")
    folder = state_folder(context) / "runs" / run
    name = client_name(context.node_config, state_folder(context))
    if order.name != name:
        raise RefusedError(f"the order is for client {order.name!r}, and this is {name!r}")
    with logs.about(round=order.task.round + 1), durable.locked(folder, private=True):
        claim(folder, run, name, order.key)
        reply: Reply = _client(worker, folder, context, name).answer(order)
        LOG.info("order to %s: %s", order.kind, reply.status)
    _forget_old_runs(folder)
    return reply_content(reply)


def _with(worker: Worker, run_config: Mapping[str, Any]) -> Worker:
    """Return a worker whose uploads are as the run's configuration says."""
    method = configured(worker.algorithm, run_config)
    return worker if method is worker.algorithm else worker.with_algorithm(method)


def _trusts(context: Context) -> bool:
    """Whether a node has a list of peers, and so sends nothing without masks."""
    return (state_folder(context) / PEERS).exists()


def _client(worker: Worker, folder: Path, context: Context, name: str) -> Client:
    """Return the client of a run: one that uses masks where the node has a list of peers."""
    if not _trusts(context):
        return Client(worker, Folder(folder))
    from losac.federation.secure.client import SecureClient
    from losac.federation.secure.identity import read_trust

    return SecureClient(worker, Folder(folder), read_trust(state_folder(context), name))


def _introduce(context: Context, worker: Worker) -> RecordDict:
    number = context.node_config.get("partition-id")
    name = client_name(context.node_config, state_folder(context))
    config: dict[str, Any] = {"name": name, "rows": worker.rows, "client": -1 if number is None else int(number)}
    return RecordDict({"hello": ConfigRecord(config | versions())})


def _quietly(message: Message, context: Context, answer: Callable[[], RecordDict]) -> Message:
    """Return the answer; what goes wrong is logged only here, since an error's text may hold data."""
    logs.show(_log_form(context))
    try:
        with logs.about(client=client_name(context.node_config, state_folder(context))):
            return _answered(message, answer)
    except OSError as error:
        LOG.error("this client has no name: %s", error)
    return _failed(message)


def _log_form(context: Context) -> str:
    """Return how this client's log looks: the node decides, else the run."""
    chosen = context.node_config.get("log-format") or context.run_config.get("log-format")
    return "json" if chosen == "json" else "text"


def _answered(message: Message, answer: Callable[[], RecordDict]) -> Message:
    try:
        return Message(answer(), reply_to=message)
    except BlockingIOError:
        LOG.error("another process of this client is at work: this order is left to it")
    except RefusedError as error:
        LOG.error("this client does not carry out an order: %s", error)
    except Exception:
        LOG.exception("this client failed")
    return _failed(message)


def _failed(message: Message) -> Message:
    return Message(RecordDict({"failed": ConfigRecord({"failed": True})}), reply_to=message)


def _forget_old_runs(present: Path) -> None:
    """Remove the state of other runs except the latest few."""
    others = [folder for folder in present.parent.iterdir() if re.fullmatch(RUN, folder.name) and folder != present]
    for folder in sorted(others, key=lambda f: f.stat().st_mtime, reverse=True)[RUNS_KEPT:]:
        with contextlib.suppress(OSError), durable.locked(folder, private=True):
            shutil.rmtree(folder)
