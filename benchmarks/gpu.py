"""The long jobs, for a GPU: pfl's CIFAR-10 job in full, and all of the paper's Table 2.

    LOSAC_DATA_DIR=path/to/data python benchmarks/gpu.py --json benchmarks/results/gpu.json

The images are synthetic, of CIFAR-10's shape: 1000 clients × 50 images, 50 a round, batches of 10, one pass, 1500
rounds, with matrix products in the hardware's own precision and in bfloat16. Table 2 is SCAFFOLD and LoSAC on MNIST,
HAR and ESR for three M and three T with three seeds each, as ``losac reproduce table2`` runs it, in several processes;
its time contains the start of the processes and all compilation.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from export import federated, first_weights
from jobs import JOBS
from simulator import Simulator, make_algorithm, make_task, mean_loss

from losac.simulation.engines.resident import precision as in_precision
from losac_reproduction import STUDIES
from losac_reproduction.runner import run_jobs
from losac_reproduction.study import Options

ROUNDS = 1500


def images(precision: str | None, rounds: int) -> dict[str, Any]:
    """Return the seconds of the whole job, with and without compilation, and the loss at its end."""
    job = JOBS["images"]
    data = federated(job)
    task = make_task(job, data, first_weights(job))
    with in_precision(np.float32, precision):
        began = time.perf_counter()
        simulator = Simulator(task, make_algorithm(job), job.sampled)
        first = simulator.run(rounds)
        whole = time.perf_counter() - began
        again = simulator.run(rounds)
        loss = mean_loss(task, simulator.params(), range(0, len(data), 5))
    return {"first": first, "with_setup": whole, "seconds": again, "rounds": rounds, "loss": loss}


def table2(workers: int) -> dict[str, Any]:
    """Return the seconds of all 54 cells, with three seeds each."""
    jobs = [
        job
        for job in STUDIES["table2"].jobs(Options())
        if job.arguments["start"] == "he" and job.arguments["method"] != "long"
    ]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run_jobs(jobs, Path(folder), workers)
        return {"seconds": time.perf_counter() - began, "runs": len(jobs), "seeds": 3, "workers": workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=12, help="processes for Table 2; 0 leaves it out")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of the images; 0 leaves them out")
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    if arguments.workers:  # first, while this process has not taken the device
        found["table2"] = table2(arguments.workers)
        print(f"Table 2: {found['table2']}", flush=True)
    for precision in (None, "bfloat16") if arguments.rounds else ():
        name = precision or "default"
        found[f"images, {name}"] = images(precision, arguments.rounds)
        print(f"images, {name}: {found[f'images, {name}']}", flush=True)
    found |= {"device": jax.devices()[0].device_kind, "date": time.strftime("%Y-%m-%d")}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
