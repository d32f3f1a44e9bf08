"""LoSAC, LoSAC-lean and compressed LoSAC-lean on one problem: rounds and bytes to a target that is kept, and the end.

    python benchmarks/lean.py digits --target 0.95
    LOSAC_DATA_DIR=path/to/data python benchmarks/lean.py har --rounds 200 --target 0.9 --seeds 0,1

All methods take their step from the curvature: LoSAC and LoSAC-lean by the rule of losac.tuning.suggest (whose ten
rounds are not counted), those called auto by measuring it themselves in their first three rounds, which are counted.
The target is reached in the first of five evaluations in a row that are at or above it. The table has means over the
seeds, and the least and the most rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

import losac
from losac.tuning.steps import LENGTH, curvature

IN_A_ROW = 5


def task_of(name: str, clients: int, partition: str) -> losac.Task:
    """Return the problem: softmax regression on digits, else the 2NN."""
    model = {
        "digits": losac.models.softmax_regression(64, 10), "mnist": losac.models.two_nn(),
        "har": losac.models.two_nn(561, classes=6),
    }[name]  # fmt: skip
    return losac.classification(model, losac.data.load(name, clients=clients, partition=partition))


def methods(eta: float, steps: int, blocks: int) -> dict[str, Any]:
    """Return the methods that are compared."""
    a = losac.algorithms
    top, packed = (a.top_k(0.05, error_feedback=False, **more) for more in ({}, {"bits": 8, "over": "model"}))
    thin = {rank: (a.power_sgd(rank, error_feedback=False, bits=8),) for rank in (1, 2)}
    return {
        "losac, exact": a.losac(eta, steps, blocks, scaling="exact"),
        "lean": a.losac_lean(eta, steps, blocks),
        "lean, top 5 %": a.losac_lean(eta, steps, blocks, uploads=(top,)),
        "lean, auto": a.losac_lean("auto", steps, blocks),
        "lean, auto, top 5 %": a.losac_lean("auto", steps, blocks, uploads=(top,)),
        "lean, auto, top 5 % in 8 bits": a.losac_lean("auto", steps, blocks, uploads=(packed,)),
        "lean, auto, rank 1 in 8 bits": a.losac_lean("auto", steps, blocks, uploads=thin[1]),
        "lean, auto, rank 2 in 8 bits": a.losac_lean("auto", steps, blocks, uploads=thin[2]),
    }


def sustained(accuracy: np.ndarray, target: float) -> int | None:
    """Return the first of so many evaluations in a row at or above a target."""
    good = np.concatenate([accuracy >= target, np.zeros(IN_A_ROW, bool)])
    return next((k for k in range(len(accuracy)) if good[k : k + IN_A_ROW].all()), None)


def measured(run: losac.History, target: float) -> dict[str, Any]:
    """Return where a run ends, and what it took to the target."""
    at = sustained(run.metric("accuracy"), target)
    return {
        "loss": run.final("test_loss" if "test_loss" in run.metrics else "loss"),
        "accuracy": run.final("accuracy"),
        "up": float(run.bytes_up[-1]) / 1e6,
        "rounds": None if at is None else int(run.rounds[at]),
        "sent": None if at is None else float(run.bytes_up[at]) / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "har", "mnist"))
    parser.add_argument("--partition", default="sorted")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--sampled", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--only", default="", help="run the methods with this in their name")
    parser.add_argument("--json", help="where to write the numbers")
    given = parser.parse_args()
    steps = blocks = 5
    task = task_of(given.data, given.clients, given.partition)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    found: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        eta = LENGTH / curvature(task, clients_per_round=given.sampled, seed=seed) / steps
        for name, method in methods(eta, steps, blocks).items():
            if given.only not in name:
                continue
            run = losac.simulate(task, method, rounds=given.rounds, clients_per_round=given.sampled, seed=seed)
            found.setdefault(name, []).append({"seed": seed, **measured(run, given.target)})
            print(name, found[name][-1], file=sys.stderr, flush=True)
    print("| method | test loss | accuracy, % | rounds to target | MB up to it | MB up in all |")
    print("|---|---|---|---|---|---|")
    for name, rows in found.items():
        loss, accuracy, up = (np.mean([row[key] for row in rows]) for key in ("loss", "accuracy", "up"))
        there = [row for row in rows if row["rounds"] is not None]
        rounds, sent = (np.mean([row[key] for row in there] or [np.nan]) for key in ("rounds", "sent"))
        spread = (
            f"{rounds:.0f} ({min(r['rounds'] for r in there)} to {max(r['rounds'] for r in there)})" if there else "–"
        )
        missing = "" if len(there) == len(rows) else f", {len(rows) - len(there)} never"
        print(f"| {name} | {loss:.3f} | {100 * accuracy:.1f} | {spread}{missing} | {sent:.2f} | {up:.2f} |")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
