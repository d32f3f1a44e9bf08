"""What one message costs a client on Flower, in seconds of the processor: Flower's share, losac's, the framework's.

    python benchmarks/client_call.py --json benchmarks/results/client_call.json

Flower starts a process for every message. Here such a process imports what Flower's imports, loads the app and answers
one message, without the network: a hello, an order to train as the first in a round, and another one. Each number
is the smallest of some processes. The apps train softmax regression on the embedded data, with clients in JAX, NumPy
and PyTorch; programs that JAX has compiled come from its cache on the disk, as they do between rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

APPS = ("jax", "numpy", "torch")
STAGES = ("flower", "losac", "framework", "answer")
"""What a process spends its time on: Flower's imports, losac's with JAX, the client's own framework, its work."""
FRAMEWORKS = ("jax", "torch", "optax", "flax", "scipy", "sklearn", "pandas", "matplotlib", "rich")


def algorithm(config: Any) -> Any:
    """Return the method that all three train with."""
    import losac

    return losac.algorithms.scaffold(step_size=1e-3, local_steps=5, batch_size=32)


def problem(kind: str, node_config: Any) -> Any:
    """Return a client's task or worker: the rows of one of four clients."""
    import losac

    data = losac.data.load("digits", 4, "sorted").subset([int(node_config["partition-id"])])
    if kind == "jax":
        return losac.classification(losac.models.softmax_regression(64, 10), data)
    x, y = data.x, data.y
    if kind == "numpy":
        import numpy as np

        from losac.federation.numpy import numpy_worker

        def gradient(params: Any, xs: Any, ys: Any) -> Any:
            scores = xs @ params["w"] + params["b"]
            p = np.exp(scores - scores.max(1, keepdims=True))
            p = p / p.sum(1, keepdims=True) - np.eye(10)[ys]
            return {"w": xs.T @ p / len(xs), "b": p.mean(0)}

        params = {"w": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
        return numpy_worker(algorithm({}), gradient, x, y, params=params)
    import torch

    from losac.federation.torch import torch_worker

    torch.manual_seed(0)
    return torch_worker(algorithm({}), torch.nn.Linear(64, 10), torch.nn.functional.cross_entropy, x, y.astype("int64"))


def child(kind: str, folder: Path) -> None:
    """Answer the message in a folder as Flower's process does; write the reply, and what it cost."""
    spent: dict[str, float] = {}

    def mark(stage: str) -> None:
        spent[stage] = time.process_time() - sum(spent.values())

    from flwr.supernode.cli import flwr_clientapp as _  # noqa: F401

    mark("flower")
    from losac.flower import client_app

    mark("losac")
    if kind == "torch":
        import torch as _torch  # noqa: F401

    mark("framework")
    from flwr.app import Context, Message, RecordDict
    from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Proto
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    app = client_app(lambda node, run: problem(kind, node), algorithm)
    context = Context(1, 1, {"partition-id": 0, "state-dir": str(folder / "state")}, RecordDict(), {})
    proto = Proto()
    proto.ParseFromString((folder / "order").read_bytes())
    content = recorddict_from_proto(proto)
    reply = app(Message(content, 1, "train" if "order" in content else "query"), context)
    mark("answer")
    (folder / "reply").write_bytes(recorddict_to_proto(reply.content).SerializeToString())
    loaded = [name for name in FRAMEWORKS if name in sys.modules]
    (folder / "spent.json").write_text(json.dumps({"spent": spent, "loaded": loaded, "all": time.process_time()}))


class Processes:
    """A transport to one client, which answers every message in a process of its own, and what each cost."""

    def __init__(self, kind: str, folder: Path, setting: Any) -> None:
        self.kind, self.folder, self.setting = kind, folder, setting
        self.costs: list[dict[str, Any]] = []

    def call(self, content: Any) -> Any:
        """Send records to a new process; return the records of its reply."""
        from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
        from flwr.proto.recorddict_pb2 import RecordDict as Proto

        (self.folder / "order").write_bytes(recorddict_to_proto(content).SerializeToString())
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "LOSAC_CACHE": str(self.folder / "cache")}
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        command = [sys.executable, __file__, "--child", self.kind, "--folder", str(self.folder)]
        subprocess.run(command, check=True, env=environment)
        self.costs.append(json.loads((self.folder / "spent.json").read_text()))
        proto = Proto()
        proto.ParseFromString((self.folder / "reply").read_bytes())
        return recorddict_from_proto(proto)

    def peers(self) -> list[Any]:
        """Return the client."""
        from losac.federation.drive import Peer

        return [Peer("client-0", 1, 0)]

    def doubt(self, peer: Any) -> None:
        """Nobody else is there."""

    def exchange(self, orders: Any, deadline: float | None) -> Any:
        """Let the client answer in a process."""
        from losac.federation.drive import Exchanged
        from losac.flower.records import order_content, read_reply

        (order,) = orders.values()
        content = self.call(order_content(order, self.setting.given))
        due = self.setting.payload_like(order.task.phase_index)
        return Exchanged({"client-0": read_reply(content, due, self.setting.model_state)})


def measure(kind: str, repetitions: int) -> dict[str, Any]:
    """Return the smallest seconds of the processor of a hello and of an order to train, by stage."""
    from flwr.app import ConfigRecord, RecordDict

    from losac.federation.book import Rules
    from losac.federation.compiled import CompiledWorker
    from losac.federation.drive import Driver
    from losac.federation.setting import Setting
    from losac.federation.versions import versions
    from losac.prox import zero
    from losac.simulation.sampling import Uniform

    made = problem(kind, {"partition-id": 0})
    worker: Any = CompiledWorker(made, algorithm({})) if kind == "jax" else made
    setting = Setting(
        algorithm({}), Rules(clients=1, clients_per_round=1), worker.params, worker.model_state, zero(), Uniform(1, 1)
    )
    with tempfile.TemporaryDirectory() as name:
        transport = Processes(kind, Path(name), setting)
        book = setting.first_book("0" * 12)
        list(Driver(setting, transport, book).run(repetitions + 2))  # the first two compile
        orders, transport.costs = transport.costs[2:], []
        for _ in range(repetitions):
            transport.call(RecordDict({"hello": ConfigRecord(versions())}))
        hellos = transport.costs
    return {"hello": smallest(hellos), "train": smallest(orders), "loaded": orders[0]["loaded"]}


def smallest(costs: list[dict[str, Any]]) -> dict[str, float]:
    """Return the smallest of some processes, stage by stage and together."""
    found = {stage: min(each["spent"][stage] for each in costs) for stage in STAGES}
    return {name: round(value, 3) for name, value in {**found, "all": min(each["all"] for each in costs)}.items()}


def main() -> None:
    """Measure, print a table, and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=APPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.folder)
        return
    found = {}
    print(f"{'client':8}{'message':9}" + "".join(f"{stage:>10}" for stage in (*STAGES, "all")))
    for kind in APPS:
        found[kind] = measure(kind, arguments.repetitions)
        for message in ("hello", "train"):
            numbers = "".join(f"{found[kind][message][stage]:10.2f}" for stage in (*STAGES, "all"))
            print(f"{kind:8}{message:9}{numbers}", flush=True)
        print(f"{'':8}loads {', '.join(found[kind]['loaded'])}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
