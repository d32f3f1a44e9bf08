"""Says where a round of J1, of SCAFFOLD on it and of LoSAC on it goes: the time of the program's operations, by kind.

    LOSAC_DATA_DIR=path/to/data python benchmarks/profile_round.py

The times are those that JAX's profiler notes for each operation, summed over a run of some rounds and divided by the
rounds and by the number of devices; what no operation accounts for is the last line. Writes results/profile.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
from export import federated, first_weights
from jobs import JOBS
from simulator import Simulator, make_algorithm, make_task

RESULTS = Path(__file__).parent / "results"
HOW = "times of the operations from JAX's profiler, per device; the rest is what no operation accounts for."
KINDS = {
    "matrix products": r"dot|ynn_fusion|gemm|cublas|cutlass|xmma|matmul|convolution",
    "adding up over the devices, and waiting": r"all-reduce|reduce-scatter|all-gather",
    "copies": r"copy|[mM]emcpy|transpose",
    "reading and writing rows of tables and data": r"dynamic[-_](update[-_])?slice|gather|scatter",
    "element by element": r"fusion|add|multiply|subtract|reduce|select|exp|log|convert|broadcast|wrapped|loop_",
}
"""Kinds of operations by their names, the first that fits; loops and calls, which only contain others, fit none."""
CONTAINERS = re.compile(r"^(while|call|conditional|tuple|get-tuple|parameter)")
OPERATION = re.compile(r"^[A-Za-z][\w\-]*(\.\d+)*$")


def kind_of(name: str) -> str | None:
    """Return the kind of an operation; None for loops, calls, and what is no operation of the program."""
    if CONTAINERS.match(name) or not OPERATION.match(name):
        return None
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), None)


def operations(folder: str) -> Counter[str]:
    """Return the seconds of each kind of operation in a trace, summed over the devices."""
    (path,) = Path(folder).rglob("*.xplane.pb")
    seconds: Counter[str] = Counter()
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines:
            if line.name == "XLA Ops" if on_device else line.name.startswith("tf_XLA"):
                for event in line.events:
                    if kind := kind_of(event.name):
                        seconds[kind] += event.duration_ns / 1e9
    return seconds


def profile(name: str, rounds: int) -> dict[str, Any]:
    """Return the seconds of a round of a job, and how they divide."""
    job = JOBS[name]
    task = make_task(job, federated(job), first_weights(job))
    simulator = Simulator(task, make_algorithm(job), job.sampled)
    simulator.run(rounds)
    alone = min(simulator.run(rounds) for _ in range(3)) / rounds
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            traced = simulator.run(rounds) / rounds
        seconds = operations(folder)
    devices = simulator.engine.shape.layout.devices
    shares = {kind: seconds[kind] / devices / rounds / traced for kind in KINDS if seconds[kind] > 0}
    shares["the rest: loops, starting operations, waiting"] = 1 - sum(shares.values())
    parts = [{"part": part, "share": share, "seconds": share * alone} for part, share in shares.items()]
    return {"job": name, "title": job.title, "seconds": alone, "seconds_traced": traced, "parts": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="J1,J4,J1-losac", help="comma-separated (J1,J4,J1-losac)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds in the trace (10)")
    arguments = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    found = [profile(name, arguments.rounds) for name in arguments.jobs.split(",")]
    for one in found:
        print(f"{one['title']}: {1e3 * one['seconds']:.3g} ms per round ({1e3 * one['seconds_traced']:.3g} traced)")
        for part in one["parts"]:
            print(f"  {part['part']:48} {1e3 * part['seconds']:8.2f} ms {100 * part['share']:4.0f} %")
    about = {"device": jax.devices()[0].device_kind, "date": time.strftime("%Y-%m-%d"), "load_before": load, "how": HOW}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "profile.json").write_text(json.dumps(about | {"jobs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
