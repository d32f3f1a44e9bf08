"""What LoSAC-lean would send down if clients caught up by the sums since their last visit: a count, nothing is sent.

    python benchmarks/lean_download.py digits --rounds 200
    LOSAC_DATA_DIR=path/to/data python benchmarks/lean_download.py har

The server's two models follow from those of an earlier round and the sums of the uploads since then. So a client that
was there before can be sent these sums. The count is per client and visit: the sums of all rounds since its last visit,
or the two models where these are smaller, as they are for its first. The sum of a round travels as its entries in four
bytes and their places, or as the messages that it is the sum of, whichever is smaller; eight bytes more hold the step
and the number of clients.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np
from lean import task_of
from simulator import Simulator

import losac
from losac.algorithms.packing import packed_bytes
from losac.simulation.sampling import Uniform, draw_clients
from losac.task import parameter_count

SHARES = (0.1, 0.05, 0.02, 0.01)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def count(task: losac.Task, share: float, sampled: int, rounds: int) -> tuple[float, float, float, float]:
    """Return the mean share of entries in a round's sum, and MB up, down by models and down by sums."""
    sent = losac.algorithms.top_k(share, error_feedback=False, over="model", bits=8)
    runs = Simulator(task, losac.algorithms.losac_lean("auto", 5, 5, uploads=(sent,)), sampled)
    clients, size = task.data.num_clients, parameter_count(task)
    models, last, sums = 8 * size, np.full(clients, -1), np.zeros(rounds)
    up = sampled * (round(share * size) + 4 + packed_bytes(size, round(share * size)))
    down, filled, phi = 0.0, [], flat(runs.engine.state.server.phi)
    for r in range(rounds):
        ids, _ = draw_clients(Uniform(clients, sampled), 0, r, 1, clients, sampled)
        for i in ids[0]:
            down += models if last[i] < 0 else min(models, sums[last[i] : r].sum())
            last[i] = r
        runs.run(1)
        before, phi = phi, flat(runs.engine.state.server.phi)
        changed = int((phi != before).sum())
        filled.append(changed / size)
        sums[r] = min(4 * changed + packed_bytes(size, changed), up) + 8
    return float(np.mean(filled)), rounds * up / 1e6, rounds * sampled * models / 1e6, down / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "har"))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--sampled", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    task = task_of(given.data, given.clients, "sorted")
    print("| largest | entries of a sum | MB up | MB down, models | MB down, sums |\n|---|---|---|---|---|")
    for share in SHARES:
        filled, up, models, sums = count(task, share, given.sampled, given.rounds)
        print(f"| {100 * share:g} % | {100 * filled:.0f} % | {up:.2f} | {models:.2f} | {sums:.2f} |", flush=True)


if __name__ == "__main__":
    main()
