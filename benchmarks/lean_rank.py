"""Would low rank compress LoSAC-lean's uploads better than their largest entries do? The energy that each keeps.

    LOSAC_DATA_DIR=path/to/data python benchmarks/lean_rank.py har --rounds 50

What clients would send after some rounds, d_i = (1/M) Σ_j (g_ij − y_ij), is compressed in both ways to the same bytes.
The best matrices of rank r, by singular values, bound what PowerSGD can keep, whose one power step is never better; its
factors are counted in one byte for each number, and so are the largest entries, besides their places.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
from lean import task_of

import losac
from losac.algorithms.packing import packed_bytes

CLIENTS = 10


def largest(vector: np.ndarray, budget: float) -> float:
    """Return the share of the squared norm in as many of the largest entries as fit into some bytes."""
    low, high = 1, vector.size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle + packed_bytes(vector.size, middle) <= budget else (low, middle - 1)
    squares = np.sort(vector**2)[::-1]
    return float(squares[:low].sum() / squares.sum())


def low_rank(arrays: list[np.ndarray], rank: int) -> tuple[float, int]:
    """Return the share of the squared norm that matrices of a rank keep, vectors being sent whole; and the bytes."""
    kept, budget = 0.0, 0
    for a in arrays:
        if a.ndim < 2:
            kept, budget = kept + float((a**2).sum()), budget + a.size
            continue
        kept += float((np.linalg.svd(a, compute_uv=False)[:rank] ** 2).sum())
        budget += rank * sum(a.shape)
    return kept / sum(float((a**2).sum()) for a in arrays), budget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "mnist", "har"))
    parser.add_argument("--partition", default="sorted")
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    task = task_of(given.data, 100, given.partition)
    method = losac.algorithms.losac_lean("auto", 5, 5)
    run = losac.simulate(
        task, method, rounds=given.rounds, eval_every=given.rounds, clients_per_round=10, gradients="formed",
        keep_state=True,
    )  # fmt: skip
    gradient = jax.jit(jax.grad(lambda params, batch, rows: rows * task.loss(params, batch)))
    found: dict[int, list[tuple[float, float, int]]] = {}
    for client in range(0, 100, 100 // CLIENTS):
        x, y = task.data.client(client)
        full = gradient(run.params, (x, y), float(len(x)))
        table = jax.tree.map(lambda a, c=client: np.asarray(a[c]).mean(0), run.state.store.table)
        arrays = [np.asarray(g) - t for g, t in zip(jax.tree.leaves(full), jax.tree.leaves(table))]
        for rank in (1, 2, 4):
            kept, budget = low_rank(arrays, rank)
            vector = np.concatenate([a.ravel() for a in arrays])
            found.setdefault(rank, []).append((kept, largest(vector, budget), budget))
    print("| rank | bytes | kept by the rank, % | kept by the largest entries, % |\n|---|---|---|---|")
    for rank, rows in found.items():
        kept, top, budget = np.mean(rows, 0)
        print(f"| {rank} | {budget:.0f} | {100 * kept:.0f} | {100 * top:.0f} |")


if __name__ == "__main__":
    main()
