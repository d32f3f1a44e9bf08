"""Flower: its FedAvg strategy and a PyTorch client in its simulation, with clients in Ray's worker processes.

A simulation is started for every repetition; the seconds are those from the end of its first round to the end of its
last, without the start of Ray. Flower's sampling has no seed, so the loss is compared with a tolerance.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

os.environ |= {
    "FLWR_HOME": tempfile.mkdtemp(),
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONPATH": str(Path(__file__).parent),
}

from flower_client import make_client
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from protocol import Job, serve
from torch_models import make_model, mean_loss, tensors


class Simulation:
    """run_simulation with N virtual nodes, one core for each of Ray's workers."""

    plan, about = (
        "its own",
        "its own clients and shuffled batches; without the start of Ray; memory of all its processes",
    )

    def __init__(self, job: Job) -> None:
        self.job, self.largest = job, 0.0
        self.model = make_model(job)
        self.weights = {k: v.clone() for k, v in self.model.state_dict().items()}

    def check(self, rounds: int) -> float:
        self._simulate(rounds)
        self.model.load_state_dict(self.weights)
        return mean_loss(self.job, self.model, *tensors(self.job))

    def run(self, rounds: int) -> float:
        marks = self._simulate(rounds + 1)
        return marks[-1] - marks[1]

    def peak(self) -> float:
        """Return the largest sum of the resident memory of this process and its descendants that was seen, in MB."""
        return self.largest

    def _simulate(self, rounds: int) -> list[float]:
        marks: list[float] = []
        server, share = ServerApp(), self.job.sampled / self.job.clients

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            strategy = FedAvg(
                fraction_train=share,
                fraction_evaluate=0.0,
                min_train_nodes=self.job.sampled,
                min_available_nodes=self.job.clients,
            )
            result = strategy.start(
                grid,
                ArrayRecord(self.weights),
                num_rounds=rounds,
                evaluate_fn=lambda r, arrays: marks.append(time.perf_counter()),
            )
            self.weights = result.arrays.to_torch_state_dict()

        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,))
        watch.start()
        try:
            run_simulation(
                server,
                make_client(self.job.path),
                self.job.clients,
                backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
            )
        finally:
            over.set()
            watch.join()
        return marks

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.5):
            self.largest = max(self.largest, family_memory(os.getpid()))


def family_memory(root: int) -> float:
    """Return the resident memory of a process and its descendants, in MB; what they share counts once for each."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,rss="], capture_output=True, text=True).stdout
    processes = [tuple(int(v) for v in line.split()) for line in listed.splitlines()]
    family, total = {root}, 0
    for pid, parent, rss in sorted(processes):
        if pid == root or parent in family:
            family.add(pid)
            total += rss
    return total / 1024


if __name__ == "__main__":
    serve(Simulation, in_memory=True)
