"""A round of LoSAC-lean on J1 beside FedAvg's and LoSAC's, in processor time, which other programs disturb least.

    LOSAC_DATA_DIR=path/to/data python benchmarks/lean_speed.py

The methods run alternately, 20 rounds each; the median of the repetitions counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

from export import federated, first_weights
from jobs import JOBS
from simulator import Simulator, make_algorithm, make_task

import losac

ROUNDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    given = parser.parse_args()
    job, a = JOBS["J1"], losac.algorithms
    task = make_task(job, federated(job), first_weights(job))
    methods = {
        "FedAvg": make_algorithm(replace(job, method="fedavg")),
        "LoSAC, exact scaling": a.losac(job.step, job.steps, job.blocks, scaling="exact"),
        "LoSAC-lean": a.losac_lean(job.step, job.steps, job.blocks),
        "LoSAC-lean, automatic step": a.losac_lean("auto", job.steps, job.blocks),
    }
    runs = {name: Simulator(task, method, job.sampled) for name, method in methods.items()}
    for each in runs.values():
        each.run(ROUNDS)
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(given.repeat):
        for name, each in runs.items():
            began = time.process_time()
            each.run(ROUNDS)
            spent[name].append((time.process_time() - began) / ROUNDS)
    found = {name: statistics.median(times) for name, times in spent.items()}
    print("| method | ms of processor time per round | times FedAvg's |\n|---|---|---|")
    for name, seconds in found.items():
        print(f"| {name} | {1e3 * seconds:.1f} | {seconds / found['FedAvg']:.2f} |")


if __name__ == "__main__":
    main()
