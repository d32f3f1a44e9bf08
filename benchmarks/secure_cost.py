"""What secure aggregation costs per round and client, in bytes and milliseconds, without the training itself.

    python benchmarks/secure_cost.py --json benchmarks/results/secure_cost.json

Sessions within one process on one core: keys, shares, masked uploads, agreement and unmasking, with a tenth of the
clients lost after their keys are shared. Clients keep their state in memory.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import losac.algorithms as A
from losac.federation.protocol import NOTHING, Order, Reply
from losac.federation.secure import session as sums
from losac.federation.secure.client import SecureClient
from losac.federation.secure.identity import Trust, public_key
from losac.federation.secure.levels import as_int64
from losac.federation.secure.rules import SecureRules
from losac.federation.vault import Memory
from losac.federation.work import Assignment, Kept, Message, Result
from losac.trees import nbytes

FIXED = A.fixed_point(limit=8.0)
CASES = [(5, 0), (20, 0), (100, 0), (100, 20)]
SIZES = [7850, 199210]


class Worker:
    """A client without data."""

    rows, model_state, kept_like = 1, (), Kept((), (), ())
    algorithm = A.fedavg(0.1, uploads=(FIXED,))

    def __init__(self, payload: Any, size: int) -> None:
        self.payload, self.params = payload, np.zeros(size, np.float32)

    def start(self, params: Any) -> Kept:
        return self.kept_like

    def work(self, task: Assignment, message: Message, kept: Kept) -> Result:
        return Result(Message(self.payload), kept, 0.0)


def measure(count: int, neighbours: int, size: int) -> dict[str, Any]:
    """Return the cost of one session."""
    names = [f"client-{k:04}" for k in range(count)]
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    peers = {name: public_key(key) for name, key in keys.items()}
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    payload = jax.tree.map(np.asarray, FIXED.encode(None, (), values)[0])
    worker = Worker(payload, size)
    clients = {name: SecureClient(worker, Memory(), Trust(name, keys[name], peers)) for name in names}
    lost = set(names[:: max(count // (count // 10), 1)]) if count >= 10 else {names[1]}
    spent, up, down = dict.fromkeys(names, 0.0), 0, 0

    def exchange(orders: Mapping[str, Order]) -> dict[str, Reply]:
        nonlocal up, down
        replies = {}
        for name, order in orders.items():
            if name in lost and order.kind not in ("keys", "shares"):
                continue
            began = time.process_time()
            replies[name] = clients[name].answer(order)
            spent[name] += time.process_time() - began
            down += len(order.secure)
            up += len(replies[name].secure) + nbytes(replies[name].upload)
        return replies

    orders = {
        name: Order("train", "run/1/1", NOTHING, Assignment(0, 0, 0, k, k, count, count, 1.0), name=name)
        for k, name in enumerate(names)
    }
    began = time.process_time()
    session = sums.begin(orders, SecureRules(neighbours=neighbours))
    sums.exchange_keys(session, orders, exchange)
    for name, reply in exchange(sums.masked_orders(session, orders)).items():
        sums.take(session, name, reply, (np.zeros(size, np.uint64),))
    (found,) = as_int64(sums.reveal(session, orders, exchange))
    seconds = time.process_time() - began
    np.testing.assert_array_equal(found, payload.levels() * len(session.survivors))
    return {
        "clients": count, "neighbours": neighbours or count - 1, "lost": len(lost), "entries": size,
        "KB up": up / count / 1e3, "KB down": down / count / 1e3, "upload alone, KB": 4 * size / 1e3,
        "ms per client": 1e3 * sum(spent.values()) / count, "ms at the server": 1e3 * (seconds - sum(spent.values())),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measure(5, 0, 10)  # imports and compiles
    rows = []
    for count, neighbours in CASES:
        for size in SIZES:
            rows.append(measure(count, neighbours, size))
            if len(rows) == 1:
                print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
            print(
                "| " + " | ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in rows[-1].values()) + " |",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
