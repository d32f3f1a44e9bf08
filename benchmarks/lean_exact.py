"""How near compressed LoSAC-lean comes to the exact optimum on real data, beside rivals with the same compressor.

    LOSAC_DATA_DIR=path/to/data python benchmarks/lean_exact.py a9a --rounds 4000

l2-regularised logistic regression in double precision, clients sorted by label, a tenth of them in a round, T = M = 5.
LoSAC-lean sets its own step; SCAFFOLD and FedAvg take the best of a few, each its own. The distance from the optimum
is given relative to that of the start.
"""

from __future__ import annotations

import argparse
from typing import Any

import losac
from losac.tuning.steps import curvature
from losac_reproduction.convex import convex

STEPS = BLOCKS = 5
SAMPLED = 5
LENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
"""The steps of the rivals, in units of 1/(TL)."""


def compressor(error_feedback: bool) -> Any:
    """Return the largest 5 % of the entries, in one byte each."""
    return losac.algorithms.top_k(0.05, error_feedback=error_feedback, over="model", bits=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("a9a", "w8a"))
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    task = convex(given.data, "sorted", 0).task
    a, unit = losac.algorithms, 1 / (STEPS * curvature(task, clients_per_round=SAMPLED))
    rivals = {"SCAFFOLD, top 5 %": (a.scaffold, False), "FedAvg, top 5 % with error feedback": (a.fedavg, True)}
    methods: dict[str, list[Any]] = {
        "LoSAC-lean": [a.losac_lean("auto", STEPS, BLOCKS)],
        "LoSAC-lean, top 5 %": [a.losac_lean("auto", STEPS, BLOCKS, uploads=(compressor(False),))],
    }
    for name, (make, feedback) in rivals.items():
        methods[name] = [make(length * unit, STEPS, BLOCKS, uploads=(compressor(feedback),)) for length in LENGTHS]
    print("| method | rounds to 1e-6 | to 1e-10 | MB up to it | distance at the end |")
    print("|---|---|---|---|---|")
    for name, tried in methods.items():
        runs = [run for one in tried if (run := measure(task, one, given.rounds, given.seed)) is not None]
        run = min(runs, key=lambda run: run.final("distance"))
        far = run.metric("distance") / run.metric("distance")[0]
        first = {level: next((k for k in range(len(far)) if far[k] <= level), None) for level in (1e-6, 1e-10)}
        rounds = ["–" if at is None else f"{run.rounds[at]}" for at in first.values()]
        at = first[1e-10]
        sent = "–" if at is None else f"{run.bytes_up[at] / 1e6:.2f}"
        print(f"| {name} | {' | '.join(rounds)} | {sent} | {far[-1]:.0e} |", flush=True)


def measure(task: Any, algorithm: Any, rounds: int, seed: int) -> losac.History | None:
    """Return a run, or None where it diverges."""
    try:
        return losac.simulate(
            task, algorithm, rounds=rounds, clients_per_round=SAMPLED, eval_every=20, loss_every=rounds, seed=seed,
            dtype="float64",
        )  # fmt: skip
    except losac.DivergedError:
        return None


if __name__ == "__main__":
    main()
