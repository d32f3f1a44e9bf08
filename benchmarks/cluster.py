"""Jobs on a real Ray cluster of nodes on this machine, each on a core of its own: efficiency, and a killed node.

    python benchmarks/cluster.py efficiency            # one node against two; needs two idle cores, ten minutes
    python benchmarks/cluster.py killed                # two nodes, of which one is killed while both work
    python benchmarks/cluster.py efficiency --rounds 200 --jobs 4 --repeat 1     # a short try

Needs ``pip install 'losac[ray]'``. The nodes have addresses of the loopback interface, a temporary folder of their own,
and are ended by the ids of their processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import losac
from losac.jobs import JobCall, JobOutcome, Workers, open_engine
from losac.simulation.options import RunOptions
from losac.simulation.sweep import run_members

_START = 180.0
_STORE = 200_000_000


class Nodes:
    """Ray nodes with one CPU each, as 127.0.0.2, 127.0.0.3 and so on; the first is the head."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, f"127.0.0.2:{_free_port()}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def add(self) -> None:
        """Start a node on the next core, and wait until it is there."""
        place = len(self.processes)
        head = [
            "--head", f"--port={self.address.rpartition(':')[2]}", f"--ray-client-server-port={_free_port()}",
            f"--temp-dir={self.folder}", "--include-dashboard=false",
        ]  # fmt: skip
        log = self.folder / f"node{place}.txt"
        cores = sorted(os.sched_getaffinity(0))
        with log.open("wb") as told:
            node = subprocess.Popen(
                [
                    "taskset", "--cpu-list", str(cores[place % len(cores)]), str(Path(sys.executable).with_name("ray")),
                    "start", "--block", "--num-cpus=1",
                    "--disable-usage-stats", f"--object-store-memory={_STORE}",
                    f"--node-ip-address=127.0.0.{place + 2}",
                    *(head if place == 0 else [f"--address={self.address}"]),
                ],
                stdout=told, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "RAY_raylet_start_wait_time_s": f"{_START:.0f}"},
            )  # fmt: skip
        self.processes.append(node)
        until = time.monotonic() + _START
        while b"Ray runtime started" not in log.read_bytes():
            if node.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"a Ray node did not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)

    def kill(self, place: int) -> None:
        """Kill all processes of a node at once, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[place].pid, signal.SIGKILL)
        self.processes[place].wait()


@contextlib.contextmanager
def ray_nodes(count: int) -> Iterator[Nodes]:
    """Start nodes, and end them."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    nodes = Nodes(folder)
    try:
        for _ in range(count):
            nodes.add()
        yield nodes
    finally:
        for place in reversed(range(len(nodes.processes))):
            nodes.kill(place)
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def sweeps(jobs: int, rounds: int) -> list[JobCall]:
    """Sweeps of one length: SCAFFOLD on digits, 8 step sizes each."""
    data = losac.data.load("digits", clients=20, partition="sorted")
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    method = losac.algorithms.scaffold(step_size=1.0, local_steps=10, blocks=5)
    steps = [1e-4 * 1.5**k for k in range(8)]
    options = RunOptions(rounds=rounds, clients_per_round=5, eval_every=rounds)
    return [
        JobCall(
            f"sweep {seed}",
            run_members,
            {"jobs": [(method.replace(step_size=step), seed) for step in steps], "run": options},
            {"task": task},
        )
        for seed in range(jobs)
    ]


def timed(nodes: int, calls: list[JobCall]) -> float:
    """Return the seconds that jobs take on a new cluster; its workers begin cold."""
    with ray_nodes(nodes) as cluster, open_engine(Workers(on="ray", address=cluster.address)) as engine:
        began = time.perf_counter()
        outcomes = list(engine.run(calls))
        seconds = time.perf_counter() - began
    assert not any(outcome.error for outcome in outcomes), outcomes
    return seconds


def efficiency(arguments: argparse.Namespace) -> None:
    calls = sweeps(arguments.jobs, arguments.rounds)
    found = []
    for _ in range(arguments.repeat):
        one, two = timed(1, calls), timed(2, calls)
        found.append(one / (2 * two))
        print(f"{len(calls)} jobs: one node {one:.1f} s, two nodes {two:.1f} s, efficiency {found[-1]:.3f}", flush=True)
    print(f"median efficiency on two workers: {statistics.median(found):.3f}")


def killed(arguments: argparse.Namespace) -> None:
    for outcome in with_a_node_killed(sweeps(arguments.jobs, arguments.rounds)):
        print(f"{outcome.call.name} on {outcome.host}: {outcome.error or 'ended'}")


def with_a_node_killed(calls: list[JobCall]) -> Iterator[JobOutcome]:
    """Yield outcomes on two nodes, of which the second is killed when the first job has ended."""
    with ray_nodes(2) as cluster, open_engine(Workers(on="ray", address=cluster.address)) as engine:
        running = engine.run(calls)
        yield next(running)
        cluster.kill(1)
        yield from running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("efficiency", "killed"))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=2)
    os.environ.setdefault("LOSAC_PROGRAMS", "off")  # every worker compiles, as on machines of its own
    arguments = parser.parse_args()
    {"efficiency": efficiency, "killed": killed}[arguments.what](arguments)


if __name__ == "__main__":
    main()
